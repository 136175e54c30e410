//! Numbers for the states of tasks, and for the reasons of dead letters.

use crate::durable::clock::millis;
use crate::durable::store::{DEAD_LETTER_RETENTION, DeadReason};

/// What has become of a task, as a number.
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

    pub(super) fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }

    /// Returns `true` if an end whose row has this `at` is kept no longer at this store time.
    pub(super) fn is_over(self, at: Option<i64>, time: i64) -> bool {
        match self {
            Self::Waiting | Self::Delayed | Self::Running => false,
            Self::Done | Self::Cancelled => at.is_some_and(|at| at <= time),
            Self::Dead => at.is_some_and(|at| at <= dead_before(time)),
        }
    }
}

/// Dead letters that are one since then, or earlier, are kept no longer.
pub(super) fn dead_before(time: i64) -> i64 {
    time - millis(DEAD_LETTER_RETENTION) as i64
}

const REASONS: [DeadReason; 6] = [
    DeadReason::Fatal,
    DeadReason::Attempts,
    DeadReason::Crashes,
    DeadReason::Unreadable,
    DeadReason::OutputTooLarge,
    DeadReason::Damaged,
];

pub(super) fn reason_number(reason: DeadReason) -> i64 {
    let number = REASONS.iter().position(|&other| other == reason);
    number.unwrap_or_default() as i64
}

/// The reason with that number; one that a later version has written is unknown to this one.
pub(super) fn reason(number: i64) -> DeadReason {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    *REASONS.get(number).unwrap_or(&DeadReason::Fatal)
}
