//! Stores tasks.

use rusqlite::{CachedStatement, Connection, params};

use super::error::Fault;
use super::line::STAND;
use super::schema::INLINE;
use super::session;
use super::state::State;
use super::work::Work;
use crate::durable::clock::millis;
use crate::durable::failure::Cause;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Enqueue, NewTask};

pub(super) fn enqueue(work: &mut Work<'_>, request: &Enqueue) -> Result<(), Fault> {
    let session = session::find(work, request.session)?;
    let tasks = request.batch.close();
    let first = tasks.first().map(|task| task.id.to_bytes());
    if session.is_last(request.number)? {
        // The same number with other tasks: two processes believe that they are this one.
        // Whoever was told of them the first time may not have been.
        for task in tasks {
            let list = work.routes.entrance(task.kind());
            work.notes.come(list, 0);
        }
        return match session.first == first {
            true => Ok(()),
            false => Err(Fault::Refused(Cause::NoSession)),
        };
    }
    if first.is_none() {
        return Ok(());
    }
    note_earliest(work, tasks)?;
    let mut inserts = Inserts::prepare(work.db)?;
    let are_alike =
        |one: &NewTask, next: &NewTask| one.name == next.name && one.envelope == next.envelope;
    for tasks in tasks.chunk_by(are_alike) {
        let kind = tasks[0].kind();
        for task in tasks {
            store(work, &mut inserts, task, kind)?;
        }
    }
    work.execute(
        "UPDATE throng_session SET number = ?2, first = ?3, claim = NULL WHERE id = ?1",
        params![session.id, request.number as i64, first],
    )?;
    Ok(())
}

/// Notes whether one of the tasks is due before all that are delayed so far: whoever rests until the
/// earliest of those is to look again.
fn note_earliest(work: &mut Work<'_>, tasks: &[NewTask]) -> Result<(), Fault> {
    let delays = tasks.iter().map(|task| millis(task.delay) as i64);
    let Some(delay) = delays.filter(|&delay| delay != 0).min() else {
        return Ok(());
    };
    let earliest = work.number(EARLIEST, [])?;
    work.notes.look |= earliest.is_none_or(|earliest| work.now.wall + delay < earliest);
    Ok(())
}

/// When the first of the delayed tasks is due.
pub(super) const EARLIEST: &str =
    "SELECT at FROM throng_task WHERE state = 1 AND at IS NOT NULL ORDER BY at LIMIT 1";

/// What stores a task, prepared once for all of a request.
struct Inserts<'a> {
    task: CachedStatement<'a>,
    line: CachedStatement<'a>,
}

impl<'a> Inserts<'a> {
    fn prepare(db: &'a Connection) -> Result<Self, rusqlite::Error> {
        let task = db.prepare_cached(
            "INSERT INTO throng_task
                 (id, state, place, at, name, max_crashes, retention, endpoint, payload, list, kind)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT DO NOTHING",
        )?;
        let line = db.prepare_cached(STAND)?;
        Ok(Self { task, line })
    }
}

fn store(
    work: &mut Work<'_>,
    inserts: &mut Inserts<'_>,
    task: &NewTask,
    kind: Kind,
) -> Result<(), Fault> {
    if insert(work, inserts, task, kind)? {
        return Ok(());
    }
    // There is one of that id: if it is one that should be gone, it goes.
    if let Some(old) = work.task(task.id)?
        && old.state.is_over(old.at, work.store_time())
    {
        work.remove(task.id, &old)?;
        insert(work, inserts, task, kind)?;
    }
    Ok(())
}

/// Stores a task, unless there is one of its id.
fn insert(
    work: &mut Work<'_>,
    inserts: &mut Inserts<'_>,
    task: &NewTask,
    kind: Kind,
) -> Result<bool, Fault> {
    let list = work.routes.entrance(kind);
    let (state, place, at) = match millis(task.delay) as i64 {
        0 => (State::Waiting, Some(work.next_tail()?), None),
        delay => (State::Delayed, None, Some(work.now.wall + delay)),
    };
    let id = task.id.to_bytes();
    let inline = (task.payload.len() <= INLINE).then_some(&*task.payload);
    let inserted = inserts.task.execute(params![
        id,
        state as i64,
        place,
        at,
        &*task.name,
        task.max_crashes,
        millis(task.retention) as i64,
        work.endpoint.id,
        inline,
        place.map(|_| list.number()),
        kind.number(),
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    if place.is_some() {
        inserts.line.execute(params![list.number(), place, id])?;
        work.notes.come(list, 1);
    }
    if inline.is_none() {
        work.store_body(task.id, &task.payload)?;
    }
    work.enter(state);
    work.meta.counts.stored += 1;
    Ok(true)
}
