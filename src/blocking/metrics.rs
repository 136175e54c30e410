//! [`Metrics`]: a snapshot of the work of a pool.

use super::histogram::Histogram;
use crate::join::RunCounts;

/// A snapshot of the work of a [`BlockingPool`](crate::BlockingPool).
///
/// Before a task's handle is ready, the task is counted in `completed`, `panicked` or `cancelled`, and is no longer
/// counted in `busy`. The histograms and the state of its thread follow a moment later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Threads that exist or are being created.
    pub threads: u64,
    /// Of those, threads that wait for a task, or have just been woken for one.
    pub idle: u64,
    /// Of those, threads whose task has not ended. Between two tasks, a thread is neither busy nor idle.
    pub busy: u64,
    /// The largest number of threads so far.
    pub largest: u64,
    /// Threads whose task has waited for another task of the pool. The pool may exceed its maximum by this number,
    /// at most twofold.
    pub blocked: u64,
    /// Tasks that wait for a thread.
    pub queued: u64,
    /// Tasks accepted so far.
    pub submitted: u64,
    /// Tasks that have returned so far.
    pub completed: u64,
    /// Tasks that have panicked so far.
    pub panicked: u64,
    /// Tasks so far that were aborted before they started, or dropped by the pool.
    pub cancelled: u64,
    /// Tasks not accepted so far: the queue was full, the pool was closed, or the system refused a thread.
    pub rejected: u64,
    /// Threads that the system has refused so far.
    pub spawn_failures: u64,
    /// The [core threads](super::Builder::core_threads) that are configured now.
    pub core_threads: u64,
    /// The [maximum number of threads](super::Builder::max_threads) that is configured now. Of a bulkhead, the most tasks that
    /// it runs at a time.
    pub max_threads: u64,
    /// The most tasks that may wait, or `None` if their number has [no bound](super::Builder::queue_capacity).
    pub queue_capacity: Option<u64>,
    /// The times that tasks have waited in the queue.
    ///
    /// The buckets hold a random sample of the tasks that have run, one in sixteen on average. The maximum includes
    /// every task that a thread of the pool has run, and is exact, with two exceptions. Reading the clock takes about
    /// 25 ns. So while almost all of the last thousand tasks took less than 1 us, only the sample is timed, and the
    /// maximum may miss a task. In a long queue, tasks that were queued at almost the same time share a time, so a time
    /// may be too long by 1 us for every 1,024 tasks that were queued.
    pub queue_wait: Histogram,
    /// The times that tasks have run. The sample is that of `queue_wait`.
    ///
    /// The maximum includes every task that a thread of the pool has run, and is exact, with one exception. While almost
    /// all of the last thousand tasks took less than 1 us, a thread reads the clock once for up to 32 of them. The
    /// maximum then includes the sum of their times if that is 1 ms or more.
    pub run_time: Histogram,
}

impl Metrics {
    /// Adds the outcomes of the tasks of a thread.
    pub(super) fn add(&mut self, counts: &RunCounts) {
        self.busy += u64::from(counts.is_busy());
        self.completed += counts.completed();
        self.panicked += counts.panicked();
    }
}
