//! Repairs stored data that cannot be read.
//!
//! A request that encounters such data fails and is repeated on a new connection. If it fails again, the writer repairs
//! the store and repeats the request. A repair
//!
//! 1. rebuilds each table that has an unreadable page, from the rows that can be read. The old table stays beside the
//!    new one, under a name that begins with `throng_damaged_`: its pages may belong to other tables, so they are not
//!    freed;
//! 2. removes invalid rows. If the row is that of a task, the task becomes a dead letter;
//! 3. makes the lists, the claims and the tasks consistent: a task that is in no list and no claim is put back, and a
//!    task of which only the id is left becomes a dead letter;
//! 4. counts the tasks again.
//!
//! A repair reads the whole store and may write all of it, in one transaction. This takes some seconds for each
//! 100,000 tasks. Maintenance [checks](mod@check) for damage that no request has encountered, a bounded number of rows at a
//! time.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

pub(super) use self::check::check;
use super::claimed_tasks::ClaimedTasks;
use super::damage::Damage;
use super::error::Fault;
use super::meta::{read_expiry, sum_of_ends};
use super::time::Now;
use crate::durable::TaskId;
use crate::durable::store::DeadReason;
use crate::durable::store::reason_numbers::reason_number;

mod check;
mod consistency;
mod meta;
mod rows;
mod steps;
mod tables;

/// Repairs what cannot be read, within a transaction for writing.
///
/// A repair reads damaged data with `old`, another connection, which sees the state before the transaction: SQLite no
/// longer writes in a transaction that has read a damaged page.
pub(super) fn repair(db: &Connection, old: &Connection, now: Now) -> Result<Damage, Fault> {
    let mut damage = Damage::default();
    let mut ids: BTreeSet<_> = tables::ids_in_ready_queue(old)?.into_iter().collect();
    ids.extend(tables::ids_in_claims(old)?);
    tables::rebuild_all(db, old, &mut ids, &mut damage)?;
    meta::repair(db, now, &mut damage)?;
    rows::remove_invalid(db, now, &mut damage)?;
    rows::repair_queues(db, &mut damage)?;
    rows::repair_schedules(db, &mut damage)?;
    meta::close_sessions_of_unknown_sets(db, now, &mut damage)?;
    rows::end_invalid_tasks(db, now, &mut damage)?;
    meta::restore_priorities(db)?;
    end_missing(db, now, &ids, &mut damage)?;
    steps::restore(db, now, &mut damage)?;
    consistency::restore(db, &mut damage)?;
    count(db)?;
    damage.save(db, now)?;
    Ok(damage)
}

/// Makes dead letters of tasks of which only the id is left.
fn end_missing(
    db: &Connection,
    now: Now,
    ids: &BTreeSet<TaskId>,
    damage: &mut Damage,
) -> Result<(), Fault> {
    let mut insert = db.prepare(
        "INSERT OR IGNORE INTO throng_task
             (id, state, at, name, kind, max_crashes, retention, endpoint, error, reason)
         VALUES (?1, 4, ?2, '', 0, 0, 0, 0, 'the row of the task cannot be read', ?3)",
    )?;
    let reason = reason_number(DeadReason::Damaged);
    let store_time = read_expiry(db, now)?.store_time;
    for id in ids {
        let ended = insert.execute(params![id.to_bytes(), store_time, reason])?;
        damage.add(ended, || format!("the row of task {id} cannot be read"));
    }
    Ok(())
}

/// Counts the tasks. Claims whose end is unknown count as lost.
fn count(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute(
        "UPDATE throng_meta SET
             waiting = (SELECT count(*) FROM throng_ready),
             running = (SELECT coalesce(sum(length(held)), 0) / ?1 FROM throng_claim),
             (delayed, dead, results) = (
                 SELECT coalesce(sum(state = 1), 0), coalesce(sum(state = 4), 0),
                     coalesce(sum(state IN (3, 5)), 0)
                 FROM throng_task)",
        [ClaimedTasks::ENTRY_LEN as i64],
    )?;
    let ends = format!("{} + running", sum_of_ends());
    db.execute_batch(&format!(
        "UPDATE throng_meta SET claimed = max(claimed, {ends});
         UPDATE throng_meta SET lost = lost + claimed - ({ends});"
    ))?;
    Ok(())
}
