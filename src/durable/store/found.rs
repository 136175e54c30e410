//! [`FoundTask`]: a task that a store has found by its id.

use std::time::Duration;

#[cfg(any(
    test,
    feature = "redis",
    feature = "test-util",
    feature = "unstable-store"
))]
use crate::durable::Status;
use crate::durable::clock::time_of;
use crate::durable::{TaskDetail, TaskInfo};

/// A task, with its payload and its output as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTask {
    /// The task, without the fields that are read from the payload and the output.
    pub detail: TaskDetail,
    /// The payload in its envelope, if the store has it.
    pub payload: Option<Beginning>,
    /// The output in its envelope, if the task has succeeded.
    pub output: Option<Beginning>,
    /// If the task is suspended until it has a number of steps: a description of its waits, as the run has given it.
    pub waits_for: Option<String>,
}

/// The beginning of a payload or an output: its first [`MAX_READ_BYTES`], or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The first bytes of the value.
    pub bytes: Vec<u8>,
    /// The length of the whole value, in bytes.
    pub len: usize,
}

/// The number of bytes of a payload or an output that are read for an excerpt, including the envelope. The envelope of an output contains
/// the name of the task, which has at most 64 KiB.
pub const MAX_READ_BYTES: usize = 129 << 10;

/// The maximum number of lists that a request for the head of a queue examines.
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "unstable-store"
))]
pub const MAX_HEAD_LISTS: usize = 1_000;

#[cfg(any(
    test,
    feature = "redis",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl Beginning {
    /// Returns the beginning of a value.
    pub fn of(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        bytes.truncate(MAX_READ_BYTES);
        Self { bytes, len }
    }
}

impl FoundTask {
    /// Returns a task without the details that a list does not contain. The time is in milliseconds since 1970.
    pub fn new(task: TaskInfo, now: u64) -> Self {
        Self {
            detail: TaskDetail {
                now: time_of(Duration::from_millis(now)),
                task,
                priority: None,
                key: None,
                version: None,
                payload: None,
                output: None,
                damage: None,
                errors: Vec::new(),
                error: None,
                progress: None,
                is_cancel_requested: false,
                lease_left: None,
                runner: None,
                parent: None,
                steps: Vec::new(),
                children: Vec::new(),
                waits_for: Vec::new(),
            },
            payload: None,
            output: None,
            waits_for: None,
        }
    }

    /// Returns the status of the task.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "test-util",
        feature = "unstable-store"
    ))]
    pub fn status(&self) -> Status {
        self.detail.task.status
    }
}
