//! Stores tasks.

use rusqlite::{CachedStatement, Connection, params};

use super::error::Fault;
use super::groups::TaskGroup;
use super::next_check::EARLIEST_DUE;
use super::payload::MAX_INLINE_BYTES;
use super::queues::queue_column;
use super::ready_queue::{self, NO_GROUP};
use super::session;
use super::state::State;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::Cause;
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::store::key_answer;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::Routes;
use crate::durable::store::{Enqueue, Enqueued, NewTask};

pub(super) fn enqueue(tx: &mut Transaction<'_>, request: &Enqueue) -> Result<Enqueued, Fault> {
    let session = session::find(tx, request.session)?;
    let tasks = request.batch.close();
    let first = tasks.first().map(|task| task.id.to_bytes());
    if session.is_last(request.number)? {
        // The first answer was lost, and perhaps also the notices.
        for task in tasks {
            let list = tx.routes.entrance(task.kind());
            tx.notices.add_ready(list, 0);
        }
        // The same number with other tasks means that two processes use this session.
        return match session.first == first {
            true => Ok(remembered_answer(tx, request)?),
            false => Err(Fault::Refused(Cause::NoSession)),
        };
    }
    if first.is_none() {
        return Ok(Enqueued::default());
    }
    let enqueued = store_all(tx, tasks)?;
    tx.execute(
        "UPDATE throng_session SET number = ?2, first = ?3, claim = NULL WHERE id = ?1",
        params![session.id, request.number as i64, first],
    )?;
    if !enqueued.conflicts.is_empty() {
        let answer = key_answer::answer_column(request.number, &enqueued);
        let sql = "UPDATE throng_session SET answer = ?2 WHERE id = ?1";
        tx.execute(sql, params![session.id, answer])?;
    }
    Ok(enqueued)
}

/// Stores tasks, except those whose keys other tasks hold. Returns the conflicts.
pub(super) fn store_all(tx: &mut Transaction<'_>, tasks: &[NewTask]) -> Result<Enqueued, Fault> {
    prepare_priorities(tx, tasks)?;
    check_earliest(tx, tasks)?;
    let mut inserts = Inserts::prepare(tx.db)?;
    let (mut enqueued, mut position) = (Enqueued::default(), 0);
    let are_alike = |one: &NewTask, next: &NewTask| {
        one.name == next.name
            && one.envelope == next.envelope
            && one.version == next.version
            && one.queue == next.queue
            && one.priority == next.priority
    };
    for tasks in tasks.chunk_by(are_alike) {
        let kind = tasks[0].kind();
        for task in tasks {
            match tx.resolve_conflict(position, task)? {
                Some(conflict) => enqueued.conflicts.push(conflict),
                None => store(tx, &mut inserts, task, kind)?,
            }
            position += 1;
        }
    }
    tx.remove_emptied_sublists()?;
    Ok(enqueued)
}

/// Returns the answer to the last request of a session, for a request that is sent again.
fn remembered_answer(tx: &Transaction<'_>, request: &Enqueue) -> Result<Enqueued, Fault> {
    if request.batch.close().iter().all(|task| task.key.is_none()) {
        return Ok(Enqueued::default());
    }
    let sql = "SELECT answer FROM throng_session WHERE id = ?1";
    let mut statement = tx.db.prepare_cached(sql)?;
    let answer: Option<Vec<u8>> =
        statement.query_row([request.session as i64], |row| row.get(0))?;
    Ok(key_answer::read_answer(request.number, answer.as_deref()))
}

/// Has the routes use priorities before the first task with another priority than the normal one is stored.
fn prepare_priorities(tx: &mut Transaction<'_>, tasks: &[NewTask]) -> Result<(), Fault> {
    let is_normal = |task: &NewTask| task.priority == Priority::Normal;
    if tx.routes.uses_priorities() || tasks.iter().all(is_normal) {
        return Ok(());
    }
    tx.change_routes(Routes::use_priorities)
}

