//! [`DurableTask`] and [`Run`]: what a durable task is, and what it does.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{TaskContext, TaskError};

/// What can be stored as a task: all that a producer needs to know of it.
///
/// The type is the task's arguments; what it does is said with [`Run`], and only a worker needs that.
/// A task is stored as JSON, so a program that is newer can read it as long as serde can: give new
/// fields a `#[serde(default)]`.
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
    /// The name under which it is stored: workers find by it what to run. It is the same in all
    /// programs that use a store, and stays the same when the type is renamed.
    const NAME: &'static str;

    /// The result of a successful task. It is stored as JSON, of at most 1 MiB. A task that returns a larger
    /// output becomes a dead letter ([`OutputTooLarge`](super::DeadReason::OutputTooLarge)) and does not run
    /// again. Keep large results elsewhere, and return where they are.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// How long the end of a task, with its output, is kept for those who await it: 10 minutes, or
    /// one minute if there is nothing in the output. A [`SpawnOptions`](super::SpawnOptions) can say
    /// something else. While no executor runs on the store, the end is kept for longer.
    const RETENTION: Duration = match size_of::<Self::Output>() {
        0 => Duration::from_secs(60),
        _ => Duration::from_secs(600),
    };

    /// Encodes the task: as JSON, unless this is overridden. The encoded task may have at most 1 MiB; a larger
    /// one is refused when it is spawned.
    ///
    /// # Errors
    ///
    /// It cannot be written. Then it is not spawned.
    fn encode(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Reads what [`encode`](Self::encode) has written, maybe in an older version of the program.
    ///
    /// # Errors
    ///
    /// It cannot be read. Then the task becomes a dead letter.
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// What a durable task does: all that a worker needs besides.
///
/// `App` is whatever tasks work with, a pool of connections for instance; the
/// [context](TaskContext::app) holds it.
///
/// A task can run more than once: its worker may die after the work was done, and before the store
/// knew. [`TaskContext::idempotency_key`] and [`TaskContext::fencing_token`] are there for that.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::DurableTask;
/// use throng::durable::{Run, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
///
/// struct App {
///     sender: String,
/// }
///
/// impl Run<App> for SendMail {
///     async fn run(self, cx: TaskContext<App>) -> Result<(), TaskError> {
///         if !self.to.contains('@') {
///             return Err(TaskError::fatal("not an address"));
///         }
///         println!("{} to {}, attempt {}", cx.app().sender, self.to, cx.attempt());
///         Ok(())
///     }
/// }
/// # drop((App { sender: "me".into() }, SendMail { to: "you".into() }));
/// ```
pub trait Run<App>: DurableTask {
    /// Runs the task.
    ///
    /// # Errors
    ///
    /// Says whether, and when, it is to run again: see [`TaskError`]. A panic is an error like any
    /// other, too.
    ///
    /// An output may have at most 1 MiB, encoded. If it is larger, the task becomes a dead letter
    /// ([`OutputTooLarge`](super::DeadReason::OutputTooLarge)) without another attempt, and its output is lost. A run
    /// that may produce more has to store the output elsewhere itself.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped where it waits when the grace of a
    /// [shutdown](super::DurableExecutor::shutdown) is over; the task then runs again from its
    /// beginning.
    fn run(
        self,
        cx: TaskContext<App>,
    ) -> impl Future<Output = Result<Self::Output, TaskError>> + Send;
}

/// The version of what stands before a payload in the store.
pub(crate) const ENVELOPE: u8 = 1;

/// A task as it is stored.
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
