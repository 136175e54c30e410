//! Schedules, as stores see them: they know when to hand a schedule out, and replace its row as a whole.
//!
//! A store does not read the *body* of a row, and computes no tick. Each row has a *version*, which its writer chooses at
//! random. A [change](ScheduleChange) names the version that it replaces, so of several changes of one version, one takes
//! effect. It stores tasks in the same step. So a tick whose task is stored by a change is never fired twice: the change that
//! fires it also replaces the row that says that it is to be fired.
//!
//! A turn *hands out* the schedules that are due. This changes only the time at which each of them is handed out next, and
//! only by [`HAND_OUT_INTERVAL`]: a worker that dies with a schedule delays it by that time.

use std::time::Duration;

use super::NewTask;
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;

/// The time after which a schedule is handed out again unless it has been changed.
pub(crate) const HAND_OUT_INTERVAL: Duration = Duration::from_secs(5);

/// The number of schedules that a turn hands out, at most.
pub(crate) const MAX_HAND_OUTS: usize = 64;

/// The row of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleRow {
    /// Not zero.
    pub(crate) version: u64,
    /// The [bit](crate::durable::schedule::when::COMPUTES) of the builds that can compute its ticks.
    pub(crate) needs: u8,
    /// The time at which it is handed out, in milliseconds since 1970, or `None` if it is not.
    pub(crate) time: Option<u64>,
    /// The number of tasks that it has stored.
    pub(crate) started: u64,
    /// The number of tasks that were not stored because another task held their key.
    pub(crate) skipped: u64,
    /// The last task that was stored, or because of which a later one was not stored.
    pub(crate) last_task: Option<TaskId>,
    /// The rest, which stores do not read: see [`Body`](crate::durable::schedule::body::Body).
    pub(crate) body: Vec<u8>,
}

impl ScheduleRow {
    /// Counts tasks that were not stored because others held their keys.
    #[cfg_attr(
        not(any(test, feature = "sqlite-unbundled", feature = "test-util")),
        allow(dead_code, reason = "with Redis, a script does this")
    )]
    pub(crate) fn count_conflicts(&mut self, conflicts: &[super::KeyConflict]) {
        self.started = self.started.saturating_sub(conflicts.len() as u64);
        self.skipped += conflicts.len() as u64;
        if let Some(last) = conflicts.last() {
            self.last_task = Some(last.holder);
        }
    }
}

/// A schedule in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSchedule {
    pub(crate) name: ScheduleName,
    /// The partition that has the row.
    pub(crate) home: usize,
    pub(crate) row: ScheduleRow,
}

/// The answer to a request for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleAnswer {
    /// The store's time, in milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) found: Option<StoredSchedule>,
}

/// A schedule that a turn has handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueSchedule {
    /// The store's time, in milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) schedule: StoredSchedule,
}

/// A change of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleChange {
    pub(crate) name: ScheduleName,
    /// The version of the row that this replaces, and its partition, or `None` if the schedule is new. Then it must not be due
    /// yet, so that a request that arrives late does not fire a tick that was fired before the schedule was removed.
    pub(crate) before: Option<(u64, usize)>,
    /// The new row, or `None` if the schedule is removed. Of the tasks below, all count as started.
    pub(crate) after: Option<ScheduleRow>,
    /// The queue of the tasks. In a store with several partitions, it determines the partition of the row: see
    /// [`can_have`](super::Backend::can_have).
    pub(crate) queue: QueueName,
    /// The tasks that are stored in the same step.
    pub(crate) tasks: Vec<NewTask>,
}
