//! The statistics of runs, as processes report them and as stores keep them.
//!
//! A store keeps the numbers of runs in *buckets*: one for each minute of the last 24 hours, and one for each hour of the last 30 days. A
//! report is added to the bucket of the current minute and to that of the current hour.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::durable::RunTotals;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;

/// The maximum number of types in a bucket and in a report. Runs of all other types are counted together, as those of
/// [`RunType::others`].
pub const MAX_STAT_TYPES: usize = 256;

/// The maximum size in bytes of the name of a type that is counted on its own.
const MAX_STAT_NAME_BYTES: usize = 255;

/// The maximum number of rows of a page, except that the last bucket is always whole.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub const MAX_STAT_ROWS: usize = 4096;

/// The time for which a store keeps the number of the last report of a process. Until then, it detects a report that is sent again.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub const REPORTER_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// A report of a process: the runs that have started and ended since its last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatReport {
    /// A random number, which identifies the process.
    pub reporter: u64,
    /// The number of the report. It rises with each report of the process. A store ignores a report with a number that it has seen.
    pub number: u64,
    /// The runs of at most [`MAX_STAT_TYPES`] types, and those of [all others](RunType::others).
    pub runs: Vec<(RunType, RunTotals)>,
}

/// A type of tasks in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunType {
    /// Empty for [all others](Self::others).
    name: Arc<str>,
    queue: QueueName,
}

impl RunType {
    /// Returns the type with this name in a queue.
    pub fn new(name: &Arc<str>, queue: &QueueName) -> Self {
        match name.len() {
            1..=MAX_STAT_NAME_BYTES => Self {
                name: Arc::clone(name),
                queue: queue.clone(),
            },
            _ => Self::others(),
        }
    }

    /// Returns the placeholder for all types that are not counted on their own.
    pub fn others() -> Self {
        Self {
            name: "".into(),
            queue: QueueName::DEFAULT,
        }
    }

    /// Returns `true` for the placeholder of all other types.
    pub fn is_others(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the name, which is empty for all others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the queue.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Returns `true` if this is the type with this name in this queue.
    pub fn is(&self, name: &str, queue: &QueueName) -> bool {
        *self.name == *name && self.queue == *queue
    }

    /// Returns the name of the type, or `None` for all others, and the name of its queue, or `None` for the default queue.
    pub fn into_names(self) -> (Option<String>, Option<String>) {
        let name = Some(&*self.name).filter(|name| !name.is_empty());
        (name.map(str::to_owned), self.queue.into())
    }
}

/// The time that a bucket covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl Resolution {
    /// Both lengths.
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    /// Returns the length of a bucket in milliseconds.
    pub fn length(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
        }
    }

    /// Returns the number of buckets that are kept.
    pub const fn kept(self) -> u64 {
        match self {
            Self::Minute => 24 * 60,
            Self::Hour => 30 * 24,
        }
    }

    /// Returns the number of the bucket at a time, in milliseconds since 1970.
    pub fn bucket(self, now: u64) -> u64 {
        now / self.length()
    }

    /// Returns the time since 1970 at which a bucket begins.
    pub fn start_of(self, bucket: u64) -> Duration {
        Duration::from_millis(bucket.saturating_mul(self.length()))
    }

    /// Returns the buckets that are kept at a time, in milliseconds since 1970.
    pub fn kept_at(self, now: u64) -> Range<u64> {
        let end = self.bucket(now) + 1;
        end.saturating_sub(self.kept())..end
    }

    /// Returns the first bucket that begins at this time or later.
    pub fn first_from(self, time: Duration) -> u64 {
        millis(time).div_ceil(self.length())
    }
}

/// A request for a page of statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStats {
    /// The length of the buckets.
    pub resolution: Resolution,
    /// The first bucket.
    pub start: StatsStart,
    /// Only buckets that begin before this time since 1970.
    pub until: Option<Duration>,
    /// Only the types with this name.
    pub name: Option<String>,
}

/// Selects buckets by the times at which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsStart {
    /// All buckets that are kept.
    First,
    /// Those that begin within this time before now.
    Last(Duration),
    /// Those that begin at this time since 1970 or later.
    At(Duration),
}

impl ReadStats {
    /// Returns a request for the statistics of the last hour, by minute.
    pub fn last_hour() -> Self {
        Self {
            resolution: Resolution::Minute,
            start: StatsStart::Last(Duration::from_secs(3600)),
            until: None,
            name: None,
        }
    }

