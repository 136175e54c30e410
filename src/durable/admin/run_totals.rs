//! [`RunTotals`]: the numbers of runs in a period.

use std::time::Duration;

use serde::Serialize;

use super::json;

/// The numbers of runs in a period.
///
/// A run counts as started in the minute in which it starts, and by its outcome in the minute in which it ends. Runs that ended because
/// their tasks asked to run again later, or were given back, have only started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunTotals {
    /// Runs that have started.
    pub started: u64,
    /// Runs that have succeeded.
    pub done: u64,
    /// Runs that have failed, and whose tasks are tried again.
    pub retried: u64,
    /// Runs that have made their task a dead letter.
    pub died: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// The sum of the times that these ended runs took: those in `done`, `retried`, `died` and `cancelled`.
    #[serde(serialize_with = "json::millis")]
    pub run_time: Duration,
}

impl RunTotals {
    pub(crate) fn add(&mut self, other: Self) {
        for (number, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *number = number.saturating_add(more);
        }
        self.run_time = self.run_time.saturating_add(other.run_time);
    }

    /// Returns the numbers in the order of the fields.
    pub(crate) fn numbers(&self) -> [u64; 5] {
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

    fn numbers_mut(&mut self) -> [&mut u64; 5] {
        [
            &mut self.started,
            &mut self.done,
            &mut self.retried,
            &mut self.died,
            &mut self.cancelled,
        ]
    }

    /// Returns the counts with these numbers, in the order of the fields.
    #[cfg(any(test, feature = "redis", feature = "sqlite-unbundled"))]
    pub(crate) fn of(numbers: [u64; 5], run_time: Duration) -> Self {
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
