//! [`Stats`]: how many runs have started and ended, by type and time.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::json;
use crate::durable::clock::time_of;
use crate::durable::engine::Engine;
use crate::durable::store::{ReadStats, Resolution, StatsPage, StatsStart};
use crate::durable::{DurableError, RunTotals};

/// Selects statistics: see [`Admin::stats`](crate::durable::Admin::stats). All times are by the clock of the store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::StatsFilter;
///
/// let filter = StatsFilter::by_minute().last(Duration::from_secs(3600)).name("mail.send");
/// assert_ne!(filter, StatsFilter::by_minute());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsFilter(pub(crate) ReadStats);

/// A page of statistics: see [`Admin::stats`](crate::durable::Admin::stats).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The current time, by the clock of the store.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
    /// The statistics, in the order of times, then of names, then of queues. A type without runs in a minute or hour has no row for it.
    pub rows: Vec<TypeStats>,
    /// The time at which the next page begins, or `None` if this is the last page. Pass it to [`StatsFilter::from`].
    #[serde(serialize_with = "json::optional_since_1970")]
    pub next: Option<SystemTime>,
    /// The partitions that do not answer. Their part of the statistics is missing. See
    /// [`Overview::missing_partitions`](crate::durable::Overview::missing_partitions).
    pub missing_partitions: Vec<usize>,
}

/// The runs of a type of tasks in a queue, in one minute or hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TypeStats {
    /// The time at which the minute or hour begins.
    #[serde(serialize_with = "json::since_1970")]
    pub start: SystemTime,
    /// The [name](crate::durable::DurableTask::NAME) of the type. It is `None` in the row that counts all other types together: those
    /// beyond the first 256 of the minute or hour, and those with names of more than 255 bytes.
    pub name: Option<String>,
    /// The [queue](crate::durable::Queue). It is `None` for the default queue, and in the row of all other types.
    pub queue: Option<String>,
    /// The numbers of runs.
    pub runs: RunTotals,
}

impl StatsFilter {
    /// Selects the statistics by minute, of all types, of the last 24 hours.
    ///
    /// # Examples
    ///
    /// See [`StatsFilter`].
    pub fn by_minute() -> Self {
        Self::new(Resolution::Minute)
    }

    /// Selects the statistics by hour, of all types, of the last 30 days.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use throng::durable::StatsFilter;
    ///
    /// // Selects the week that began two weeks ago.
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// let from = SystemTime::now() - 2 * week;
    /// let filter = StatsFilter::by_hour().from(from).until(from + week);
    /// # drop(filter);
    /// ```
    pub fn by_hour() -> Self {
        Self::new(Resolution::Hour)
    }

    fn new(resolution: Resolution) -> Self {
        Self(ReadStats {
            resolution,
            start: StatsStart::First,
            until: None,
            name: None,
        })
    }

    /// Selects only minutes or hours that began within this time before now. This replaces [`from`](Self::from).
    ///
    /// # Examples
    ///
    /// See [`StatsFilter`].
    #[must_use]
    pub fn last(mut self, time: Duration) -> Self {
        self.0.start = StatsStart::Last(time);
        self
    }

    /// Selects only minutes or hours that begin at this time or later. This replaces [`last`](Self::last).
    ///
    /// # Examples
    ///
    /// See [`Admin::stats`](crate::durable::Admin::stats).
    #[must_use]
    pub fn from(mut self, time: SystemTime) -> Self {
        self.0.start = StatsStart::At(since_1970(time));
        self
    }

    /// Selects only minutes or hours that begin before this time.
    ///
    /// # Examples
    ///
    /// See [`by_hour`](Self::by_hour).
    #[must_use]
    pub fn until(mut self, time: SystemTime) -> Self {
        self.0.until = Some(since_1970(time));
        self
    }

    /// Selects only the type with this name, in all queues.
    ///
    /// # Examples
    ///
    /// See [`StatsFilter`].
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = Some(name.into());
        self
    }
}

fn since_1970(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns a page of statistics: see [`Admin::stats`](crate::durable::Admin::stats).
pub(super) async fn stats(engine: &Engine, filter: &StatsFilter) -> Result<Stats, DurableError> {
    let page = engine.ask(None, |store| store.stats(filter.0.clone()));
    Ok(public(page.await?, filter.0.resolution))
}

fn public(page: StatsPage, resolution: Resolution) -> Stats {
    let start_of = |bucket| time_of(resolution.start_of(bucket));
    let row = |(bucket, run_type, runs): (u64, crate::durable::store::RunType, RunTotals)| {
        let (name, queue) = run_type.into_names();
        TypeStats {
            start: start_of(bucket),
            name,
            queue,
            runs,
        }
    };
    Stats {
        now: time_of(Duration::from_millis(page.now)),
        rows: page.rows.into_iter().map(row).collect(),
        next: page.next.map(start_of),
        missing_partitions: page.missing_partitions,
    }
}
