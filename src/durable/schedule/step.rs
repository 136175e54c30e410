//! The changes of a schedule: firing, and what a user does to it. Each returns the change that the store is to make.

use super::body::{Body, Definition};
use super::name::ScheduleName;
use super::plan::Plan;
use super::when::Ticks;
use crate::durable::TaskId;
use crate::durable::key::KeyHash;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{DueSchedule, NewTask, ScheduleChange, ScheduleRow, StoredSchedule};

/// The time after which a schedule without a next tick is tried again, in milliseconds: a day. The rules of its zone may
/// have changed by then.
const STUCK_INTERVAL: u64 = 24 * 3600 * 1000;

/// Says whether a task of this queue and with this key can have an id.
type CanHave<'a> = &'a dyn Fn(TaskId, &QueueName, Option<KeyHash>) -> bool;

/// Returns the change that fires a schedule that was handed out.
///
/// # Errors
///
/// This process cannot compute its ticks. Returns the reason.
pub(crate) fn fire(due: &DueSchedule, can_have: CanHave<'_>) -> Result<ScheduleChange, String> {
    let (stored, now) = (&due.schedule, due.now);
    let mut body = read(&stored.row)?;
    let (ticks, name) = (body.definition.spec.ticks()?, stored.name.as_str());
    let mut tasks = Vec::new();
    match body.tick {
        // It is not due. The time at which the store hands it out was damaged, and is written again.
        _ if body.is_paused => {}
        Some(tick) if body.definition.time_of(name, tick) > now => {}
        Some(tick) => {
            // The jitter of the tick delays it: it is not late because of that.
            let jitter = body.definition.time_of(name, tick) - tick;
            let plan = Plan::new(
                &ticks,
                body.definition.missed,
                tick,
                now.saturating_sub(jitter),
            );
            let task = |&tick| body.definition.task(name, tick, can_have);
            tasks.extend(plan.ticks.iter().map(task));
            (body.tick, body.last) = (plan.next, Some(plan.last));
        }
        None => body.tick = ticks.next_after(now.max(body.last.unwrap_or(0))),
    }
    Ok(change(stored, &body, now, tasks))
}

/// Returns the change that stores a task of a schedule now, whether the schedule is paused or not. Its ticks stay the same.
///
/// # Errors
///
/// The definition cannot be read. Returns the reason.
pub(crate) fn fire_now(
    stored: &StoredSchedule,
    now: u64,
    id: TaskId,
    can_have: CanHave<'_>,
) -> Result<ScheduleChange, String> {
    let body = read(&stored.row)?;
    let task = body.definition.task(stored.name.as_str(), now, can_have);
    let mut change = change(stored, &body, now, vec![NewTask { id, ..task }]);
    // It is due when it was due before.
    if let Some(row) = &mut change.after {
        row.time = stored.row.time;
    }
    Ok(change)
}

/// Returns the change that pauses or resumes a schedule, or `None` if nothing changes.
///
/// # Errors
///
/// The definition cannot be read. Returns the reason.
pub(crate) fn set_paused(
    stored: &StoredSchedule,
    now: u64,
    is_paused: bool,
) -> Result<Option<ScheduleChange>, String> {
    let mut body = read(&stored.row)?;
    if body.is_paused == is_paused {
        return Ok(None);
    }
    body.is_paused = is_paused;
    Ok(Some(change(stored, &body, now, Vec::new())))
}

/// Returns the change that removes a schedule.
pub(crate) fn remove(stored: &StoredSchedule) -> ScheduleChange {
    ScheduleChange {
        name: stored.name.clone(),
        before: Some((stored.row.version, stored.home)),
        after: None,
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    }
}

/// What is to be done about a definition.
#[derive(Debug)]
pub(crate) enum Definitive {
    /// It is the definition that the store has.
    Unchanged,
    /// The store has the definition of a later revision.
    Superseded,
    /// The store is to make this change.
    Change(ScheduleChange),
    /// The same. It replaces another definition of the same revision.
    Flip(ScheduleChange),
}

/// Returns what is to be done about a definition, given what the store has.
pub(crate) fn define(
    name: &ScheduleName,
    found: Option<&StoredSchedule>,
    now: u64,
    definition: &Definition,
    revision: u32,
    ticks: &Ticks,
) -> Definitive {
    let body = found.and_then(|found| Body::decode(&found.row.body));
    match &body {
        Some(body) if body.definition == *definition && body.revision >= revision => {
            return Definitive::Unchanged;
        }
        Some(body) if body.revision > revision => return Definitive::Superseded,
        _ => {}
    }
    let mut new = Body {
        definition: definition.clone(),
        revision,
        tick: None,
        last: body.as_ref().and_then(|body| body.last),
        is_paused: body.as_ref().is_some_and(|body| body.is_paused),
    };
    new.tick = match &body {
        // Only the revision changes.
        Some(body) if body.definition == *definition => body.tick,
        _ => ticks.next_after(time_before(body.as_ref(), now)),
    };
    let is_flip = body.is_some_and(|body| body.revision == revision);
    let change = match found {
        Some(found) => change(found, &new, now, Vec::new()),
        None => ScheduleChange {
            name: name.clone(),
            before: None,
            after: Some(row_of(name, &new, now)),
            queue: definition.template.queue.clone(),
            tasks: Vec::new(),
        },
    };
    match is_flip {
        true => Definitive::Flip(change),
        false => Definitive::Change(change),
    }
}

/// Returns the time after which the ticks of a new definition begin. A tick of the old one that has passed and has not fired
/// yet is not forgotten: the new definition begins before it.
fn time_before(body: Option<&Body>, now: u64) -> u64 {
    let Some(body) = body else { return now };
    let pending = body.tick.map_or(now, |tick| tick.saturating_sub(1));
    now.min(pending).max(body.last.unwrap_or(0))
}

/// Reads the body of a row.
///
/// # Errors
///
/// It cannot be read. Returns the reason, and the remedy.
pub(crate) fn read(row: &ScheduleRow) -> Result<Body, String> {
    Body::decode(&row.body).ok_or_else(|| {
        String::from(
            "its definition cannot be read: it is damaged, or was written by a later version of the crate; define it again",
        )
    })
}

/// Returns the change that replaces a body and stores tasks.
fn change(stored: &StoredSchedule, body: &Body, now: u64, tasks: Vec<NewTask>) -> ScheduleChange {
    let row = ScheduleRow {
        started: stored.row.started + tasks.len() as u64,
        skipped: stored.row.skipped,
        last_task: tasks.last().map(|task| task.id).or(stored.row.last_task),
        ..row_of(&stored.name, body, now)
    };
    ScheduleChange {
        name: stored.name.clone(),
        before: Some((stored.row.version, stored.home)),
        after: Some(row),
        queue: body.definition.template.queue.clone(),
        tasks,
    }
}

/// Returns the row of a schedule that has stored no task.
fn row_of(name: &ScheduleName, body: &Body, now: u64) -> ScheduleRow {
    let definition = &body.definition;
    let time = match body.tick {
        _ if body.is_paused => None,
        Some(tick) => Some(definition.time_of(name.as_str(), tick)),
        None => Some(now + STUCK_INTERVAL),
    };
    ScheduleRow {
        version: fastrand::u64(1..),
        needs: definition.spec.needs(),
        time,
        started: 0,
        skipped: 0,
        last_task: None,
        body: body.encode(),
    }
}
