//! The steps of a schedule: firing, defining, pausing, resuming and removing it. Each function computes the change that the store
//! is to make.

use super::body::{Body, BodyHead, Definition, NextTick};
use super::name::ScheduleName;
use super::plan::Plan;
use super::when::Ticks;
use crate::durable::TaskId;
use crate::durable::key::KeyHash;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{DueSchedule, NewTask, ScheduleChange, ScheduleRow, StoredSchedule};

/// The time after which a worker searches again for the next tick of a schedule that has none, in milliseconds: a day. By then, the
/// rules of its time zone may have been updated.
const STUCK_INTERVAL: u64 = 24 * 3600 * 1000;

/// A function that returns `true` if a task with this id can be in this queue and have this key.
type CanHave<'a> = &'a dyn Fn(TaskId, &QueueName, Option<KeyHash>) -> bool;

/// Returns the change that fires a schedule that was handed out.
///
/// # Errors
///
/// The definition cannot be read, or this process cannot compute its ticks. Returns the reason, and the remedy.
pub(crate) fn fire(due: &DueSchedule, can_have: CanHave<'_>) -> Result<ScheduleChange, String> {
    let (stored, now) = (&due.schedule, due.now);
    let mut body = read(&stored.row)?;
    let (ticks, name) = (body.definition.spec.ticks()?, stored.name.as_str());
    let mut tasks = Vec::new();
    let definition = &body.definition;
    match body.next {
        // The schedule is paused or not due, so its stored hand-out time was damaged. The change corrects it.
        _ if body.head.is_paused => {}
        Some(NextTick { time, .. }) if time > now => {}
        Some(NextTick { tick, time }) => {
            // A tick that is delayed by its jitter is not late.
            let plan = Plan::new(&ticks, definition.missed, tick, now - (time - tick));
            let task = |&tick| definition.task(name, tick, can_have);
            tasks.extend(plan.ticks.iter().map(task));
            body.next = definition.next_after(name, &ticks, plan.next_from);
            body.last = Some(plan.last);
        }
        None => body.next = definition.next_after(name, &ticks, now.max(body.last.unwrap_or(0))),
    }
    Ok(change(stored, &body, now, tasks))
}

/// Returns the change that stores a task of a schedule now, whether the schedule is paused or not. Its ticks stay the same.
///
/// # Errors
///
/// The definition cannot be read. Returns the reason, and the remedy.
pub(crate) fn fire_now(
    stored: &StoredSchedule,
    now: u64,
    id: TaskId,
    can_have: CanHave<'_>,
) -> Result<ScheduleChange, String> {
    let body = read(&stored.row)?;
    let task = body.definition.task(stored.name.as_str(), now, can_have);
    let mut change = change(stored, &body, now, vec![NewTask { id, ..task }]);
    // The schedule stays due at the same time.
    if let Some(row) = &mut change.after {
        row.time = stored.row.time;
    }
    Ok(change)
}

/// Returns the change that pauses or resumes a schedule, or `None` if nothing changes.
///
/// # Errors
///
/// The definition cannot be read. Returns the reason, and the remedy.
pub(crate) fn set_paused(
    stored: &StoredSchedule,
    now: u64,
    is_paused: bool,
) -> Result<Option<ScheduleChange>, String> {
    let mut body = read(&stored.row)?;
    if body.head.is_paused == is_paused {
        return Ok(None);
    }
    body.head.is_paused = is_paused;
    Ok(Some(change(stored, &body, now, Vec::new())))
}

/// Returns the change that removes a schedule.
pub(crate) fn remove(stored: &StoredSchedule) -> ScheduleChange {
    ScheduleChange {
        name: stored.name.clone(),
        before: Some((stored.row.version, stored.partition)),
        after: None,
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    }
}

/// The effect of a definition, given what the store has.
#[derive(Debug)]
pub(crate) enum DefinitionEffect {
    /// The store has this definition already.
    Unchanged,
    /// The store has another definition with a higher revision.
    Superseded,
    /// There is no time at which the schedule would fire.
    Never,
    /// The store is to make this change.
    Change(ScheduleChange),
    /// The store is to make this change, which replaces another definition of the same revision.
    Flip(ScheduleChange),
}

