//! Makes the steps of tasks consistent.

use rusqlite::{Connection, ToSql, params};

use crate::durable::store::DeadReason;
use crate::durable::store::reason_numbers::reason_number;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::meta::read_expiry;
use crate::durable::store::sqlite::time::Now;

/// Removes the steps of tasks that do not exist or have no steps, ends tasks that have lost a step, and counts the steps. Makes the tasks
/// due that wait for steps: a repair may have ended their children, which tells no parent. Their next runs find out, or wait again.
pub(super) fn restore(db: &Connection, now: Now, damage: &mut Damage) -> Result<(), Fault> {
    for table in ["throng_step", "throng_workflow"] {
        db.execute_batch(&format!(
            "DELETE FROM {table} WHERE NOT EXISTS (
                 SELECT 1 FROM throng_task AS task
                 WHERE task.id = {table}.id AND (state < 2 OR state = 4))"
        ))?;
    }
    end_incomplete(db, now, damage)?;
    count(db, now)?;
    db.execute(
        "UPDATE throng_task SET at = min(at, ?1) WHERE state = 1
             AND id IN (SELECT id FROM throng_workflow WHERE until IS NOT NULL)",
        [now.wall],
    )?;
    Ok(())
}

/// Makes a delayed task due, given its id: the number of steps for which it waits cannot be read.
pub(super) fn end_wait(db: &Connection, now: Now, id: &dyn ToSql) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE throng_task SET at = min(at, ?2) WHERE id = ?1 AND state = 1";
    db.execute(sql, params![id, now.wall])?;
    Ok(())
}

/// Makes dead letters of tasks that have lost a step: without it, a run would repeat the step.
fn end_incomplete(db: &Connection, now: Now, damage: &mut Damage) -> Result<(), Fault> {
    let time = read_expiry(db, now)?.store_time;
    let ended = db.execute(
        "UPDATE throng_task SET state = 4, list = NULL, place = NULL, at = ?1, cancel = 0,
             error = 'some of its steps cannot be read: a replay repeats them', reason = ?2
         WHERE id IN (SELECT id FROM throng_workflow AS own
             WHERE steps <> (SELECT count(*) FROM throng_step AS step WHERE step.id = own.id))",
        params![time, reason_number(DeadReason::Damaged)],
    )?;
    damage.add(ended, || String::from("a step of a task cannot be read"));
    Ok(())
}

/// Counts the steps of tasks. If the number of steps for which a suspended task waits is lost, the task becomes due.
fn count(db: &Connection, now: Now) -> Result<(), rusqlite::Error> {
    db.execute(
        "UPDATE throng_task SET at = min(at, ?1) WHERE state = 1
             AND id IN (SELECT id FROM throng_step)
             AND id NOT IN (SELECT id FROM throng_workflow)",
        [now.wall],
    )?;
    db.execute_batch(
        "UPDATE throng_workflow SET (steps, bytes) = (
             SELECT count(*), coalesce(sum(length(CAST(name AS BLOB)) + length(value)), 0)
             FROM throng_step AS step WHERE step.id = throng_workflow.id);
         INSERT OR IGNORE INTO throng_workflow (id, steps, bytes)
             SELECT id, count(*), sum(length(CAST(name AS BLOB)) + length(value))
             FROM throng_step GROUP BY id",
    )
}
