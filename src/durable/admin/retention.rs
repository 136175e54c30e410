//! [`Retention`]: how long, and how many, ended tasks a store keeps.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::json;
use crate::durable::store::{DEAD_LETTER_RETENTION, MAX_DEAD_LETTERS};

/// The time for which dead letters can be kept. Those who wait for a task need some time to learn that it has failed.
const DEAD_FOR: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(100 * 365 * 24 * 3600);
/// The largest valid number of dead letters, and of ends that are kept.
const MAX_NUMBER: u64 = 1_000_000_000_000;

/// The limits on the ended tasks that a store keeps: see [`Admin::set_retention`](crate::durable::Admin::set_retention).
///
/// The [spawn](crate::durable::SpawnOptions::retention) of a task determines the time for which its end is kept, unless it is a dead
/// letter.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use throng::durable::Retention;
///
/// let week = Duration::from_secs(7 * 24 * 3600);
/// let retention = Retention::default().dead_for(week).kept_most(100_000);
/// assert_eq!(retention.dead_most, 10_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retention {
    /// The time for which a dead letter is kept, in whole milliseconds: 30 days by default, at least a second, and at most 100 years. A
    /// dead letter that is older does not exist for any request.
    #[serde(serialize_with = "json::millis")]
    pub dead_for: Duration,
    /// The maximum number of dead letters: 10,000 by default. Maintenance removes the oldest ones in excess, so there may be more for a
    /// while. If it is zero, it removes all of them.
    pub dead_most: u64,
    /// The maximum number of tasks that have succeeded or were cancelled whose ends are kept, or `None`, the default, if there is none.
    /// Maintenance removes those in excess that expire first, so there may be more for a while.
    pub kept_most: Option<u64>,
}

impl Retention {
    /// Sets the time for which dead letters are [kept](Self::dead_for).
    ///
    /// # Examples
    ///
    /// See [`Retention`].
    #[must_use]
    pub fn dead_for(mut self, time: Duration) -> Self {
        self.dead_for = time;
        self
    }

    /// Sets the [maximum number of dead letters](Self::dead_most).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::Retention;
    ///
    /// let retention = Retention::default().dead_most(100_000);
    /// assert_eq!(retention.dead_most, 100_000);
    /// ```
    #[must_use]
    pub fn dead_most(mut self, number: u64) -> Self {
        self.dead_most = number;
        self
    }

    /// Sets the [maximum number of other ends](Self::kept_most) that are kept. `None` removes the maximum.
    ///
    /// # Examples
    ///
    /// See [`Retention`].
    #[must_use]
    pub fn kept_most(mut self, number: impl Into<Option<u64>>) -> Self {
        self.kept_most = number.into();
        self
    }

    /// Returns an error message if no store can have this retention.
    pub(super) fn check(&self) -> Result<(), String> {
        if !DEAD_FOR.contains(&self.dead_for) {
            return Err(format!(
                "the time for which dead letters are kept is {:?}: set `dead_for` to a second to 100 years (`dead_most(0)` keeps none)",
                self.dead_for
            ));
        }
        let numbers = [
            ("dead_most", Some(self.dead_most)),
            ("kept_most", self.kept_most),
        ];
        for (option, number) in numbers {
            if let Some(number) = number.filter(|number| *number > MAX_NUMBER) {
                return Err(format!(
                    "the maximum number is {number}: set `{option}` to at most {MAX_NUMBER}"
                ));
            }
        }
        Ok(())
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            dead_for: DEAD_LETTER_RETENTION,
            dead_most: MAX_DEAD_LETTERS,
            kept_most: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_have_limits() {
        let base = Retention::default;
        let year = Duration::from_secs(365 * 24 * 3600);
        for valid in [
            base(),
            base().dead_for(Duration::from_secs(1)).dead_most(0),
            base().dead_for(100 * year).dead_most(MAX_NUMBER),
            base().kept_most(0),
            base().kept_most(MAX_NUMBER).kept_most(None),
        ] {
            assert_eq!(valid.check(), Ok(()), "{valid:?}");
        }
        for (invalid, remedy) in [
            (base().dead_for(Duration::ZERO), "`dead_most(0)`"),
            (base().dead_for(Duration::from_millis(999)), "a second"),
            (base().dead_for(101 * year), "100 years"),
            (base().dead_for(Duration::MAX), "100 years"),
            (base().dead_most(MAX_NUMBER + 1), "`dead_most` to at most"),
            (base().kept_most(u64::MAX), "`kept_most` to at most"),
        ] {
            let error = invalid.check().unwrap_err();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