/// Returns the effect of a definition, given what the store has. A stored definition that cannot be read is replaced, unless its
/// revision is higher.
pub(crate) fn define(
    name: &ScheduleName,
    found: Option<&StoredSchedule>,
    now: u64,
    definition: &Definition,
    revision: u32,
    ticks: &Ticks,
) -> DefinitionEffect {
    let head = found.and_then(|found| BodyHead::decode(&found.row.body));
    let body = found.and_then(|found| Body::decode(&found.row.body));
    let due = definition.next_after(name.as_str(), ticks, now);
    let body = body.map(|body| body.without_future(now, due));
    let is_same = |body: &Body| body.definition == *definition;
    let is_same = body.as_ref().is_some_and(is_same);
    let has_tick = body.as_ref().is_some_and(|body| body.next.is_some());
    match head {
        Some(head) if is_same && has_tick && head.revision >= revision => {
            return DefinitionEffect::Unchanged;
        }
        Some(head) if head.revision > revision => return DefinitionEffect::Superseded,
        _ => {}
    }
    let next = match &body {
        // Only the revision changes, so the next tick stays the same.
        Some(body) if is_same && has_tick => body.next,
        body => definition.next_after(name.as_str(), ticks, time_before(body.as_ref(), now)),
    };
    if next.is_none() {
        return DefinitionEffect::Never;
    }
    let is_paused = head.is_some_and(|head| head.is_paused);
    let new = Body {
        head: BodyHead {
            revision,
            is_paused,
        },
        definition: definition.clone(),
        next,
        last: body.as_ref().and_then(|body| body.last),
    };
    let is_flip = !is_same && head.is_some_and(|head| head.revision == revision);
    let change = match found {
        Some(found) => change(found, &new, now, Vec::new()),
        None => first_change(name, &new, now),
    };
    match is_flip {
        true => DefinitionEffect::Flip(change),
        false => DefinitionEffect::Change(change),
    }
}

/// Returns the time after which the ticks of a new definition begin. If a tick of the old definition has passed but was not
/// handled yet, they begin before that tick, so that it is not lost.
fn time_before(body: Option<&Body>, now: u64) -> u64 {
    let Some(body) = body else { return now };
    let pending = body.next.map_or(now, |next| next.tick.saturating_sub(1));
    now.min(pending).max(body.last.unwrap_or(0))
}

/// The maximum time by which a stored tick may be ahead, in milliseconds: a day. A definition forgets ticks that are further ahead.
const MAX_PUT_BACK: u64 = 24 * 3600 * 1000;

impl Body {
    /// Forgets ticks that were handled or computed while the store's clock was far ahead. Otherwise, the schedule would not fire
    /// until the clock shows that time again. `due` is the first tick after `now`.
    fn without_future(self, now: u64, due: Option<NextTick>) -> Self {
        let is_ahead = |time: u64, of: u64| time > of + MAX_PUT_BACK;
        let last_is = self.last.is_some_and(|last| is_ahead(last, now));
        let next_is = self
            .next
            .zip(due)
            .is_some_and(|(next, due)| is_ahead(next.tick, due.tick));
        Self {
            last: self.last.filter(|_| !last_is),
            next: self.next.filter(|_| !last_is && !next_is),
            ..self
        }
    }
}

/// Reads the body of a row.
///
/// # Errors
///
/// The body cannot be read. Returns the reason, and the remedy.
pub(crate) fn read(row: &ScheduleRow) -> Result<Body, String> {
    Body::decode(&row.body).ok_or_else(|| {
        String::from(
            "the definition of the schedule cannot be read: if a later version of the crate has written it, update this program; \
             otherwise it is damaged, so define the schedule again",
        )
    })
}

/// Returns the revision of a stored definition, or 0 if it is damaged.
#[cfg(feature = "redis")]
pub(crate) fn revision(stored: &StoredSchedule) -> u32 {
    BodyHead::decode(&stored.row.body)
        .unwrap_or_default()
        .revision
}

/// Returns the change that replaces a body and stores tasks.
fn change(stored: &StoredSchedule, body: &Body, now: u64, tasks: Vec<NewTask>) -> ScheduleChange {
    let row = ScheduleRow {
        started: stored.row.started + tasks.len() as u64,
        skipped: stored.row.skipped,
        last_task: tasks.last().map(|task| task.id).or(stored.row.last_task),
        ..row_of(body, now)
    };
    ScheduleChange {
        name: stored.name.clone(),
        before: Some((stored.row.version, stored.partition)),
        after: Some(row),
        queue: body.definition.template.queue.clone(),
        tasks,
    }
}

/// Returns the change that stores a new schedule.
fn first_change(name: &ScheduleName, body: &Body, now: u64) -> ScheduleChange {
    ScheduleChange {
        name: name.clone(),
        before: None,
        after: Some(row_of(body, now)),
        queue: body.definition.template.queue.clone(),
        tasks: Vec::new(),
    }
}

/// Returns a row with this body and a new version, for a schedule that has stored no task.
fn row_of(body: &Body, now: u64) -> ScheduleRow {
    let time = match body.next {
        _ if body.head.is_paused => None,
        Some(next) => Some(next.time),
        None => Some(now + STUCK_INTERVAL),
    };
    ScheduleRow {
        version: fastrand::u64(1..),
        needs: body.definition.spec.needs(),
        time,
        started: 0,
        skipped: 0,
        last_task: None,
        body: body.encode(),
    }
}
