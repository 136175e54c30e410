//! [`Every`]: times at regular intervals.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::durable::clock::millis;

/// Times at regular intervals, for a [schedule](crate::durable::DurableClient::schedule) that fires once in each period.
///
/// The times are the [`anchor`](Self::anchor), and all times before and after it whose distance is a multiple of the period. So
/// every process computes the same times, and a restart does not shift them. By default, the anchor is the beginning of 1970 in
/// UTC. With a period of five minutes, a schedule then fires at 12:00, at 12:05, and so on.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use throng::durable::Every;
///
/// let hourly = Every::new(Duration::from_secs(3600));
/// let at_half_past = hourly.anchor(SystemTime::UNIX_EPOCH + Duration::from_secs(1800));
/// assert_ne!(hourly, at_half_past);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    period: Duration,
    anchor: SystemTime,
}

impl Every {
    /// Returns the times with this period. Fractions of a millisecond are ignored. If the period is shorter than a second,
    /// [`schedule`](crate::durable::DurableClient::schedule) fails.
    ///
    /// # Examples
    ///
    /// See [`Every`].
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            anchor: UNIX_EPOCH,
        }
    }

    /// Sets one of the times at which the schedule fires, which determines all others. It may be in the past or in the future, and
    /// the schedule also fires before it. The default is the beginning of 1970 in UTC.
    ///
    /// # Examples
    ///
    /// See [`Every`].
    #[must_use]
    pub fn anchor(mut self, anchor: SystemTime) -> Self {
        self.anchor = anchor;
        self
    }

    /// Returns the ticks.
    ///
    /// # Errors
    ///
    /// The period is too short. Returns the remedy.
    pub(crate) fn ticks(&self) -> Result<RegularTicks, String> {
        let period = millis(self.period);
        if period < MIN_PERIOD {
            return Err(format!(
                "a period of {:?} is too short for a schedule: use at least one second",
                self.period
            ));
        }
        let phase = match self.anchor.duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after) % period,
            Err(before) => (period - millis(before.duration()) % period) % period,
        };
        Ok(RegularTicks { period, phase })
    }
}

/// The minimum period in milliseconds.
const MIN_PERIOD: u64 = 1_000;

/// Ticks at regular intervals: `phase` plus each multiple of `period`, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegularTicks {
    period: u64,
    phase: u64,
}

impl RegularTicks {
    pub(crate) fn period(&self) -> u64 {
        self.period
    }

    /// Returns the first tick after a time, or `None` if the number of that tick would be too large.
    pub(crate) fn next_after(&self, time: u64) -> Option<u64> {
        match time.checked_sub(self.phase) {
            None => Some(self.phase),
            Some(since) => (since / self.period + 1)
                .checked_mul(self.period)?
                .checked_add(self.phase),
        }
    }

    /// Returns the last tick up to a time, or `None` if there is none.
    pub(crate) fn last_until(&self, time: u64) -> Option<u64> {
        let since = time.checked_sub(self.phase)?;
        Some(self.phase + since / self.period * self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(period: u64, anchor: i64) -> RegularTicks {
        let distance = Duration::from_secs(anchor.unsigned_abs());
        let anchor = match anchor {
            0.. => UNIX_EPOCH + distance,
            _ => UNIX_EPOCH - distance,
        };
        let every = Every::new(Duration::from_secs(period)).anchor(anchor);
        every.ticks().unwrap()
    }

    #[test]
    fn ticks_are_whole_periods_from_the_anchor() {
        for (anchor, phase) in [(0, 0), (70, 10_000), (-70, 50_000), (-60, 0), (10, 10_000)] {
            let ticks = ticks(60, anchor);
            assert_eq!(
                ticks.next_after(600_000),
                Some(600_000 + if phase == 0 { 60_000 } else { phase })
            );
            assert_eq!(ticks.last_until(600_000 + phase), Some(600_000 + phase));
            assert_eq!(ticks.last_until(659_999 + phase), Some(600_000 + phase));
            assert_eq!(ticks.next_after(659_999 + phase), Some(660_000 + phase));
        }
    }

    #[test]
    fn there_is_no_tick_before_the_first_one() {
        let ticks = ticks(60, 10);
        assert_eq!(ticks.last_until(9_999), None);
        assert_eq!(ticks.next_after(0), Some(10_000));
        assert_eq!(ticks.next_after(u64::MAX), None);
    }

    #[test]
    fn a_period_below_a_second_is_refused() {
        for period in [Duration::ZERO, Duration::from_millis(999)] {
            assert!(Every::new(period).ticks().is_err());
        }
        assert!(Every::new(Duration::from_secs(1)).ticks().is_ok());
    }
}
