//! [`Cron`]: the times of a cron expression in a time zone.

use std::error::Error;
use std::fmt;

use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};

/// The times of a cron expression in a time zone, for a [schedule](crate::durable::DurableClient::schedule) that fires at
/// certain times of the day. [`Every`](crate::durable::Every) is simpler if only the interval matters.
///
/// This type needs the feature `cron`. Only executors that are compiled with this feature fire such a schedule; others leave it
/// to them.
///
/// An expression has five fields, separated by spaces: minute, hour, day of the month, month, and day of the week (0 or 7 is
/// Sunday). A field is `*`, a number, a range such as `1-5` or a list such as `1,15`, and may have a step, such as `*/10`. Months
/// and days of the week also have names (`JAN`, `MON`). `L` is the last day of the month, and `MON#2` is the second Monday. If both
/// the day of the month and the day of the week are restricted, a day that matches either of them is enough. An optional sixth
/// field, in front of the others, is for the second.
///
/// The zone is a name from the IANA time zone database, such as `Europe/Berlin`, or `UTC`. The process that computes a time uses
/// the database of its system. With the feature `cron-bundled`, a database is also compiled into the program, and is used if the
/// system has none.
///
/// When clocks are set forward, a time that is skipped fires right after the gap; several such times fire once. When clocks are set
/// back, a time that occurs twice fires only at its first occurrence. An expression whose hour begins with `*` behaves differently:
/// it does not fire for the times that are skipped, and it fires at both occurrences of a time that occurs twice.
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
    /// Parses an expression, and looks up its time zone.
    ///
    /// # Errors
    ///
    /// The expression cannot be parsed, or the time zone is not known. The message names the remedy.
    ///
    /// # Examples
    ///
    /// See [`Cron`].
    pub fn parse(expression: &str, zone: &str) -> Result<Self, ParseCronError> {
        // Expressions that differ only in spaces must be equal, or each would replace the definition of the other.
        let fields: Vec<_> = expression.split_whitespace().collect();
        let expression = fields.join(" ");
        let ticks = CronTicks::new(&expression, zone).map_err(ParseCronError)?;
        let zone = ticks.zone.iana_name().unwrap_or(zone).to_owned();
        Ok(Self { expression, zone })
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
///
/// A *local second* represents a local time of the zone, by the number of seconds from 1970 to that time if both are read as UTC.
/// The parser's crate evaluates the expression for local seconds only. This file then determines when a clock of the zone shows a
/// local second, so this file decides what happens when clocks are set.
#[derive(Debug)]
pub(crate) struct CronTicks {
    cron: croner::Cron,
    zone: TimeZone,
    /// `true` if the hour does not begin with `*`. Each local time then fires once, even if the clock shows it twice or never.
    is_fixed: bool,
}

/// The maximum length of an expression in bytes. It bounds the time in which the next tick is found.
const MAX_LEN: usize = 256;

/// A time in seconds that is longer than any by which a clock is set. In 2011, Samoa set its clocks forward by a day.
const MAX_CHANGE: i64 = 2 * 24 * 3600;

/// The number of ticks that [`last_until`](CronTicks::last_until) passes one by one before it starts a binary search.
const MAX_STEPS: usize = 8;

const MILLIS_PER_SECOND: i64 = 1_000;

impl CronTicks {
    /// Returns the ticks of an expression.
    ///
    /// # Errors
    ///
    /// The expression cannot be parsed, or the time zone is not known. Returns the reason, and the remedy.
    pub(crate) fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let cron = parse(expression)?;
        let zone = find_zone(zone)?;
        let fields: Vec<_> = expression.split_whitespace().collect();
        // The hour is the fourth field from the end.
        let hour = fields.iter().rev().nth(3);
        let is_fixed = hour.is_some_and(|hour| !hour.starts_with('*'));
        Ok(Self {
            cron,
            zone,
            is_fixed,
        })
    }

    /// Returns the first tick after a time, in milliseconds since 1970.
    pub(crate) fn next_after(&self, time: u64) -> Option<u64> {
        let second = i64::try_from(time).ok()? / MILLIS_PER_SECOND;
        let next = self.next_after_second(second)?;
        u64::try_from(next.checked_mul(MILLIS_PER_SECOND)?).ok()
    }

    /// Returns the last tick up to a time, or `None` if there is none after `start`.
    ///
    /// This searches forwards, as the search for the next tick does, so that both find the same ticks. When clocks are set, a
    /// search backwards could find different ones.
    pub(crate) fn last_until(&self, time: u64, start: u64) -> Option<u64> {
        let is_due = |second| {
            let next = self.next_after_second(second);
            next.filter(|&next| next <= to_second(time))
        };
        // There is a tick between `lower` and `time`, but none between `upper` and `time`.
        let (mut lower, mut upper) = (to_second(start), to_second(time));
        let mut tick = is_due(lower)?;
        // Each rare tick takes long to find, but there are few of them, so a binary search would take longer.
        for _ in 0..MAX_STEPS {
            match is_due(tick) {
                Some(later) => (lower, tick) = (tick, later),
                None => return u64::try_from(tick * MILLIS_PER_SECOND).ok(),
            }
        }
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
        let next = match self.is_fixed {
            true => self.next_fixed(second),
            false => self.next_running(second),
        };
        next.filter(|&next| next > second)
    }

    /// Returns the next second at which the schedule fires, if each local time fires once.
    fn next_fixed(&self, second: i64) -> Option<i64> {
        let mut passed = second + self.offset(second)?;
        let changes = self
            .zone
            .preceding(Timestamp::from_second(second + 1).ok()?);
        if let Some(change) = changes.map(|it| it.timestamp().as_second()).next() {
            // After a clock was set back, all local times that it had shown before have passed.
            passed = passed.max(change + self.offset(change - 1)? - 1);
        }
        self.first_showing(self.next_local(passed)?)
    }

    /// Returns the next second at which the schedule fires, if each local time fires whenever the clock shows it.
    fn next_running(&self, second: i64) -> Option<i64> {
        let (mut since, mut passed) = (second, second + self.offset(second)?);
        let mut local = self.next_local(passed)?;
        loop {
            let next = local - self.offset(since)?;
            let change = self.change_after(since)?;
            if change > next {
                return Some(next);
            }
            if change - since > MAX_CHANGE && local - passed > 4 * MAX_CHANGE {
                // No local second between `passed` and `local` fires, so the changes of the clock before `next` do not matter.
                (since, passed) = (next - 2 * MAX_CHANGE, local - MAX_CHANGE);
            } else {
                // The clock is set before `next`, so the search continues from the local time that the clock then shows.
                (since, passed) = (change, change + self.offset(change)? - 1);
                local = self.next_local(passed)?;
            }
        }
    }

    /// Returns the first time after a second at which the clock is set, or `i64::MAX` if it is never set again.
    fn change_after(&self, second: i64) -> Option<i64> {
        let mut changes = self.zone.following(Timestamp::from_second(second).ok()?);
        let change = changes.next();
        Some(change.map_or(i64::MAX, |it| it.timestamp().as_second()))
    }

    /// Returns the first second at which the clock shows a local time or a later one.
    fn first_showing(&self, local: i64) -> Option<i64> {
        let time = Timestamp::from_second(local).ok()?;
        let time = TimeZone::UTC.to_datetime(time);
        match self.zone.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } => Some(local - i64::from(offset.seconds())),
            AmbiguousOffset::Fold { before, .. } => Some(local - i64::from(before.seconds())),
            AmbiguousOffset::Gap { after, .. } => {
                let before_gap = Timestamp::from_second(local - i64::from(after.seconds())).ok()?;
                let gap = self.zone.following(before_gap).next()?;
                Some(gap.timestamp().as_second())
            }
        }
    }

    /// Returns the first local second after `local` that matches the expression.
    fn next_local(&self, local: i64) -> Option<i64> {
        let time: Zoned = Timestamp::from_second(local).ok()?.to_zoned(TimeZone::UTC);
        let next = self.cron.find_next_occurrence(&time, false).ok()?;
        Some(next.timestamp().as_second()).filter(|&next| next > local)
    }

    /// Returns how far local time is ahead of UTC, in seconds.
    fn offset(&self, second: i64) -> Option<i64> {
        let time = Timestamp::from_second(second).ok()?;
        Some(self.zone.to_offset(time).seconds().into())
    }
}

