//! The part of schedules that stores implement: a store hands a schedule out when it is due, and replaces its row as a whole.
//!
//! A store neither reads the *body* of a row nor computes ticks. Each row has a *version*, which its writer chooses at random. A
//! [change](ScheduleChange) names the version that it replaces, so only one of several changes of the same version takes effect. A
//! change stores its tasks in the same step. So no tick fires twice: the change that fires a tick also replaces the row in which
//! that tick was the next one.
//!
//! A worker asks for due schedules, and the store *hands them out* to it. The only effect in the store is that each of them is not
//! handed out again for [`HAND_OUT_INTERVAL`], unless a change replaces its row. So if a worker dies while it handles a schedule,
//! it delays the schedule by that time at most.

use std::time::Duration;

use super::{Enqueued, KeyConflict, NewTask};
use crate::durable::TaskId;
use crate::durable::key::Conflict;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::name::ScheduleName;

/// The time after which a schedule is handed out again, unless a change has replaced its row.
pub const HAND_OUT_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of schedules that a request hands out in one partition.
pub const MAX_HAND_OUTS: usize = 64;

/// The row of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    /// A random number, which is not zero.
    pub version: u64,
    /// The [bit](crate::durable::schedule::when::COMPUTES) of the builds that can compute its ticks.
    pub needs: u8,
    /// The time at which the schedule is handed out, in milliseconds since 1970, or `None` while it is paused.
    pub time: Option<u64>,
    /// The number of tasks that the schedule has stored.
    pub started: u64,
    /// The number of tasks that were not stored because another task held their key.
    pub skipped: u64,
    /// The last task that was stored or, if a later task was not stored because its key was held, the holder of the key.
    pub last_task: Option<TaskId>,
    /// The part of the row that stores do not read: see `schedule/body.rs`.
    pub body: Vec<u8>,
}

impl ScheduleRow {
    /// Corrects the counts of a row in which all tasks count as started, if some were not stored because others held their keys.
    #[cfg_attr(
        not(any(
            test,
            feature = "postgres",
            feature = "sqlite-unbundled",
            feature = "test-util"
        )),
        allow(dead_code, reason = "with Redis, a script does this")
    )]
    pub fn count_conflicts(&mut self, conflicts: &[KeyConflict]) {
        self.started = self.started.saturating_sub(conflicts.len() as u64);
        self.skipped += conflicts.len() as u64;
        if let Some(last) = conflicts.last() {
            self.last_task = Some(last.holder);
        }
    }
}

/// Returns the answer of a store that has made a change already, given the last task in the row. If that is not the last task of
/// the change, the last task of the change was not stored, because its key was held.
pub fn repeated(change: &ScheduleChange, last_task: Option<TaskId>) -> Enqueued {
    let last = change.tasks.last().zip(last_task);
    let conflict = last.filter(|(task, holder)| task.id != *holder);
    let conflict = conflict.map(|(_, holder)| KeyConflict {
        position: change.tasks.len() - 1,
        holder,
        resolution: Conflict::Join,
    });
    Enqueued {
        conflicts: conflict.into_iter().collect(),
    }
}

/// A schedule in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchedule {
    /// The name of the schedule.
    pub name: ScheduleName,
    /// The partition in which the row is stored.
    pub partition: usize,
    /// The row.
    pub row: ScheduleRow,
}

/// The answer to a request for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleAnswer {
    /// The store's time, in milliseconds since 1970.
    pub now: u64,
    /// The schedule, if there is one with the name.
    pub found: Option<StoredSchedule>,
}

/// The schedules that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOut {
    /// Some of them, in no particular order: at most [`MAX_HAND_OUTS`] in each partition.
    pub due: Vec<DueSchedule>,
    /// The time until the next schedule is handed out, among those whose ticks the worker's build computes, or `None` if there is
    /// none.
    pub next: Option<Duration>,
}

/// A schedule that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueSchedule {
    /// The store's time at which it was handed out, in milliseconds since 1970.
    pub now: u64,
    /// The schedule.
    pub schedule: StoredSchedule,
}

/// A change of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleChange {
    /// The name of the schedule.
    pub name: ScheduleName,
    /// The version and the partition of the row that this change replaces, or `None` if the schedule is new. A store refuses a new
    /// schedule that is already due. Otherwise, a request that arrives late could repeat a tick that fired before the schedule was
    /// removed.
    pub before: Option<(u64, usize)>,
    /// The new row, in which all `tasks` count as started, or `None` if the schedule is removed.
    pub after: Option<ScheduleRow>,
    /// The queue of the tasks. In a store with several partitions, it determines the partition of the new row: see
    /// [`can_have`](super::Backend::can_have).
    pub queue: QueueName,
    /// The tasks that are stored in the same step.
    pub tasks: Vec<NewTask>,
}
