//! [`RunTotals`]: the numbers of runs in a period of time.

use std::time::Duration;

use serde::Serialize;

use super::json;

/// The numbers of runs in a period of time.
///
/// A run counts as started when it starts, and by its outcome when it ends. A run that [snoozes](crate::durable::TaskError::snooze), ends
/// to [wait](crate::durable::TaskContext::sleep), is given back by its worker, or ends with its process counts only as started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct RunTotals {
    /// Runs that have started.
    pub started: u64,
    /// Runs that have succeeded.
    pub done: u64,
    /// Runs that have failed, after which the task is tried again.
    pub retried: u64,
    /// Runs that have failed, after which the task is a dead letter.
    pub died: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// The total duration of the runs in `done`, `retried`, `died` and `cancelled`.
    #[serde(serialize_with = "json::millis")]
    pub run_time: Duration,
}

impl RunTotals {
    for_stores! {
        /// Adds other runs.
        fn add(&mut self, other: Self) {
            for (number, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
                *number = number.saturating_add(more);
            }
            self.run_time = self.run_time.saturating_add(other.run_time);
        }

        /// Returns the numbers in the order of the fields.
        fn numbers(&self) -> [u64; 5] {
            let Self {
                started,
                done,
                retried,
                died,
                cancelled,
                ..
            } = *self;
            [started, done, retried, died, cancelled]
        }
    }

    fn numbers_mut(&mut self) -> [&mut u64; 5] {
        [
            &mut self.started,
            &mut self.done,
            &mut self.retried,
            &mut self.died,
            &mut self.cancelled,
        ]
    }

    for_stores! {
        /// Returns totals with these numbers, in the order of the fields.
        #[cfg(any(
            test,
            feature = "redis",
            feature = "postgres",
            feature = "sqlite-unbundled",
            feature = "unstable-store"
        ))]
        fn of(numbers: [u64; 5], run_time: Duration) -> Self {
            let [started, done, retried, died, cancelled] = numbers;
            Self {
                started,
                done,
                retried,
                died,
                cancelled,
                run_time,
            }
        }
    }
}
