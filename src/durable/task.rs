//! [`DurableTask`]: the arguments of a task. [`NewTask`]: a task that is to be stored, and the limits of a request.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TaskId;
use super::key::NewKey;
use super::queue::Priority;
use super::queue::group::GroupName;
use super::queue::name::QueueName;
use super::store::kind::Kind;

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

    /// The [queue](super::Queue) of tasks of this type: the default queue by default.
    /// [`SpawnOptions::queue`](super::SpawnOptions::queue) sets it for one task.
    const QUEUE: Option<&'static str> = None;

    /// How urgent tasks of this type are. [`SpawnOptions::priority`](super::SpawnOptions::priority) sets it for one task.
    const PRIORITY: Priority = Priority::Normal;

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

/// The maximum number of tasks, ids or verdicts in one request. The engine respects these limits, and the stores
/// rely on it.
pub(crate) const MAX_BATCH_TASKS: usize = 256;
/// The maximum size in bytes of a payload, including its envelope, and of an output, excluding it. The client refuses a larger task,
/// and an executor a larger output.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// The maximum size in bytes of the payloads in one request, and in one answer.
pub(crate) const MAX_BATCH_BYTES: usize = MAX_PAYLOAD_BYTES;

/// A task that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) name: Cow<'static, str>,
    /// The version of the envelope around the payload.
    pub(crate) envelope: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) queue: QueueName,
    /// The group of the task, which is in a named queue.
    pub(crate) group: Option<GroupName>,
    pub(crate) priority: Priority,
    pub(crate) key: Option<NewKey>,
    /// If it is zero, the task can be claimed at once.
    pub(crate) delay: Duration,
    /// The time for which the end of the task is kept; zero: the end is not kept. (Dead letters are kept for
    /// `DEAD_LETTER_RETENTION`.)
    pub(crate) retention: Duration,
    /// The number of deaths of workers that makes the task a dead letter: see `is_dead_letter`.
    pub(crate) max_crashes: u32,
}

impl NewTask {
    pub(crate) fn kind(&self) -> Kind {
        Kind::in_envelope(&self.name, self.envelope).placed(&self.queue, self.priority)
    }
}

/// Returns the size of the payloads of these tasks, in bytes.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
