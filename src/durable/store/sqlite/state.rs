//! The states of tasks, as numbers in the file.

use crate::durable::store::kept::Expiry;

/// The state of a task. The numbers are those of the column `now` of the view `throng_now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting = 0,
    Delayed = 1,
    Running = 2,
    Done = 3,
    Dead = 4,
    Cancelled = 5,
}

/// The column `state` of `throng_task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredState {
    /// The task waits or runs. It waits if it is in `throng_ready`; otherwise a claim holds it.
    Active = 0,
    Delayed = 1,
    Done = 3,
    Dead = 4,
    Cancelled = 5,
}

impl State {
    /// Reads the column `now` of the view `throng_now`.
    pub(super) fn of(number: i64) -> Result<Self, rusqlite::Error> {
        let states = [
            Self::Waiting,
            Self::Delayed,
            Self::Running,
            Self::Done,
            Self::Dead,
            Self::Cancelled,
        ];
        let state = usize::try_from(number).ok().and_then(|i| states.get(i));
        state
            .copied()
            .ok_or(rusqlite::Error::IntegralValueOutOfRange(0, number))
    }

    /// Returns the column `state` of a task in this state.
    pub(super) fn stored(self) -> StoredState {
        match self {
            Self::Waiting | Self::Running => StoredState::Active,
            Self::Delayed => StoredState::Delayed,
            Self::Done => StoredState::Done,
            Self::Dead => StoredState::Dead,
            Self::Cancelled => StoredState::Cancelled,
        }
    }

    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
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
