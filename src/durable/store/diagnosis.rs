//! [`Diagnosis`]: the data of a report that an overview does not contain.

use std::time::Duration;

use super::{RunType, StoredSchedule};
use crate::durable::WorkerInfo;
use crate::durable::admin::finding::Finding;

/// The number of schedules of each kind that a diagnosis examines: those that are handed out first.
#[cfg_attr(
    not(any(
        test,
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "with Redis, a script does this")
)]
pub(crate) const MAX_EXAMINED_SCHEDULES: usize = 64;

/// The number of workers that a diagnosis examines: those with the lowest sessions.
#[cfg_attr(
    not(any(
        test,
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "with Redis, a script does this")
)]
pub(crate) const MAX_EXAMINED_WORKERS: usize = 200;

/// The maximum number of unclaimed types in a diagnosis, and of overdue claims that it counts.
#[cfg_attr(
    not(any(
        test,
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util"
    )),
    allow(dead_code, reason = "with Redis, a script does this")
)]
pub(crate) const MAX_DIAGNOSED: usize = 100;

/// The information of a store about itself, read in a bounded number of steps. A store with several partitions has a diagnosis of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// The store's time, in milliseconds since 1970.
    pub(crate) now: u64,
    /// The number of dead letters, and the maximum.
    pub(crate) dead: u64,
    pub(crate) dead_most: u64,
    /// The number of claims whose lease has been over for more than two lease times.
    pub(crate) overdue_claims: u64,
    /// The workers that are not live.
    pub(crate) workers: Vec<WorkerInfo>,
    /// The schedules that are handed out next.
    pub(crate) schedules: Vec<StoredSchedule>,
    /// Types of tasks that are first in lists from which no live worker claims. Others may wait behind them.
    pub(crate) unclaimed: Vec<UnclaimedType>,
}

/// A type of which tasks wait, although no live worker claims them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnclaimedType {
    pub(crate) run_type: RunType,
    /// `true` if live workers know the type, so it is paused.
    pub(crate) is_known: bool,
    /// The time for which the first task has been ready, if it is known.
    pub(crate) ready_for: Option<Duration>,
}

/// The answer of a store to a request for its diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnoses {
    /// The diagnoses of the partitions.
    pub(crate) partitions: Vec<Diagnosis>,
    /// The partitions that do not answer.
    pub(crate) missing_partitions: Vec<usize>,
    /// The problems of the server that the store uses.
    pub(crate) server: Vec<Finding>,
    /// The number of rows of the outbox that only later versions of the crate can read.
    pub(crate) newer_outbox_rows: u64,
}

impl From<Diagnosis> for Diagnoses {
    fn from(diagnosis: Diagnosis) -> Self {
        Self {
            partitions: vec![diagnosis],
            ..Self::default()
        }
    }
}