    /// Returns the requested buckets that are kept at a time, in milliseconds since 1970.
    pub fn buckets(&self, now: u64) -> Range<u64> {
        let kept = self.resolution.kept_at(now);
        let first = match self.start {
            StatsStart::First => 0,
            StatsStart::At(time) => self.resolution.first_from(time),
            StatsStart::Last(time) => {
                let since = Duration::from_millis(now).saturating_sub(time);
                self.resolution.bucket(millis(since)) + 1
            }
        };
        let until = self.until.map(|until| self.resolution.first_from(until));
        let end = until.map_or(kept.end, |until| until.min(kept.end));
        first.clamp(kept.start, end.max(kept.start))..end.max(kept.start)
    }

    /// Returns `true` if a type is requested.
    pub fn selects(&self, run_type: &RunType) -> bool {
        let name = self.name.as_deref();
        name.is_none_or(|name| name == run_type.name())
    }
}

/// A page of statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsPage {
    /// The time of the store, in milliseconds since 1970.
    pub now: u64,
    /// The runs of types, with their buckets, in order.
    pub rows: Vec<(u64, RunType, RunTotals)>,
    /// The bucket at which the next page begins, if there is one.
    pub next: Option<u64>,
    /// The partitions that do not answer.
    pub missing_partitions: Vec<usize>,
}

/// The runs in one bucket, or since the last report of a process.
#[derive(Clone, Debug, Default)]
pub struct StatBucket(BTreeMap<RunType, RunTotals>);

impl StatBucket {
    /// Adds runs of a type, or of all others if the bucket is full. Returns the type to which they were added.
    pub fn add(&mut self, run_type: RunType, runs: RunTotals) -> RunType {
        // The placeholder for all others sorts first.
        let others = usize::from(self.0.keys().next().is_some_and(RunType::is_others));
        let is_full = self.0.len() - others >= MAX_STAT_TYPES;
        let counted = match is_full && !self.0.contains_key(&run_type) {
            true => RunType::others(),
            false => run_type,
        };
        self.0.entry(counted.clone()).or_default().add(runs);
        counted
    }

    /// Returns the runs of a type.
    pub fn get(&self, run_type: &RunType) -> RunTotals {
        self.0.get(run_type).copied().unwrap_or_default()
    }

    /// Returns the types and their runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&RunType, &RunTotals)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn read(start: StatsStart, until: Option<Duration>) -> ReadStats {
        ReadStats {
            resolution: Resolution::Minute,
            start,
            until,
            name: None,
        }
    }

    #[test]
    fn buckets_are_selected_by_the_times_at_which_they_begin() {
        let now = 10_000 * MINUTE + 1;
        let buckets =
            |start, until: Option<u64>| read(start, until.map(Duration::from_millis)).buckets(now);
        let at = |time| StatsStart::At(Duration::from_millis(time));
        assert_eq!(buckets(StatsStart::First, None), 8_561..10_001);
        let hour = StatsStart::Last(Duration::from_secs(3600));
        assert_eq!(buckets(hour, None), 9_941..10_001);
        assert_eq!(buckets(at(9_990 * MINUTE), None), 9_990..10_001);
        assert_eq!(buckets(at(9_990 * MINUTE + 1), None), 9_991..10_001);
        let until = Some(9_995 * MINUTE);
        assert_eq!(buckets(at(9_990 * MINUTE), until), 9_990..9_995);
        let until = Some(9_995 * MINUTE + 1);
        assert_eq!(buckets(at(0), until), 8_561..9_996);
        for (start, until) in [
            (at(u64::MAX), None),
            (StatsStart::First, Some(0)),
            (at(u64::MAX), Some(0)),
        ] {
            assert!(buckets(start, until).is_empty());
        }
        assert_eq!(read(StatsStart::First, None).buckets(0), 0..1);
    }

    #[test]
    fn a_bucket_has_a_limited_number_of_types() {
        let mut bucket = StatBucket::default();
        let of = |nth: usize| RunType::new(&format!("{nth}").into(), &QueueName::DEFAULT);
        let one = RunTotals {
            started: 1,
            ..RunTotals::default()
        };
        assert!(bucket.add(RunType::others(), one).is_others());
        for nth in 0..2 * MAX_STAT_TYPES {
            assert_eq!(bucket.add(of(nth), one).is_others(), nth >= MAX_STAT_TYPES);
            assert!(!bucket.add(of(0), one).is_others());
        }
        assert_eq!(bucket.iter().count(), MAX_STAT_TYPES + 1);
        let others = bucket.get(&RunType::others());
        assert_eq!(others.started, 1 + MAX_STAT_TYPES as u64);
    }

    #[test]
    fn long_names_are_counted_together() {
        let longest = Arc::from("n".repeat(255));
        let queue = QueueName::new("mail").unwrap();
        assert!(!RunType::new(&longest, &queue).is_others());
        for name in ["", &format!("{longest}n")] {
            assert_eq!(RunType::new(&name.into(), &queue), RunType::others());
        }
    }
}
