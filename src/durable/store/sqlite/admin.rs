//! Cancels tasks, changes queues, manages dead letters, and removes expired data.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::error::Fault;
use super::queues::QueueRow;
use super::repair;
use super::retention;
use super::state::State;
use super::transaction::Transaction;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kept::Expiry;
use crate::durable::store::{ChangeAnswer, HAND_OUT_INTERVAL, QueueChange};
use crate::durable::{DeadFilter, Refusal, TaskId};

pub(super) fn cancel(tx: &mut Transaction<'_>, ids: &[TaskId]) -> Result<u64, Fault> {
    Ok(cancel_each(tx, ids)?.len() as u64)
}

/// Cancels tasks. Returns the ids of those that had not ended.
pub(super) fn cancel_each(tx: &mut Transaction<'_>, ids: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
    let (mut found, mut running) = (Vec::new(), BTreeSet::new());
    for &id in ids {
        let Some(task) = tx.task_or_outbox(id)? else {
            continue;
        };
        match task.state {
            State::Waiting | State::Delayed => tx.end_cancelled(id, &task)?,
            State::Running => drop(running.insert(id)),
            State::Done | State::Dead | State::Cancelled => continue,
        }
        found.push(id);
    }
    if !running.is_empty() {
        for (id, epoch) in tx.claims_of(&running)? {
            cancel_running(tx, id, epoch)?;
        }
    }
    Ok(found)
}

/// Notifies the worker that runs the task. The verdict of the worker determines how the task ends.
fn cancel_running(tx: &mut Transaction<'_>, id: TaskId, epoch: i64) -> Result<(), Fault> {
    tx.execute(
        "UPDATE throng_task SET cancel = 1 WHERE id = ?1",
        [id.to_bytes()],
    )?;
    tx.execute(
        "UPDATE throng_claim SET cancels = 1 WHERE epoch = ?1",
        [epoch],
    )?;
    let worker = tx.number(
        "SELECT endpoint FROM throng_claim
         JOIN throng_session ON throng_session.id = throng_claim.session WHERE epoch = ?1",
        [epoch],
    )?;
    let notice = worker.map(|worker| (worker, id));
    tx.notices.cancelled.extend(notice);
    Ok(())
}

/// Changes a queue. Returns `false` if that has no effect.
pub(super) fn change_queue(
    tx: &mut Transaction<'_>,
    queue: &QueueName,
    change: QueueChange,
) -> Result<bool, Fault> {
    let mut row = QueueRow::load(tx.db, queue)?;
    match change {
        QueueChange::Settings(settings) if settings.revision < row.settings.revision => {
            return Ok(false);
        }
        QueueChange::Settings(settings) => row.settings = settings,
        QueueChange::Paused(is_paused) => row.is_paused = is_paused,
    }
    row.save(tx.db, queue)?;
    tx.update_running_groups(queue)?;
    // Perhaps waiting tasks may start now.
    tx.recheck_queue(queue);
    Ok(true)
}

pub(super) fn replay_dead_letters(
    tx: &mut Transaction<'_>,
    filter: &DeadFilter,
) -> Result<u64, Fault> {
    let mut ids = dead_letters(tx.db, tx.expiry(), filter)?;
    ids.sort_unstable();
    let mut replayed = 0;
    for &id in &ids {
        replayed += u64::from(replay_one(tx, id)? == ChangeAnswer::Changed);
    }
    Ok(replayed)
}

/// Replays a dead letter, unless another task holds its key.
pub(super) fn replay_one(tx: &mut Transaction<'_>, id: TaskId) -> Result<ChangeAnswer, Fault> {
    if !tx.key_allows_replay(id)? {
        return Ok(ChangeAnswer::Refused(Refusal::KeyHeld));
    }
    // A dead letter without its payload is not replayed.
    let is_whole = tx.execute(
        "UPDATE throng_task SET failures = 0, failing_since = NULL, crashes = 0, lost = 0,
             cancel = 0, reason = NULL, error = NULL, took = NULL, ready_at = ?2
         WHERE id = ?1 AND (payload IS NOT NULL
             OR EXISTS (SELECT 1 FROM throng_payload WHERE throng_payload.id = throng_task.id))",
        params![id.to_bytes(), tx.now.wall],
    )?;
    if is_whole == 0 {
        return Ok(ChangeAnswer::Refused(Refusal::Unreadable));
    }
    tx.execute("DELETE FROM throng_error WHERE id = ?1", [id.to_bytes()])?;
    tx.push_back(id, State::Dead)?;
    Ok(ChangeAnswer::Changed)
}

