//! The progress that running tasks report.

use super::{Epoch, MAX_BATCH_BYTES, MAX_BATCH_TASKS};
use crate::durable::TaskId;

/// The maximum size in bytes of the progress in a report.
pub const MAX_PROGRESS_BYTES: usize = 4096;

// So a request needs no limit other than that of the number of its tasks.
const _: () = assert!(MAX_PROGRESS_BYTES * MAX_BATCH_TASKS <= MAX_BATCH_BYTES);

/// A report of the progress of a running task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressReport {
    /// The task.
    pub id: TaskId,
    /// The progress.
    pub progress: Progress,
}

/// The progress that a run has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch of the run.
    pub epoch: Epoch,
    /// The number of the report, which rises within the run.
    pub number: u64,
    /// At most [`MAX_PROGRESS_BYTES`].
    pub bytes: Vec<u8>,
}

/// The progress of a task, as a store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressState {
    /// The task has ended, or there is no such task.
    Ended,
    /// The task has not ended. This is the last progress that one of its runs has reported.
    Alive(Option<Progress>),
}

impl Progress {
    /// Returns the epoch and the number, by which the reports of a task are ordered.
    pub fn order(&self) -> (Epoch, u64) {
        (self.epoch, self.number)
    }
}
