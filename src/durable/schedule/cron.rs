//! [`Cron`]: fires at the times of a cron expression in a time zone.

use std::error::Error;
use std::fmt;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The times of a cron expression in a time zone: see [`DurableClient::schedule`](crate::durable::DurableClient::schedule).
/// This needs the feature `cron`.
///
/// An expression has five fields, separated by spaces: minute, hour, day of the month, month, and day of the week (0 or 7 is
/// Sunday). A field is `*`, a number, a range such as `1-5`, a list such as `1,15`, or has a step such as `*/10`. Months and
/// days of the week also have names (`JAN`, `MON`). `L` is the last day of the month, and `MON#2` the second Monday. If both
/// days are restricted, a day that matches one of them is enough. A sixth field, before the others, is the second.
///
/// The zone is a name of the IANA time zone database, such as `Europe/Berlin`, or `UTC`. The rules are those of the system of
/// the process that computes a time; with the feature `cron-bundled`, they are compiled into the program.
///
/// When clocks are set forward, a fixed time that is skipped fires right after the gap. When they are set back, a fixed time
/// that comes twice fires once, the first time. An expression that fires in each hour or each minute, such as `*/20 * * * *`,
/// follows real time in both cases.
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
/// println!("{error}"); // it names the remedy
/// assert!(Cron::parse("0 3 * * *", "Europe/Bielefeld").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    pub(crate) expression: String,
    pub(crate) zone: String,
}

impl Cron {
    /// Parses an expression, and finds its zone.
    ///
    /// # Errors
    ///
    /// The expression cannot be parsed, or the zone is not known.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, ParseCronError> {
        // Spaces do not matter, so they must not make another definition.
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
    /// The expression cannot be parsed, or the zone is not known. Returns the reason, and the remedy.
    pub(crate) fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let cron = expression.parse::<croner::Cron>().map_err(|error| {
            format!("{expression:?} is not a cron expression ({error}): use five fields such as `0 3 * * *`")
        })?;
        let zone = TimeZone::get(zone).map_err(|error| {
            format!(
                "the time zone {zone:?} is not known ({error}): use a name such as `Europe/Berlin`, and the feature `cron-bundled` \
                 if the system has no time zone database"
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
    /// It is found by the same computation as the other ticks, so it is one of them: a search into the past may have other
    /// results where clocks are set.
    pub(crate) fn last_until(&self, time: u64, start: u64) -> Option<u64> {
        let is_due = |second| {
            let next = self.next_after_second(second);
            next.filter(|&next| next <= to_second(time))
        };
        // A tick is after the lower second and up to the time. This is not so for the upper one.
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
