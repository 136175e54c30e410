//! [`WorkersPage`] and [`WorkerInfo`]: the contents of the list of workers.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::json;
use crate::durable::Cursor;
use crate::durable::store::{SessionId, WorkerCard};

/// A page of the workers of a store: see [`Admin::workers`](crate::durable::Admin::workers).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkersPage {
    /// The workers.
    pub workers: Vec<WorkerInfo>,
    /// The position of the next page, or `None` if this is the last page. Pass it to
    /// [`Admin::workers`](crate::durable::Admin::workers).
    pub next: Option<Cursor>,
}

/// A worker: an executor that serves a queue. An executor that serves several queues is several workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The number by which the store identifies the worker. It is serialised as a text, since JavaScript would round it.
    #[serde(serialize_with = "json::number")]
    pub session: u64,
    /// The queue that it serves, or `None` for the default queue.
    pub queue: Option<String>,
    /// The maximum number of tasks that it runs at once in this queue.
    pub permits: usize,
    /// The [names](crate::durable::DurableTask::NAME) of the types that it has registered, with their former names: the first ones, in
    /// order, at most 64.
    pub types: Vec<String>,
    /// The number of names that are missing in `types`, because they are too many or too long.
    pub other_types: usize,
    /// The file name of its program.
    pub program: String,
    /// The name of its machine.
    pub host: String,
    /// The id of its process.
    pub process: u32,
    /// The version of this crate that it uses.
    pub crate_version: String,
    /// The layouts of a store that it knows, or `None` if the store is in memory. See
    /// [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade).
    pub layouts: Option<RangeInclusive<i64>>,
    /// The time since which it is registered in the store. A worker whose store has taken it for dead is registered again.
    #[serde(serialize_with = "json::millis")]
    pub started: Duration,
    /// The time since its last sign of life, or `None` if that is not known. In Redis, this is a minute too long at most. A process of
    /// this machine is seen at any time, as long as it lives.
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
    /// The lease of some of its tasks has expired, and it has sent no request since. Other workers take these tasks soon.
    Suspect,
    /// Its process has died, or its machine cannot be reached. It is removed from the store soon.
    Gone,
}

impl WorkerInfo {
    /// Returns a worker, given its card.
    pub(crate) fn new(session: SessionId, card: WorkerCard, state: WorkerState) -> Self {
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
