//! Cancels tasks, manages dead letters, and removes expired data.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::error::Fault;
use super::state::{State, dead_before};
use super::work::Work;
use crate::durable::store::MAX_DEAD_LETTERS;
use crate::durable::{DeadFilter, TaskId};

pub(super) fn cancel(work: &mut Work<'_>, ids: &[TaskId]) -> Result<u64, Fault> {
    let (mut found, mut running) = (0, BTreeSet::new());
    for &id in ids {
        let Some(task) = work.task(id)? else {
            continue;
        };
        match task.state {
            State::Waiting | State::Delayed => work.end_cancelled(id, &task)?,
            State::Running => drop(running.insert(id)),
            State::Done | State::Dead | State::Cancelled => continue,
        }
        found += 1;
    }
    if !running.is_empty() {
        for (id, epoch) in work.holders(&running)? {
            cancel_running(work, id, epoch)?;
        }
    }
    Ok(found)
}

/// Notifies the worker that runs the task. The worker decides how the task ends.
fn cancel_running(work: &mut Work<'_>, id: TaskId, epoch: i64) -> Result<(), Fault> {
    work.execute(
        "UPDATE throng_task SET cancel = 1 WHERE id = ?1",
        [id.to_bytes()],
    )?;
    work.execute(
        "UPDATE throng_claim SET cancels = 1 WHERE epoch = ?1",
        [epoch],
    )?;
    let holder = work.number(
        "SELECT endpoint FROM throng_claim
         JOIN throng_session ON throng_session.id = throng_claim.session WHERE epoch = ?1",
        [epoch],
    )?;
    let note = holder.map(|holder| (holder, id));
    work.notes.cancel.extend(note);
    Ok(())
}

pub(super) fn replay_dead_letters(work: &mut Work<'_>, filter: &DeadFilter) -> Result<u64, Fault> {
    let mut ids = dead_letters(work.db, work.store_time(), filter)?;
    ids.sort_unstable();
    let mut replayed = 0;
    for &id in &ids {
        // A dead letter without its payload is not replayed.
        let is_whole = work.execute(
            "UPDATE throng_task SET failures = 0, crashes = 0, lost = 0, cancel = 0,
                 reason = NULL, error = NULL
             WHERE id = ?1 AND (payload IS NOT NULL
                 OR EXISTS (SELECT 1 FROM throng_payload WHERE throng_payload.id = throng_task.id))",
            [id.to_bytes()],
        )?;
        if is_whole != 0 {
            work.execute("DELETE FROM throng_error WHERE id = ?1", [id.to_bytes()])?;
            work.put_last(id, State::Dead)?;
            replayed += 1;
        }
    }
    Ok(replayed)
}

pub(super) fn delete_dead_letters(work: &mut Work<'_>, filter: &DeadFilter) -> Result<u64, Fault> {
    let ids = dead_letters(work.db, work.store_time(), filter)?;
    for &id in &ids {
        if let Some(task) = work.task(id)? {
            work.remove(id, &task)?;
        }
    }
    Ok(ids.len() as u64)
}

/// Returns the dead letters that match and are still kept at this store time. The newest comes first; among those of one
/// moment, the one with the largest id.
pub(super) fn dead_letters(
    db: &Connection,
    time: i64,
    filter: &DeadFilter,
) -> Result<Vec<TaskId>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM throng_task
         WHERE state = 4 AND at > ?1 AND (?2 IS NULL OR name = ?2)
         ORDER BY at DESC, id DESC",
    )?;
    let params = params![dead_before(time), filter.name];
    let ids = statement.query_map(params, |row| row.get(0).map(TaskId::from_bytes))?;
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
    if let Some(wanted) = &filter.ids {
        let wanted: BTreeSet<_> = wanted.iter().collect();
        ids.retain(|id| wanted.contains(id));
    }
    Ok(ids)
}

// ===== Expired data =====

pub(super) fn maintain(work: &mut Work<'_>, budget: usize) -> Result<bool, Fault> {
    if work.meta.keeps_ends() {
        work.meta.age(work.now);
    }
    let mut left = budget as i64;
    let mut more = false;
    for find in [over, surplus] {
        // Looks for one more than may be removed, to find out whether more are left.
        let ids = find(work, left + 1)?;
        more |= ids.len() as i64 > left;
        for &id in ids.iter().take(left as usize) {
            if let Some(task) = work.task(id)? {
                work.remove(id, &task)?;
            }
            left -= 1;
        }
    }
    work.meta.raise_ceiling(work.now);
    work.endpoint.damage.look(work)?;
    sweep(work)?;
    Ok(more)
}

/// Returns ends that are no longer kept.
fn over(work: &Work<'_>, limit: i64) -> Result<Vec<TaskId>, rusqlite::Error> {
    let sql = "SELECT id FROM throng_task WHERE state = ?1 AND at <= ?2 LIMIT ?3";
    let time = work.store_time();
    let mut ids = Vec::new();
    for (state, by) in [
        (State::Done, time),
        (State::Cancelled, time),
        (State::Dead, dead_before(time)),
    ] {
        let limit = limit - ids.len() as i64;
        ids.extend(work.ids(sql, params![state as i64, by, limit])?);
    }
    Ok(ids)
}

/// Returns the dead letters in excess of the maximum, which are the oldest.
fn surplus(work: &Work<'_>, limit: i64) -> Result<Vec<TaskId>, rusqlite::Error> {
    if work.meta.counts.dead <= MAX_DEAD_LETTERS {
        return Ok(Vec::new());
    }
    work.ids(
        "SELECT id FROM throng_task WHERE state = 4 AND at > ?1
         ORDER BY at DESC, id DESC LIMIT ?2 OFFSET ?3",
        [
            dead_before(work.store_time()),
            limit,
            MAX_DEAD_LETTERS as i64,
        ],
    )
}

/// The maximum number of dead processes whose sessions are removed at once.
const MAX_SWEPT: usize = 100;

/// Removes the sessions of dead processes that hold no claim, and the files of dead processes without a session.
pub(super) fn sweep(work: &mut Work<'_>) -> Result<(), Fault> {
    let mut statement = work
        .db
        .prepare_cached("SELECT DISTINCT endpoint FROM throng_session WHERE endpoint <> ?1")?;
    let others = statement.query_map([work.endpoint.id], |row| row.get(0))?;
    let others = others.collect::<Result<Vec<i64>, _>>()?;
    let gone = others.iter().filter(|&&other| work.endpoint.is_gone(other));
    for &other in gone.take(MAX_SWEPT) {
        work.execute(
            "DELETE FROM throng_session WHERE endpoint = ?1
             AND NOT EXISTS (SELECT 1 FROM throng_claim WHERE session = throng_session.id)",
            [other],
        )?;
    }
    for dead in work.endpoint.dead() {
        // The files of a process whose session was just removed are removed the next time: this transaction may yet be
        // rolled back.
        if !others.contains(&dead) {
            work.endpoint.forget(dead);
        }
    }
    work.endpoint.forget_unborn();
    work.forget_sets()
}
