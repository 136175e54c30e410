//! The counters of an executor.

use crate::sync::{AtomicUsize, Number, Ordering};

/// A snapshot of the work of a [`SerialExecutor`](crate::SerialExecutor).
///
/// Before a job's handle is ready, the job is counted in `completed` or `panicked`. The numbers are read one after
/// the other while jobs run, so they need not add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Jobs that ran at once, on the thread that submitted them.
    pub inline: u64,
    /// Jobs taken from the queue, including those that had been aborted or that a poisoned state refused.
    pub queued: u64,
    /// Jobs of others that a submitting thread ran after its own. They are part of `queued`.
    pub captured: u64,
    /// Times the queue was handed over to a runtime or a pool, including those that were refused.
    pub handed_over: u64,
    /// Jobs that have returned.
    pub completed: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that were not accepted: the queue was full, the executor closed or poisoned, or there was no runtime
    /// to run them on. A job that [`try_run`](crate::SerialExecutor::try_run) returns is not counted.
    pub rejected: u64,
    /// Jobs that wait in the queue now. An aborted job counts until it would have run.
    pub queue_length: u64,
    /// The largest length of the queue that was observed, when jobs were taken from it or when it is read.
    pub max_queue_length: u64,
    /// `true` while a job runs, or an asynchronous job holds the state.
    pub is_busy: bool,
    /// `true` if a job has panicked and left the state poisoned.
    pub is_poisoned: bool,
}

/// The counters behind [`Metrics`].
///
/// A job is *direct* if it ran without a cell, and *packed* if it was put into a cell to be queued. The path of an
/// idle executor changes one counter.
#[derive(Default)]
pub(super) struct Counters {
    /// Direct jobs that have ended.
    pub(super) direct: Counter,
    /// Direct jobs that have panicked.
    pub(super) direct_panicked: Counter,
    /// Packed jobs that ran at once after all, because the executor had become idle.
    pub(super) packed_inline: Counter,
    /// Packed jobs that have returned.
    pub(super) packed_returned: Counter,
    pub(super) queued: Counter,
    pub(super) captured: Counter,
    pub(super) handed_over: Counter,
    pub(super) panicked: Counter,
    /// Counted by the submitters.
    pub(super) rejected: Number,
}

impl Counters {
    /// Counts a direct job that has ended.
    #[inline]
    pub(super) fn count_direct(&self, panicked: bool) {
        self.direct.add(1);
        if panicked {
            self.direct_panicked.add(1);
        }
    }

    pub(super) fn read(&self, queue_length: usize, max_queue_length: usize) -> Metrics {
        let direct_panicked = self.direct_panicked.read();
        let direct = self.direct.read();
        Metrics {
            inline: direct + self.packed_inline.read(),
            queued: self.queued.read(),
            captured: self.captured.read(),
            handed_over: self.handed_over.read(),
            completed: direct.saturating_sub(direct_panicked) + self.packed_returned.read(),
            panicked: self.panicked.read(),
            rejected: self.rejected.get() as u64,
            queue_length: queue_length as u64,
            max_queue_length: max_queue_length as u64,
            ..Metrics::default()
        }
    }
}

/// A number that only the owner of the executor changes, so it needs no read-modify-write.
pub(super) struct Counter(AtomicUsize);

impl Default for Counter {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl Counter {
    #[inline]
    pub(super) fn add(&self, n: usize) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(n), Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}
