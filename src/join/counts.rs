//! [`RunCounts`]: how the tasks of a thread have ended.

use crate::sync::Number;
use crate::task::Ran;

/// Counts the tasks that one thread has run. Only that thread writes to it.
///
/// A task is counted before its outcome is visible, so a caller that sees the outcome also sees the count.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct RunCounts {
    completed: Number,
    panicked: Number,
    /// 1 while the thread runs a task.
    busy: Number,
}

impl RunCounts {
    /// The number of tasks that have returned.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.get() as u64
    }

    /// The number of tasks that have panicked.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.get() as u64
    }

    /// Returns `true` while the thread runs a task.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.get() > 0
    }

    /// Marks the thread as busy.
    #[inline]
    pub(crate) fn begin(&self) {
        self.busy.set(1);
    }

    /// Marks the thread as no longer busy.
    #[inline]
    pub(crate) fn end(&self) {
        self.busy.set(0);
    }

    /// Counts a task that has ended in this way. Cancelled tasks are counted by the pool.
    #[inline]
    pub(super) fn count(&self, ran: Ran) {
        match ran {
            Ran::Returned => self.completed.add_own(1),
            Ran::Panicked => self.panicked.add_own(1),
            Ran::Cancelled => {}
        }
    }
}
