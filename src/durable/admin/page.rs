//! [`TaskPage`], [`QueueHead`] and [`TaskInfo`]: lists of tasks.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::json;
use crate::durable::{Cursor, DeadReason, Status, TaskId};

/// A page of a list of tasks: see [`Admin::tasks`](crate::durable::Admin::tasks).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct TaskPage {
    /// The tasks, without their payloads.
    pub tasks: Vec<TaskInfo>,
    /// The position of the next page, or `None` if this is the last page. Pass it to [`Admin::tasks`](crate::durable::Admin::tasks).
    pub next: Option<Cursor>,
    /// The number of tasks that the store has examined for this page.
    pub examined: usize,
    /// The time at which the store read the page, by its clock. To change only tasks that existed then, pass it to
    /// [`TaskFilter::until`](crate::durable::TaskFilter::until).
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
}

/// The tasks of a queue that have been ready for the longest time: see [`Admin::head`](crate::durable::Admin::head).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct QueueHead {
    /// The tasks, without their payloads. The first one has been ready for the longest time.
    pub tasks: Vec<TaskInfo>,
    /// The time at which the store read the tasks, by the store's clock.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
}

#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl TaskPage {
    for_stores! {
        /// Returns an empty page that was read at this time, in milliseconds since 1970.
        fn at(millis: u64) -> Self {
            Self {
                tasks: Vec::new(),
                next: None,
                examined: 0,
                now: SystemTime::UNIX_EPOCH + Duration::from_millis(millis),
            }
        }
    }
}

#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl QueueHead {
    for_stores! {
        /// Returns a head that was read at this time, in milliseconds since 1970.
        fn at(millis: u64, tasks: Vec<TaskInfo>) -> Self {
            Self {
                tasks,
                now: SystemTime::UNIX_EPOCH + Duration::from_millis(millis),
            }
        }
    }
}

/// A task as it appears in a list. It is serialised with durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct TaskInfo {
    /// The id of the task.
    pub id: TaskId,
    /// The status of the task.
    pub status: Status,
    /// The [name](crate::durable::DurableTask::NAME) of the task, or `None` if the store has lost it.
    pub name: Option<String>,
    /// The [queue](crate::durable::Queue) of the task. It is `None` for the default queue, and if the task has succeeded or was cancelled.
    pub queue: Option<String>,
    /// The [group](crate::durable::SpawnOptions::group) of the task. It is `None` if the task has no group, has succeeded or was cancelled.
    pub group: Option<String>,
    /// The number of runs that have failed, or `None` if the task has succeeded or was cancelled.
    pub failures: Option<u32>,
    /// The number of workers that have died while they ran the task. It is `None` if the task has succeeded or was cancelled and, with
    /// Redis, if it is waiting.
    pub crashes: Option<u32>,
    /// The time for which a waiting task has been ready to run, or `None` if it is not waiting or the store does not know the time. After a
    /// failed attempt, it is the time since the next attempt was due. It continues to count if a worker gives the task back, or dies.
    #[serde(serialize_with = "json::optional_millis")]
    pub ready_for: Option<Duration>,
    /// The time until a delayed task is due, or zero if it is already due. It is `None` for other tasks.
    #[serde(serialize_with = "json::optional_millis")]
    pub due_in: Option<Duration>,
    /// The [fencing token](crate::durable::TaskContext::fencing_token) of the current run, or `None` if the task is not running.
    /// It is serialised as a text, since JavaScript would round it.
    #[serde(serialize_with = "json::optional_number")]
    pub fencing_token: Option<u64>,
    /// The time for which the store still keeps a task that has ended, or `None` if it has not ended. Time during which no executor runs on
    /// the store does not count.
    #[serde(serialize_with = "json::optional_millis")]
    pub kept_for: Option<Duration>,
    /// The time since a worker has claimed a running task, or `None` if the task is not running. The run itself may have begun later.
    #[serde(serialize_with = "json::optional_millis")]
    pub running_for: Option<Duration>,
    /// The duration, in whole milliseconds, of the run with which a task has succeeded, or after which it has become a dead letter. It is
    /// `None` for other tasks, and if there was no such run, for example because the last worker died.
    #[serde(serialize_with = "json::optional_millis")]
    pub took: Option<Duration>,
    /// The time since the task has ended, or `None` if it has not ended. Time during which no executor runs on the store does not count.
    #[serde(serialize_with = "json::optional_millis")]
    pub age: Option<Duration>,
    /// The reason why the task has become a dead letter, or `None` if it is not one.
    pub reason: Option<DeadReason>,
    /// The beginning of the last error of a dead letter, of at most 160 bytes, or `None` if the task is not a dead letter.
    pub error: Option<String>,
}

/// The maximum number of bytes of an error in a list.
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub const MAX_LISTED_ERROR_BYTES: usize = 160;

/// The maximum number of tasks, or of workers, in a page.
const MAX_PAGE: usize = 200;

/// Returns an error message if a page cannot have this limit.
pub(super) fn check_limit(limit: usize) -> Result<(), String> {
    match limit {
        1..=MAX_PAGE => Ok(()),
        _ => Err(format!(
            "the limit of a page is {limit}: set it to 1 to {MAX_PAGE}"
        )),
    }
}
