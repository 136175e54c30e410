//! [`WorkersPage`] and [`WorkerInfo`]: the contents of the list of workers.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::json;
use crate::durable::Cursor;
#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
use crate::durable::clock::time_of;
use crate::durable::store::{SessionId, WorkerCard};

/// A page of the workers of a store: see [`Admin::workers`](crate::durable::Admin::workers).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct WorkersPage {
    /// The current time, by the clock of the store.
    #[serde(serialize_with = "json::since_1970")]
    pub now: SystemTime,
    /// The workers.
    pub workers: Vec<WorkerInfo>,
    /// The position of the next page, or `None` if this is the last page. Pass it to
    /// [`Admin::workers`](crate::durable::Admin::workers).
    pub next: Option<Cursor>,
    /// The partitions of a `RedisStore` that did not answer while this page was read. Their workers are missing. See
    /// [`Overview::missing_partitions`](crate::durable::Overview::missing_partitions).
    pub missing_partitions: Vec<usize>,
}

/// A worker: an executor that serves a queue. An executor that serves several queues counts as several workers.
///
/// If the description of a worker in the store is damaged, its texts are empty and its numbers are zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct WorkerInfo {
    /// The number of the worker's session, by which the store identifies it. It is serialised as a text, since JavaScript would
    /// round it.
    #[serde(serialize_with = "json::number")]
    pub session: u64,
    /// The queue that the worker serves, or `None` for the default queue.
    pub queue: Option<String>,
    /// The maximum number of tasks that the worker runs at once in this queue.
    pub permits: usize,
    /// The [names](crate::durable::DurableTask::NAME) of the types that the worker has registered, including their former names: at most
    /// the first 64 in alphabetical order.
    pub types: Vec<String>,
    /// The number of names that are missing in `types`, because there are too many or they are too long.
    pub other_types: usize,
    /// The file name of the worker's program.
    pub program: String,
    /// The name of the worker's machine.
    pub host: String,
    /// The id of the worker's process.
    pub process: u32,
    /// The version of this crate that the worker uses.
    pub crate_version: String,
    /// The layouts of a store that the worker knows, or `None` if the store is in memory. See
    /// [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade).
    pub layouts: Option<RangeInclusive<i64>>,
    /// The time since the worker was registered in the store. If a store declares a worker dead by mistake, the worker registers again.
    #[serde(serialize_with = "json::millis")]
    pub started: Duration,
    /// The time since the last sign of life of the worker. With Redis, it may be up to a minute too long, and with PostgreSQL, half a
    /// minute. With other stores, it is zero as long as the worker's process is alive, and `None` afterwards.
    #[serde(serialize_with = "json::optional_millis")]
    pub last_seen: Option<Duration>,
    /// The state of the worker, as far as the store can tell.
    pub state: WorkerState,
}

/// The state of a [worker](WorkerInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// Nothing indicates that the worker is dead.
    Live,
    /// The lease of some of its tasks has expired, and it has sent no request since then. Other workers take these tasks soon.
    Suspect,
    /// Its process has died, or its machine cannot be reached. It is removed from the store soon.
    Gone,
}

#[cfg(any(
    test,
    feature = "redis",
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl WorkersPage {
    for_stores! {
        /// Returns an empty page that was read at this time, in milliseconds since 1970.
        fn at(millis: u64) -> Self {
            Self {
                now: time_of(Duration::from_millis(millis)),
                workers: Vec::new(),
                next: None,
                missing_partitions: Vec::new(),
            }
        }
    }
}

impl WorkerInfo {
    for_stores! {
        /// Returns the worker that a card describes.
        fn new(session: SessionId, card: WorkerCard, state: WorkerState) -> Self {
            Self {
                session,
                queue: Some(card.queue).filter(|queue| !queue.is_empty()),
                permits: card.permits,
                types: card.types,
                other_types: card.other_types,
                program: card.program,
                host: card.host,
                process: card.process,
                crate_version: card.version,
                layouts: card.layouts.map(|(oldest, newest)| oldest..=newest),
                started: Duration::ZERO,
                last_seen: None,
                state,
            }
        }
    }
}
