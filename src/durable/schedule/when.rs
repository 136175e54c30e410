//! [`When`]: the times at which a schedule fires.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "cron")]
use super::cron::{Cron, CronTicks};
use super::every::{Every, RegularTicks};

/// The times at which a schedule fires: an [`Every`] or, with the feature `cron`, a `Cron`. Both convert into this type, so it is
/// rarely named.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use throng::durable::{Every, When};
///
/// let when: When = Every::new(Duration::from_secs(300)).into();
/// assert_eq!(when, Every::new(Duration::from_secs(300)).into());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When(Timetable);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Timetable {
    Every(Every),
    #[cfg(feature = "cron")]
    Cron(Cron),
}

impl From<Every> for When {
    fn from(every: Every) -> Self {
        Self(Timetable::Every(every))
    }
}

#[cfg(feature = "cron")]
impl From<Cron> for When {
    fn from(cron: Cron) -> Self {
        Self(Timetable::Cron(cron))
    }
}

impl When {
    /// Returns the times as they are stored.
    ///
    /// # Errors
    ///
    /// The times are invalid. Returns the reason, and the remedy.
    pub(crate) fn spec(&self) -> Result<Spec, String> {
        match &self.0 {
            Timetable::Every(every) => every.ticks().map(Spec::Every),
            #[cfg(feature = "cron")]
            Timetable::Cron(cron) => Ok(Spec::Cron {
                expression: cron.expression.clone(),
                zone: cron.zone.clone(),
            }),
        }
    }
}

/// The times at which a schedule fires, as they are stored. Every build can read all variants, but some need a feature to compute
/// their [`Ticks`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spec {
    Every(RegularTicks),
    Cron { expression: String, zone: String },
}

/// The bit of builds that compute the ticks of [`Every`]. A schedule *needs* one such bit, and the store hands it
/// only to workers whose build has that bit.
pub const COMPUTES_EVERY: u8 = 1;
/// The bit of builds that compute the ticks of cron expressions.
pub const COMPUTES_CRON: u8 = 2;
/// The bits of this build.
pub const COMPUTES: u8 = match cfg!(feature = "cron") {
    true => COMPUTES_EVERY | COMPUTES_CRON,
    false => COMPUTES_EVERY,
};

impl Spec {
    /// Returns the bit of the builds that compute these ticks.
    pub(crate) fn needs(&self) -> u8 {
        match self {
            Self::Every(_) => COMPUTES_EVERY,
            Self::Cron { .. } => COMPUTES_CRON,
        }
    }

    /// Returns the ticks.
    ///
    /// # Errors
    ///
    /// This build or this machine cannot compute them. Returns the reason, and the remedy.
    pub(crate) fn ticks(&self) -> Result<Ticks, String> {
        match self {
            Self::Every(ticks) => Ok(Ticks::Every(*ticks)),
            #[cfg(feature = "cron")]
            Self::Cron { expression, zone } => {
                let ticks = CronTicks::new(expression, zone);
                ticks.map(|ticks| Ticks::Cron(Box::new(ticks)))
            }
            #[cfg(not(feature = "cron"))]
            Self::Cron { .. } => Err(String::from(
                "this build cannot compute the times of a cron expression: enable the feature `cron`",
            )),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(ticks) => write_period(f, ticks.period()),
            Self::Cron { expression, zone } => write!(f, "{expression} {zone}"),
        }
    }
}

/// Writes a number of milliseconds in the longest unit that divides it: `every day`, `every 90 seconds`.
fn write_period(f: &mut fmt::Formatter<'_>, millis: u64) -> fmt::Result {
    const UNITS: [(u64, &str); 4] = [
        (24 * 60 * 60 * 1000, "day"),
        (60 * 60 * 1000, "hour"),
        (60 * 1000, "minute"),
        (1000, "second"),
    ];
    let unit = UNITS.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    match unit.map(|(unit, name)| (millis / unit, name)) {
        Some((1, name)) => write!(f, "every {name}"),
        Some((number, name)) => write!(f, "every {number} {name}s"),
        None => write!(f, "every {:?}", Duration::from_millis(millis)),
    }
}

/// The ticks of a schedule, in milliseconds since 1970.
#[derive(Debug)]
pub(crate) enum Ticks {
    Every(RegularTicks),
    #[cfg(feature = "cron")]
    Cron(Box<CronTicks>),
}

/// The latest possible tick: about 4,460 years after 1970. Redis stores the time at which a schedule is handed out in six bytes,
/// which also have room for the jitter.
pub(crate) const MAX_TICK: u64 = 1 << 47;

impl Ticks {
    /// Returns the first tick after a time, or `None` if none is known.
    pub(crate) fn next_after(&self, time: u64) -> Option<u64> {
        let next = match self {
            Self::Every(ticks) => ticks.next_after(time),
            #[cfg(feature = "cron")]
            Self::Cron(ticks) => ticks.next_after(time),
        };
        next.filter(|&next| next > time && next <= MAX_TICK)
    }

    /// Returns the last tick up to `time`, or `None` if there is none after `start`.
    pub(crate) fn last_until(&self, time: u64, start: u64) -> Option<u64> {
        let last = match self {
            Self::Every(ticks) => ticks.last_until(time),
            #[cfg(feature = "cron")]
            Self::Cron(ticks) => ticks.last_until(time, start),
        };
        last.filter(|&last| last > start)
    }
}
