//! What an executor has done so far.

use crate::sync::{AtomicUsize, Ordering};

/// What a [`SerialExecutor`](crate::SerialExecutor) has done so far, and does now.
///
/// The numbers are read one after the other while jobs go on: they need not add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Jobs that ran at once, on the thread that submitted them.
    pub inline: usize,
    /// Jobs that waited in the queue, and have been taken from it to be run: also those that turned out
    /// to be aborted, or were refused by a poisoned state.
    pub queued: usize,
    /// Of those, jobs of others that a submitting thread ran behind its own.
    pub captured: usize,
    /// How often the queue was handed over to a Tokio task or a pool, or was to be and was refused.
    pub handed_over: usize,
    /// Jobs that panicked.
    pub panics: usize,
    /// Jobs that wait in the queue now. One that was aborted counts until its turn comes.
    pub queue_length: usize,
    /// How long the queue was at most when somebody took jobs from it, or looks at it now.
    pub max_queue_length: usize,
}

/// The counters behind it. Each is written by the owner of the executor only.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) inline: Counter,
    pub(super) queued: Counter,
    pub(super) captured: Counter,
    pub(super) handed_over: Counter,
    pub(super) panics: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> Metrics {
        Metrics {
            inline: self.inline.read(),
            queued: self.queued.read(),
            captured: self.captured.read(),
            handed_over: self.handed_over.read(),
            panics: self.panics.read(),
            ..Metrics::default()
        }
    }
}

/// A number with one writer at a time, which needs no read-modify-write.
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

    fn read(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
