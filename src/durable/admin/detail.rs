//! [`TaskDetail`]: what a store knows about one task.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::excerpt::Excerpt;
use super::json;
use crate::durable::{AttemptError, Priority, TaskChild, TaskId, TaskInfo, TaskStep, TaskWait};

/// The description of one task in a store: see [`Admin::task`](crate::durable::Admin::task).
///
/// A field is `None` if it does not apply to tasks with this [status](TaskInfo::status), or if the store does not know its value. To find
/// out which changes are possible, use [`TaskChange::applies_to`](crate::durable::TaskChange::applies_to). It is serialised with durations
/// in milliseconds.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
/// use throng::durable::TaskChange;
///
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?;
///
/// let detail = client.admin().task(handle.id()).await?.expect("it was spawned");
/// let payload = detail.payload.as_ref().expect("the store has it");
/// assert_eq!(payload.as_str(), Some(r#"{"to":"a@b.c"}"#));
/// assert!(TaskChange::Cancel.applies_to(detail.task.status));
/// println!("{}", serde_json::to_string_pretty(&detail)?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct TaskDetail {
    /// The current time, by the clock of the store.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
    /// The task as it appears in a [list](crate::durable::Admin::tasks).
    pub task: TaskInfo,
    /// The priority of the task, or `None` if the task has succeeded or was cancelled, or if a part of it is lost.
    pub priority: Option<Priority>,
    /// The state of the task's [key](crate::durable::SpawnOptions::key). It is `None` if the task has no key, has succeeded or was
    /// cancelled. It may also be `None` if the task held its key only [until it started](crate::durable::Key::until_started), and has
    /// started.
    pub key: Option<KeyState>,
    /// The [version](crate::durable::DurableTask::VERSION) of the type with which the payload was encoded, or `None` without a payload.
    pub version: Option<u8>,
    /// The [encoded](crate::durable::DurableTask::encode) task, or `None` if the task has succeeded or was cancelled, or if the payload is
    /// [lost](Self::damage). With Redis, a small payload (up to about 500 bytes) of a waiting task may also be `None` if the task is not
    /// among the first or the last hundred of its list. The store then searches for the task by the time in its id. It finds most tasks
    /// with a [new](crate::durable::TaskId::new) id, no tasks with other ids, and none in lists of more than a million tasks.
    pub payload: Option<Excerpt>,
    /// The output of a task that has succeeded, as JSON.
    pub output: Option<Excerpt>,
    /// A description of the damage if a part of the task is lost or cannot be read, or `None` if the store has found no damage.
    pub damage: Option<String>,
    /// The errors of the attempts after which the task was tried again: at most the last 8, the oldest first.
    pub errors: Vec<AttemptError>,
    /// The complete last error of a dead letter. [`TaskInfo::error`] has only its beginning.
    pub error: Option<String>,
    /// The last [progress](crate::durable::TaskContext::progress) that a run of the task has reported, as JSON.
    pub progress: Option<Excerpt>,
    /// `true` if the task is running, and its [cancellation](crate::durable::DurableHandle::cancel) was requested.
    pub is_cancel_requested: bool,
    /// The time after which the lease of a running task expires, unless its worker renews it.
    #[serde(serialize_with = "json::optional_millis")]
    pub lease_left: Option<Duration>,
    /// The worker that runs the task, or `None` if the task is not running.
    pub runner: Option<Runner>,
    /// The task that has spawned this task as a [child](crate::durable::TaskContext::spawn_all), if there is one. It is `None` if the task
    /// has succeeded or was cancelled.
    pub parent: Option<TaskId>,
    /// The steps, in the order in which they were stored. The ends of children are among them. A task that has succeeded or was cancelled
    /// has none.
    pub steps: Vec<TaskStep>,
    /// The children that the steps name. A child whose end was removed by a [replay](crate::durable::TaskChange::ReplayFrom) is here as if
    /// it had not ended.
    pub children: Vec<TaskChild>,
    /// The waits of a [suspended](crate::durable::TaskContext::sleep) task. It runs again when the first of them is over.
    /// A task that waits for several sleeps, and for nothing else, has only the sleep that ends first here.
    pub waits_for: Vec<TaskWait>,
}

/// The state of the key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyState {
    /// The task holds its key.
    Held,
    /// The task no longer holds its key.
    Released,
}

/// The worker that runs a task, as far as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct Runner {
    /// The number of the worker's session, as in [`WorkerInfo::session`](crate::durable::WorkerInfo::session). It is serialised as a
    /// text, since JavaScript would round it.
    #[serde(serialize_with = "json::number")]
    pub session: u64,
    /// A description of the worker's process. It is `None` if the session no longer exists, and always with
    /// [`MemoryStore`](crate::durable::MemoryStore), which belongs to one process.
    pub process: Option<String>,
    /// `true` if the worker did not renew its lease in time. If it does not do so before the lease expires again, the task goes to another
    /// worker.
    pub is_suspect: bool,
}
