//! What a pool has done so far.

use super::Histogram;
use crate::join::RunCounts;

/// What a [`BlockingPool`](crate::BlockingPool) has done so far, and does now, at one moment.
///
/// Before a task's handle is ready, the task is counted in `completed`, `panicked` or `cancelled`, and leaves
/// `busy`. The histograms, and the state of its thread, follow a moment later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Threads that exist, or are being created.
    pub threads: usize,
    /// Of those, threads that wait for a task, or have just been woken for one.
    pub idle: usize,
    /// Of those, threads whose task has not ended. Between two tasks, a thread is neither busy nor idle.
    pub busy: usize,
    /// The largest number of threads so far.
    pub largest: usize,
    /// Threads whose task has waited for another task of the pool. The pool may exceed its maximum by this
    /// number, and at most twofold.
    pub blocked: usize,
    /// Tasks that wait for a thread.
    pub queued: usize,
    /// Tasks accepted so far.
    pub submitted: u64,
    /// Tasks that have returned so far.
    pub completed: u64,
    /// Tasks that have panicked so far.
    pub panicked: u64,
    /// Tasks that were aborted before they started, or dropped by the pool.
    pub cancelled: u64,
    /// Tasks that were not accepted, because the queue was full, the pool closed, or no thread to be
    /// had.
    pub rejected: u64,
    /// Threads that the system refused so far.
    pub spawn_failures: u64,
    /// How long tasks have waited in the queue: one task in sixteen is timed.
    pub queue_wait: Histogram,
    /// How long tasks have run: the same ones.
    pub run_time: Histogram,
}

impl Metrics {
    /// Adds the outcomes of the tasks of a thread.
    pub(super) fn add(&mut self, tally: &RunCounts) {
        self.busy += usize::from(tally.is_busy());
        self.completed += tally.completed();
        self.panicked += tally.panicked();
    }
}
