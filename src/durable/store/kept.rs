//! [`Limits`]: the time for which the stores in SQL databases keep ended tasks, and their number.

use std::time::Duration;

use crate::durable::Retention;
use crate::durable::clock::millis;

/// The columns of the row about the whole store, in the order of [`Limits::numbers`].
#[cfg(feature = "sqlite-unbundled")]
pub(crate) const COLUMNS: [&str; 4] = ["dead_for", "dead_most", "kept_most", "dead_since"];

/// The value of `kept_most` if there is no maximum.
const NO_MAXIMUM: i64 = 1 << 62;

/// The time for which ended tasks are kept, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The time for which dead letters are kept, in milliseconds.
    dead_for: i64,
    dead_most: i64,
    kept_most: i64,
    /// The time of death before which dead letters have expired in any case. So none comes back if they are kept for longer.
    dead_since: i64,
}

/// The times up to which ended tasks have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The store time, up to which the retention of ended tasks is over, except for dead letters.
    pub(crate) store_time: i64,
    /// The time of death up to which dead letters have expired.
    pub(crate) dead_until: i64,
    /// The time for which dead letters are kept.
    pub(crate) dead_for: i64,
}

impl Limits {
    pub(crate) fn of_numbers([dead_for, dead_most, kept_most, dead_since]: [i64; 4]) -> Self {
        Self {
            dead_for,
            dead_most,
            kept_most,
            dead_since,
        }
    }

    pub(crate) fn numbers(&self) -> [i64; 4] {
        [
            self.dead_for,
            self.dead_most,
            self.kept_most,
            self.dead_since,
        ]
    }

    /// Returns the default value of a column, or `None` if it is another one.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn default_of(column: &str) -> Option<i64> {
        let index = COLUMNS.iter().position(|it| *it == column)?;
        Some(Self::of(Retention::default(), 0).numbers()[index])
    }

    pub(crate) fn of(retention: Retention, dead_since: i64) -> Self {
        Self {
            dead_for: millis(retention.dead_for) as i64,
            dead_most: retention.dead_most as i64,
            kept_most: retention.kept_most.map_or(NO_MAXIMUM, |most| most as i64),
            dead_since,
        }
    }

    /// Applies another retention from this store time on.
    pub(crate) fn change(&mut self, retention: Retention, store_time: i64) {
        let kept_since = self.expiry(store_time).dead_until + 1;
        *self = Self::of(retention, kept_since.max(0));
    }

    pub(crate) fn retention(&self) -> Retention {
        let kept_most = (self.kept_most < NO_MAXIMUM).then_some(self.kept_most as u64);
        Retention::default()
            .dead_for(Duration::from_millis(self.dead_for as u64))
            .dead_most(self.dead_most as u64)
            .kept_most(kept_most)
    }

    pub(crate) fn expiry(&self, store_time: i64) -> Expiry {
        let before = self.dead_since.saturating_sub(1);
        Expiry {
            store_time,
            dead_until: before.max(store_time.saturating_sub(self.dead_for)),
            dead_for: self.dead_for,
        }
    }
}

impl Expiry {
    /// Returns the time for which a dead letter with this time of death is still kept.
    pub(crate) fn left_of_dead(&self, died: i64) -> Duration {
        let until = died.saturating_add(self.dead_for);
        duration(until.saturating_sub(self.store_time))
    }

    /// Returns the time since a task has ended that is not a dead letter, given the end of its retention, and the retention in
    /// milliseconds.
    pub(crate) fn age_of_end(&self, until: i64, retention: i64) -> Duration {
        let ended = until.saturating_sub(retention);
        duration(self.store_time.saturating_sub(ended))
    }

    /// Returns the time since this time of death.
    pub(crate) fn age_of_dead(&self, died: i64) -> Duration {
        duration(self.store_time.saturating_sub(died))
    }
}

/// Returns a time in milliseconds, or zero if it is negative.
fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
