//! [`ScheduleInfo`]: the state of a schedule.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::body::{Body, BodyHead};
use super::step;
use crate::durable::TaskId;
use crate::durable::admin::json;
use crate::durable::store::StoredSchedule;

/// The state of a schedule, as [`Schedules::get`](crate::durable::Schedules::get) and
/// [`Schedules::list`](crate::durable::Schedules::list) return it. It is serialised with times in milliseconds since 1970.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableClient, DurableTask, Every, MemoryStore};
/// # #[derive(Serialize, Deserialize)] struct Sweep {}
/// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// # let hourly = Every::new(std::time::Duration::from_secs(3600));
/// # client.schedule("sweep", hourly, Sweep {}).await?;
/// for info in client.schedules().list(None, 100).await? {
///     match &info.stuck {
///         Some(reason) => println!("{} does not fire: {reason}", info.name),
///         None => println!("{} ({}) fires at {:?}", info.name, info.when, info.next_tick),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The name of the schedule.
    pub name: String,
    /// The [name](crate::durable::DurableTask::NAME) of the type of its tasks. It is empty if the definition cannot be read.
    pub task: String,
    /// The times at which the schedule fires, such as `every 5 minutes` or `0 3 * * * Europe/Berlin`. The text is empty if the
    /// definition cannot be read.
    pub when: String,
    /// The queue of its tasks, or `None` for the default queue.
    pub queue: Option<String>,
    /// The [revision](crate::durable::ScheduleOptions::revision) of its definition.
    pub revision: u32,
    /// The next tick, without [jitter](crate::durable::ScheduleOptions::jitter), or `None` if the schedule is stuck. If the tick is
    /// in the past, the schedule is paused, is delayed by its jitter, or waits for an executor.
    #[serde(serialize_with = "json::optional_since_1970")]
    pub next_tick: Option<SystemTime>,
    /// The last tick that an executor has handled, or `None` if there was none. No task was stored for it if it was
    /// [missed](crate::durable::Missed) or skipped.
    #[serde(serialize_with = "json::optional_since_1970")]
    pub last_tick: Option<SystemTime>,
    /// The last task that the schedule has stored. If a later task was not stored because of an
    /// [earlier one](crate::durable::Overlap), this is the earlier one.
    pub last_task: Option<TaskId>,
    /// The number of tasks that the schedule has stored, including those of [`fire_now`](crate::durable::Schedules::fire_now).
    pub started: u64,
    /// The number of tasks that were not stored because of an [earlier task](crate::durable::Overlap). Ticks that were
    /// [missed](crate::durable::Missed) are not counted.
    pub skipped: u64,
    /// `true` if the schedule does not fire until it is [resumed](crate::durable::Schedules::resume).
    pub is_paused: bool,
    /// The reason why the schedule does not fire, and the remedy, if it is *stuck*: no next tick is known, or the definition cannot
    /// be read. If no next tick is known, an executor searches for one again after a day. `None` if the schedule is not stuck.
    pub stuck: Option<String>,
}

impl ScheduleInfo {
    /// Returns the state of a schedule.
    pub(crate) fn of(stored: &StoredSchedule) -> Self {
        let row = &stored.row;
        let body = step::read(row);
        let head = BodyHead::decode(&row.body).unwrap_or_default();
        let unread = Self {
            name: stored.name.as_str().to_owned(),
            task: String::new(),
            when: String::new(),
            queue: None,
            revision: head.revision,
            next_tick: None,
            last_tick: None,
            last_task: row.last_task,
            started: row.started,
            skipped: row.skipped,
            is_paused: head.is_paused,
            stuck: body.as_ref().err().cloned(),
        };
        match body {
            Err(_) => unread,
            Ok(body) => Self {
                task: body.definition.template.name.clone(),
                when: body.definition.spec.to_string(),
                queue: body.definition.template.queue.clone().into(),
                next_tick: body.next.and_then(|next| time(next.tick)),
                last_tick: body.last.and_then(time),
                stuck: without_tick(&body),
                ..unread
            },
        }
    }
}

/// Returns the reason why a schedule has no next tick, and the remedy, or `None` if it has one.
fn without_tick(body: &Body) -> Option<String> {
    let stuck = || {
        format!(
            "no time is known at which `{}` fires: define other times, or update the time zone database",
            body.definition.spec
        )
    };
    body.next.is_none().then(stuck)
}

fn time(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}
