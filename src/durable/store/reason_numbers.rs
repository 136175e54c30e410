//! The numbers by which the stores in SQL databases store the reasons of dead letters.

use super::DeadReason;

const REASONS: [DeadReason; 6] = [
    DeadReason::Fatal,
    DeadReason::Attempts,
    DeadReason::Crashes,
    DeadReason::Unreadable,
    DeadReason::OutputTooLarge,
    DeadReason::Damaged,
];

pub(crate) fn reason_number(reason: DeadReason) -> i16 {
    let number = REASONS.iter().position(|&other| other == reason);
    number.unwrap_or_default() as i16
}

/// Returns the reason with a number. A reason that a later version of the crate has written reads as `Fatal`.
pub(crate) fn reason(number: i64) -> DeadReason {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    *REASONS.get(number).unwrap_or(&DeadReason::Fatal)
}
