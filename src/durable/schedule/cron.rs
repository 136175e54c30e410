//! [`Cron`]: the times of a cron expression in a time zone.

use std::error::Error;
use std::fmt;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The times of a cron expression in a time zone, for a [schedule](crate::durable::DurableClient::schedule) that fires at
/// certain times of the day. [`Every`](crate::durable::Every) is simpler if only the interval matters.
///
/// This type needs the feature `cron`. Only executors that are compiled with this feature fire such a schedule; others leave it
/// to them.
///
/// An expression has five fields, separated by spaces: minute, hour, day of the month, month, and day of the week (0 or 7 is
/// Sunday). A field is `*`, a number, a range such as `1-5` or a list such as `1,15`, and may have a step, such as `*/10`. Months
/// and days of the week also have names (`JAN`, `MON`). `L` is the last day of the month, and `MON#2` is the second Monday. If
/// both the day of the month and the day of the week are restricted, a day that matches either of them is enough. An optional
/// sixth field, in front of the others, is the second.
///
/// The zone is a name from the IANA time zone database, such as `Europe/Berlin`, or `UTC`. The process that computes a time
/// uses the database of its system. With the feature `cron-bundled`, it uses one that is compiled into the program.
///
/// When clocks are set forward, a fixed time that is skipped fires right after the gap. When clocks are set back, a fixed time
/// that comes twice fires only the first time. An expression that fires in every hour or every minute, such as `*/20 * * * *`,
/// leaves out the times that are skipped, and fires at both occurrences of a time that comes twice.
///
/// # Examples
///
/// ```
/// use throng::durable::Cron;
///
/// # fn main() -> Result<(), throng::durable::ParseCronError> {
/// let nightly = Cron::parse("0 3 * * *", "Europe/Berlin")?;
/// let on_workdays = Cron::parse("30 8-17 * * MON-FRI", "America/New_York")?;
/// # drop((nightly, on_workdays));
///
/// let error = Cron::parse("0 25 * * *", "UTC").unwrap_err();
/// println!("{error}"); // the message names the remedy
/// assert!(Cron::parse("0 3 * * *", "Europe/Bielefeld").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    pub(crate) expression: String,
    pub(crate) zone: String,
}

impl Cron {
    /// Parses an expression, and looks its time zone up.
    ///
    /// # Errors
    ///
    /// The expression cannot be parsed, or the time zone is not known. The message names the remedy.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, ParseCronError> {
        // Expressions that differ only in spaces must be equal, or each would replace the definition of the other.
        let fields: Vec<_> = expression.split_whitespace().collect();
        let expression = fields.join(" ");
        CronTicks::new(&expression, zone).map_err(ParseCronError)?;
        Ok(Self {
            expression,
            zone: zone.to_owned(),
        })
    }
}

/// The error of [`Cron::parse`]. The message names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseCronError(String);

impl fmt::Display for ParseCronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ParseCronError {}

/// The ticks of a cron expression in a time zone.
#[derive(Debug)]
pub(crate) struct CronTicks {
    cron: croner::Cron,
    zone: TimeZone,
}

const MILLIS_PER_SECOND: i64 = 1_000;

impl CronTicks {
    /// Returns the ticks of an expression.
    ///
    /// # Errors
    ///
    /// The expression cannot be parsed, or the time zone is not known. Returns the reason, and the remedy.
    pub(crate) fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let cron = expression.parse::<croner::Cron>().map_err(|error| {
            format!("{expression:?} is not a cron expression ({error}): use five fields such as `0 3 * * *`")
        })?;
        let zone = TimeZone::get(zone).map_err(|error| {
            format!(
                "the time zone {zone:?} is not known ({error}): use a name such as `Europe/Berlin`, or enable the feature \
                 `cron-bundled` if the system has no time zone database"
            )
        })?;
        Ok(Self { cron, zone })
    }

    /// Returns the first tick after a time, in milliseconds since 1970.
    pub(crate) fn next_after(&self, time: u64) -> Option<u64> {
        let second = i64::try_from(time).ok()? / MILLIS_PER_SECOND;
        let next = self.next_after_second(second)?;
        u64::try_from(next.checked_mul(MILLIS_PER_SECOND)?).ok()
    }

    /// Returns the last tick up to a time, or `None` if there is none after `start`.
    ///
    /// This searches forwards, as for the next tick, so that both find the same ticks: where clocks are set, a search backwards
    /// may find other ones.
    pub(crate) fn last_until(&self, time: u64, start: u64) -> Option<u64> {
        let is_due = |second| {
            let next = self.next_after_second(second);
            next.filter(|&next| next <= to_second(time))
        };
        // There is a tick between `lower` and `time`, but none between `upper` and `time`.
        let (mut lower, mut upper) = (to_second(start), to_second(time));
        let mut tick = is_due(lower)?;
        while upper - lower > 1 {
            let middle = lower + (upper - lower) / 2;
            match is_due(middle) {
                Some(later) => (lower, tick) = (middle.max(lower), later),
                None => upper = middle,
            }
        }
        u64::try_from(tick * MILLIS_PER_SECOND).ok()
    }

    fn next_after_second(&self, second: i64) -> Option<i64> {
        let time: Zoned = Timestamp::from_second(second)
            .ok()?
            .to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&time, false).ok()?;
        Some(next.timestamp().as_second()).filter(|&next| next > second)
    }
}

fn to_second(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX) / MILLIS_PER_SECOND
}

#[cfg(test)]
mod tests;
