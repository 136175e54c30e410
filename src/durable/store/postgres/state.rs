//! The states of tasks, as numbers in the tables.

use super::error::Fault;
use crate::durable::store::kept::Expiry;

/// The state of a task. The numbers are those of the column `now` of the view `task_now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting = 0,
    Delayed = 1,
    Running = 2,
    Done = 3,
    Dead = 4,
    Cancelled = 5,
}

impl State {
    /// Reads the column `now` of the view `task_now`.
    pub(super) fn of(number: i16) -> Result<Self, Fault> {
        match number {
            0 => Ok(Self::Waiting),
            1 => Ok(Self::Delayed),
            2 => Ok(Self::Running),
            3 => Ok(Self::Done),
            4 => Ok(Self::Dead),
            5 => Ok(Self::Cancelled),
            other => Err(Fault::Corrupt(format!("a task has the state {other}"))),
        }
    }

    /// Returns the column `state` of a task in this state. A task that runs is active, as one that waits.
    pub(super) fn stored(self) -> i16 {
        match self {
            Self::Running => Self::Waiting as i16,
            other => other as i16,
        }
    }

    /// Returns `true` if the retention of an ended task with this `at` is over.
    pub(super) fn is_expired(self, at: Option<i64>, expiry: Expiry) -> bool {
        match self {
            Self::Waiting | Self::Delayed | Self::Running => false,
            Self::Done | Self::Cancelled => at.is_some_and(|at| at <= expiry.store_time),
            Self::Dead => at.is_some_and(|at| at <= expiry.dead_until),
        }
    }
}