/// Checks whether one of the tasks is due before all others that are delayed. If so, a worker that waits until the
/// earliest of those must be woken.
fn check_earliest(tx: &mut Transaction<'_>, tasks: &[NewTask]) -> Result<(), Fault> {
    let delays = tasks.iter().map(|task| millis(task.delay) as i64);
    let Some(delay) = delays.filter(|&delay| delay != 0).min() else {
        return Ok(());
    };
    let earliest = tx.number(EARLIEST_DUE, [])?;
    tx.notices.has_earlier_task |= earliest.is_none_or(|earliest| tx.now.wall + delay < earliest);
    Ok(())
}

/// The statements that store a task, prepared once per request.
struct Inserts<'a> {
    task: CachedStatement<'a>,
    ready: CachedStatement<'a>,
    exists: CachedStatement<'a>,
}

impl<'a> Inserts<'a> {
    fn prepare(db: &'a Connection) -> Result<Self, rusqlite::Error> {
        let task = db.prepare_cached(
            "INSERT INTO throng_task
                 (id, state, place, at, name, max_crashes, retention, endpoint, payload, list, kind,
                 queue, priority, sublist, group_name, ready_at, parent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
             ON CONFLICT DO NOTHING",
        )?;
        let ready = db.prepare_cached(ready_queue::INSERT)?;
        let exists = db.prepare_cached("SELECT 1 FROM throng_task WHERE id = ?1")?;
        Ok(Self {
            task,
            ready,
            exists,
        })
    }
}

fn store(
    tx: &mut Transaction<'_>,
    inserts: &mut Inserts<'_>,
    task: &NewTask,
    kind: Kind,
) -> Result<(), Fault> {
    if insert(tx, inserts, task, kind)? {
        return Ok(());
    }
    // A task with this id exists. If its retention is over, the new one replaces it.
    if let Some(old) = tx.task(task.id)?
        && old.state.is_expired(old.at, tx.expiry())
    {
        tx.remove(task.id, &old)?;
        insert(tx, inserts, task, kind)?;
    }
    Ok(())
}

/// Stores a task. Returns `false` if a task with its id exists.
fn insert(
    tx: &mut Transaction<'_>,
    inserts: &mut Inserts<'_>,
    task: &NewTask,
    kind: Kind,
) -> Result<bool, Fault> {
    let list = tx.routes.entrance(kind);
    let id = task.id.to_bytes();
    let group = task.group.as_ref();
    if group.is_some() && inserts.exists.exists([id])? {
        // Otherwise, an empty sublist would be left.
        return Ok(false);
    }
    let (mut sublist, mut is_awaited) = (NO_GROUP, true);
    let (state, position, at) = match millis(task.delay) as i64 {
        0 => {
            let group = group.map(|group| TaskGroup {
                queue: task.queue.as_str().to_owned(),
                name: group.as_str().to_owned(),
            });
            (sublist, is_awaited) = tx.sublist_for(list, kind, group.as_ref())?;
            let position = tx.queue.next_tail_of(tx.db, list, sublist)?;
            (State::Waiting, Some(position), None)
        }
        delay => (State::Delayed, None, Some(tx.now.wall + delay)),
    };
    let inline = (task.payload.len() <= MAX_INLINE_BYTES).then_some(&*task.payload);
    let inserted = inserts.task.execute(params![
        id,
        state.stored() as i64,
        position,
        at,
        &*task.name,
        task.max_crashes,
        millis(task.retention) as i64,
        tx.shared.endpoint.id,
        inline,
        position.map(|_| list.number()),
        kind.number(),
        queue_column(&task.queue),
        task.priority as i64,
        sublist,
        group.map(GroupName::as_str),
        at.unwrap_or(tx.now.wall),
        task.parent.map(TaskId::to_bytes),
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    // An earlier version of the crate leaves the steps of an ended task with the same id.
    tx.remove_steps(task.id)?;
    if position.is_some() {
        inserts
            .ready
            .execute(params![list.number(), sublist, position, id])?;
        if is_awaited {
            tx.notices.add_ready(list, 1);
        }
    }
    if inline.is_none() {
        tx.store_large_data(task.id, &task.payload)?;
    }
    if let Some(key) = &task.key {
        tx.hold_key(task.id, key)?;
    }
    tx.increment(state);
    tx.meta.counts.stored += 1;
    Ok(true)
}