/// Parses an expression of five or six fields.
///
/// # Errors
///
/// The expression is invalid. Returns the reason, and the remedy.
fn parse(expression: &str) -> Result<croner::Cron, String> {
    let use_fields = "use five fields such as `0 3 * * *`";
    if expression.len() > MAX_LEN {
        return Err(format!(
            "the cron expression is longer than {MAX_LEN} bytes: {use_fields}"
        ));
    }
    let fields: Vec<_> = expression.split_whitespace().rev().collect();
    let mut allowed = ALLOWED.iter().zip(&fields);
    let are_allowed = allowed.all(|(allowed, field)| is_field(field, allowed));
    if !(5..=6).contains(&fields.len()) || !are_allowed {
        return Err(format!(
            "{expression:?} is not a cron expression: {use_fields}"
        ));
    }
    expression
        .parse()
        .map_err(|error: croner::errors::CronError| {
            format!("{expression:?} is not a cron expression ({error}): {use_fields}")
        })
}

/// The characters that each field may contain, the last field first, besides those of numbers, ranges, lists and steps. The parser
/// would accept more, but it takes seconds to find the next tick of some of these expressions.
const ALLOWED: [&str; 6] = [
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ#",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "L",
    "",
    "",
    "",
];

fn is_field(field: &str, allowed: &str) -> bool {
    let is_allowed = |char: char| {
        char.is_ascii_digit()
            || "*/,-".contains(char)
            || allowed.contains(char.to_ascii_uppercase())
    };
    field.split(',').all(|item| !item.is_empty()) && field.chars().all(is_allowed)
}

/// Returns the time zone with this name.
///
/// # Errors
///
/// No time zone with this name is known. Returns the reason, and the remedy.
fn find_zone(name: &str) -> Result<TimeZone, String> {
    let unknown = |reason: &str| {
        format!(
            "the time zone {name:?} is not known{reason}: use a name such as `Europe/Berlin`, or enable the feature `cron-bundled` if \
             the system has no time zone database"
        )
    };
    let zone = TimeZone::get(name).map_err(|error| unknown(&format!(" ({error})")))?;
    match zone.is_unknown() {
        true => Err(unknown("")),
        false => Ok(zone),
    }
}

fn to_second(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX) / MILLIS_PER_SECOND
}

#[cfg(test)]
mod tests;
