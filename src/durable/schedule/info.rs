//! [`ScheduleInfo`]: the state of a schedule.

use std::time::SystemTime;

use crate::durable::TaskId;

/// The state of a schedule: see [`Schedules::get`](crate::durable::Schedules::get).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The name of the schedule.
    pub name: String,
    /// The [name](crate::durable::DurableTask::NAME) of the type of its tasks.
    pub task: String,
    /// The times at which it fires, such as `every 300s`, or `0 3 * * * Europe/Berlin`.
    pub when: String,
    /// The queue of its tasks, or `None` for the default queue.
    pub queue: Option<String>,
    /// The [revision](crate::durable::ScheduleOptions::revision) of its definition.
    pub revision: u32,
    /// The next time at which it fires, without [jitter](crate::durable::ScheduleOptions::jitter). If it is in the past, the
    /// schedule is paused, or waits for a worker.
    pub next_tick: Option<SystemTime>,
    /// The last time at which it has fired.
    pub last_tick: Option<SystemTime>,
    /// The last task that it has stored, or the task because of which it has skipped a time after that.
    pub last_task: Option<TaskId>,
    /// The number of tasks that it has stored.
    pub started: u64,
    /// The number of times that were skipped because of an [earlier task](crate::durable::Overlap).
    pub skipped: u64,
    /// `true` if it does not fire until it is [resumed](crate::durable::Schedules::resume).
    pub is_paused: bool,
    /// The reason why it does not fire, if it is *stuck*: no next time is known, or the store has lost its definition. A
    /// schedule without a next time is tried again after a day.
    pub stuck: Option<String>,
}
