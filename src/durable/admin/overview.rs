//! [`Overview`]: a summary of a store, its queues and its types.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::json;
use crate::durable::clock::time_of;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{RunType, StatsPage};
use crate::durable::{Counts, QueueInfo, RunTotals};

/// A summary of a store: see [`Admin::overview`](crate::durable::Admin::overview).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct Overview {
    /// The current time, by the clock of the store.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
    /// The numbers of tasks, and the totals.
    pub counts: Counts,
    /// The default queue, and then the named queues in the order of their names: at most 200 in total. A named queue is listed if it has
    /// limits, if it is or was paused, or if a live worker serves it.
    pub queues: Vec<QueueOverview>,
    /// `true` if there are more queues than `queues` contains.
    pub has_more_queues: bool,
    /// The types in the order of their names and queues: at most 200. A type is listed if runs of it have started or ended within the last
    /// hour, if it is paused, or if tasks of it wait because no live worker has registered it.
    ///
    /// A `RedisStore` also lists all other types that its clients have recorded. If a partition has more than 2,000 of these records, it
    /// lists only paused types and types with runs.
    pub types: Vec<TypeOverview>,
    /// `true` if there are more types than `types` contains.
    pub has_more_types: bool,
    /// The numbers, from 0, of the partitions of a `RedisStore` that do not answer. Their tasks, their queues and their part of the
    /// statistics are missing from this overview.
    pub missing_partitions: Vec<usize>,
}

/// A summary of a queue: see [`Overview::queues`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct QueueOverview {
    /// The name, or `None` for the default queue.
    pub name: Option<String>,
    /// The limits of the queue, its pause, and the numbers of its waiting and running tasks. With SQLite and PostgreSQL, the number of
    /// waiting tasks is an estimate if several lists are long: if each has more waiting tasks than 20,000 divided by the number of lists,
    /// or than 10,000 if that is less. Lists of up to 100 tasks are always counted. With Redis, running tasks of queues that are not listed
    /// count for the default queue.
    pub info: QueueInfo,
    /// The number of live sessions that serve the queue. Each executor has one session for each queue that it serves. A worker that is
    /// killed counts as live until the store detects its death: with Redis and PostgreSQL, for about three minutes.
    pub sessions: u64,
    /// The time for which the first waiting task has waited, or `None` if no task waits or the time is not known. Only tasks whose type a
    /// worker has registered count, and Redis, SQLite and PostgreSQL do not examine tasks with a
    /// [group](crate::durable::SpawnOptions::group). With Redis and PostgreSQL, this is the time since the task became ready. With other
    /// stores, it is the time since the task was spawned, which SQLite knows only for [new](crate::durable::TaskId::new) ids.
    #[serde(serialize_with = "json::optional_millis")]
    pub oldest_waiting: Option<Duration>,
}

/// A summary of the tasks of a type in a queue: see [`Overview::types`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct TypeOverview {
    /// The [name](crate::durable::DurableTask::NAME) of the type. It is `None` for the types that the statistics count together: see
    /// [`TypeStats::name`](crate::durable::TypeStats::name).
    pub name: Option<String>,
    /// The queue, or `None` for the default queue.
    pub queue: Option<String>,
    /// `true` if the type is [paused](crate::durable::TaskTypes::pause).
    pub is_paused: bool,
    /// `true` if a live worker serves the queue and has registered the type. A worker that is killed counts as live for a while: see
    /// [`QueueOverview::sessions`].
    pub is_served: bool,
    /// The runs of the last hour. Like all [statistics](crate::durable::Admin::stats), they lag by about ten seconds.
    pub last_hour: RunTotals,
}

/// The maximum number of queues, and of types, in an overview.
pub const MAX_OVERVIEW_ROWS: usize = 200;

/// The data from which an [`Overview`] is made.
#[derive(Debug, Default)]
pub struct OverviewDraft {
    /// In milliseconds since 1970.
    pub now: u64,
    /// The counts of the store.
    pub counts: Counts,
    /// The queues. Those in excess of [`MAX_OVERVIEW_ROWS`] are left out at the end.
    pub queues: BTreeMap<QueueName, QueueDraft>,
    /// The types. Those in excess of [`MAX_OVERVIEW_ROWS`] are left out at the end.
    pub types: BTreeMap<RunType, TypeDraft>,
    /// `true` if the store has queues that it has not read.
    pub has_more_queues: bool,
    /// The partitions that do not answer.
    pub missing_partitions: Vec<usize>,
}

/// The data from which a [`QueueOverview`] is made.
#[derive(Debug, Default)]
pub struct QueueDraft {
    /// The limits of the queue, and the number of its tasks.
    pub info: QueueInfo,
    /// The number of live sessions of the queue.
    pub sessions: u64,
    /// The time for which the first waiting task has been ready, if one waits.
    pub oldest_waiting: Option<Duration>,
}

/// The data from which a [`TypeOverview`] is made.
#[derive(Debug, Default)]
pub struct TypeDraft {
    /// `true` if the type is paused.
    pub is_paused: bool,
    /// `true` if a live worker of the queue knows the type.
    pub is_served: bool,
    last_hour: RunTotals,
}

impl OverviewDraft {
    /// Adds the types that have runs in the statistics.
    pub fn add_stats(&mut self, page: StatsPage) {
        for (_, run_type, runs) in page.rows {
            self.types.entry(run_type).or_default().last_hour.add(runs);
        }
    }

    /// Marks types as paused. A paused type that is not listed yet is added to the default queue.
    pub fn add_paused<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            let is_listed = self.types.keys().any(|it| it.name() == name);
            if !is_listed {
                let run_type = RunType::new(&name.into(), &QueueName::DEFAULT);
                self.types.entry(run_type).or_default();
            }
            let types = self.types.iter_mut();
            let types = types.filter(|(it, _)| it.name() == name);
            types.for_each(|(_, it)| it.is_paused = true);
        }
    }

    /// Returns the overview.
    pub fn finish(self) -> Overview {
        let has_more_types = self.types.len() > MAX_OVERVIEW_ROWS;
        let has_more_queues = self.has_more_queues || self.queues.len() > MAX_OVERVIEW_ROWS;
        let queues = self.queues.into_iter().take(MAX_OVERVIEW_ROWS);
        let types = self.types.into_iter().take(MAX_OVERVIEW_ROWS);
        Overview {
            now: time_of(Duration::from_millis(self.now)),
            counts: self.counts,
            queues: queues.map(|(name, it)| it.finish(name)).collect(),
            has_more_queues,
            types: types.map(|(run_type, it)| it.finish(run_type)).collect(),
            has_more_types,
            missing_partitions: self.missing_partitions,
        }
    }
}

impl QueueDraft {
    fn finish(self, name: QueueName) -> QueueOverview {
        QueueOverview {
            name: name.into(),
            info: self.info,
            sessions: self.sessions,
            oldest_waiting: self.oldest_waiting,
        }
    }
}

impl TypeDraft {
    fn finish(self, run_type: RunType) -> TypeOverview {
        let (name, queue) = run_type.into_names();
        TypeOverview {
            name,
            queue,
            is_paused: self.is_paused,
            is_served: self.is_served,
            last_hour: self.last_hour,
        }
    }
}
