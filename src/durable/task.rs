//! [`DurableTask`]: the arguments of a task, and how they are stored.

use std::error::Error;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type whose values can be stored as tasks. A program that only spawns and awaits tasks needs nothing else of them.
///
/// The value holds the task's arguments. A worker also implements [`Run`](super::Run), which defines what the task does.
/// A task is stored as JSON. A newer version of the program can read it as long as serde can, so give new fields a
/// `#[serde(default)]`.
///
/// # Examples
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::durable::DurableTask;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendMail {
///     to: String,
/// }
///
/// impl DurableTask for SendMail {
///     const NAME: &'static str = "mail.send";
///     type Output = ();
/// }
/// # let task = SendMail { to: "a@b.c".into() };
/// # assert_eq!(task.encode().unwrap(), br#"{"to":"a@b.c"}"#);
/// ```
pub trait DurableTask: Serialize + DeserializeOwned + Send + 'static {
    /// The name under which tasks of this type are stored. It must be the same in all programs that use a store, and must
    /// not change when the type is renamed.
    const NAME: &'static str;

    /// The result of a successful task. It is stored as JSON, of at most 1 MiB. A task that returns a larger
    /// output becomes a dead letter ([`OutputTooLarge`](super::DeadReason::OutputTooLarge)) and does not run
    /// again. Keep large results elsewhere, and return a reference to them.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The time for which the end of a task, with its output, is kept for those who await it: 10 minutes by default.
    /// [`SpawnOptions::retention`](super::SpawnOptions::retention) sets it for one task. While no executor runs on the store,
    /// ends are kept for longer.
    const RETENTION: Duration = Duration::from_secs(600);

    /// Encodes the task, as JSON by default. The encoded task may have at most 1 MiB; spawning a larger one fails.
    ///
    /// # Errors
    ///
    /// The task cannot be encoded. Then spawning it fails.
    fn encode(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Decodes a task that [`encode`](Self::encode) has encoded, perhaps in an older version of the program.
    ///
    /// # Errors
    ///
    /// The task cannot be decoded. Then it becomes a dead letter.
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// The version of the envelope around payloads in the store.
pub(crate) const ENVELOPE: u8 = 1;

/// Returns the payload of a task as it is stored.
pub(crate) fn seal(task: &impl DurableTask) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let mut payload = task.encode()?;
    payload.insert(0, ENVELOPE);
    Ok(payload)
}

/// Returns the contents of an envelope that [`seal`] made, or `None` if it has another version.
pub(crate) fn unseal(payload: &[u8]) -> Option<&[u8]> {
    match payload {
        [ENVELOPE, bytes @ ..] => Some(bytes),
        _ => None,
    }
}