pub(super) fn delete_dead_letters(
    tx: &mut Transaction<'_>,
    filter: &DeadFilter,
) -> Result<u64, Fault> {
    let ids = dead_letters(tx.db, tx.expiry(), filter)?;
    for &id in &ids {
        if let Some(task) = tx.task(id)? {
            tx.remove(id, &task)?;
        }
    }
    Ok(ids.len() as u64)
}

/// Returns the dead letters that match and have not expired. The newest comes first. Among those of
/// the same millisecond, the one with the largest id comes first.
pub(super) fn dead_letters(
    db: &Connection,
    expiry: Expiry,
    filter: &DeadFilter,
) -> Result<Vec<TaskId>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM throng_task
         WHERE state = 4 AND at > ?1 AND (?2 IS NULL OR name = ?2)
         ORDER BY at DESC, id DESC",
    )?;
    let params = params![expiry.dead_until, filter.name];
    let ids = statement.query_map(params, |row| row.get(0).map(TaskId::from_bytes))?;
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
    if let Some(wanted) = &filter.ids {
        let wanted: BTreeSet<_> = wanted.iter().collect();
        ids.retain(|id| wanted.contains(id));
    }
    Ok(ids)
}

// ===== Expired data =====

pub(super) fn maintain(tx: &mut Transaction<'_>, budget: usize) -> Result<bool, Fault> {
    if tx.meta.has_ended_tasks() {
        tx.meta.record_store_time(tx.now);
    }
    let mut left = budget as i64;
    let mut more = false;
    for find in [
        retention::expired,
        retention::excess_dead,
        retention::excess_kept,
    ] {
        // Reads one more than may be removed, to find out whether more are left.
        let ids = find(tx, left + 1)?;
        more |= ids.len() as i64 > left;
        for &id in ids.iter().take(left as usize) {
            if let Some(task) = tx.task(id)? {
                tx.remove(id, &task)?;
            }
            left -= 1;
        }
    }
    more |= tx.expire_stats()?;
    repair_hand_outs(tx)?;
    tx.meta.raise_ceiling(tx.now);
    repair::check(tx)?;
    sweep(tx)?;
    Ok(more)
}

/// Corrects the times of schedules that were handed out while the clock was ahead.
fn repair_hand_outs(tx: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    let latest = tx.now.wall + millis(HAND_OUT_INTERVAL) as i64;
    let sql = "UPDATE throng_schedule SET hand_out = time WHERE hand_out > max(time, ?1)";
    tx.execute(sql, [latest]).map(drop)
}

/// The maximum number of dead processes whose sessions are removed at once.
const MAX_SWEPT: usize = 100;

/// Removes the sessions of dead processes that hold no claim, and the files of dead processes without a session.
pub(super) fn sweep(tx: &mut Transaction<'_>) -> Result<(), Fault> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT DISTINCT endpoint FROM throng_session WHERE endpoint <> ?1")?;
    let others = statement.query_map([tx.shared.endpoint.id], |row| row.get(0))?;
    let others = others.collect::<Result<Vec<i64>, _>>()?;
    let gone = others
        .iter()
        .filter(|&&other| tx.shared.endpoint.is_gone(other));
    for &other in gone.take(MAX_SWEPT) {
        tx.execute(
            "DELETE FROM throng_session WHERE endpoint = ?1
             AND NOT EXISTS (SELECT 1 FROM throng_claim WHERE session = throng_session.id)",
            [other],
        )?;
    }
    for dead in tx.shared.endpoint.dead() {
        // The files of a process whose session was just removed are removed the next time: this transaction may yet be
        // rolled back.
        if !others.contains(&dead) {
            tx.shared.endpoint.remove_files(dead);
        }
    }
    tx.shared.endpoint.remove_unfinished_lock_files();
    tx.remove_unused_sets()
}
