//! Checks for damage that no request has encountered.

use std::collections::BTreeMap;

use rusqlite::{Row, params};

use super::{consistency, meta, rows};
use crate::durable::TaskId;
use crate::durable::store::sqlite::error::{Fault, corrupt};
use crate::durable::store::sqlite::groups::MAY_START;
use crate::durable::store::sqlite::state::State;
use crate::durable::store::sqlite::transaction::Transaction;

/// The number of rows that one pass of maintenance checks.
const ROWS_PER_PASS: i64 = 1024;

/// Checks the next rows, and reads what other processes have reported.
///
/// # Errors
///
/// If it finds damage, so that the writer repairs the store.
pub(in super::super) fn check(tx: &Transaction<'_>) -> Result<(), Fault> {
    let damage = &tx.shared.damage;
    let after = damage.last_checked();
    let last = check_rows(tx, after)?;
    tx.remove_left_steps(after, last)?;
    damage.set_last_checked(last);
    damage.load(tx.db, tx.now)
}

/// Compares the counts with the tables, and checks the next rows after `last`.
/// Returns the last of them, if there are more.
fn check_rows(tx: &Transaction<'_>, last: Option<TaskId>) -> Result<Option<TaskId>, Fault> {
    let mut claimed = BTreeMap::new();
    for (epoch, tasks) in consistency::claims(tx.db)? {
        claimed.extend(tasks.ids().map(|id| (id, epoch)));
    }
    let waiting = tx.number("SELECT count(*) FROM throng_ready", [])?;
    let counts = &tx.meta.counts;
    if claimed.len() as u64 != counts.running || waiting != Some(counts.waiting as i64) {
        return Err(corrupt());
    }
    let grouped = tx.ids("SELECT id FROM throng_group_run", [])?;
    if grouped.iter().any(|id| !claimed.contains_key(id)) || !are_sublists_sound(tx)? {
        return Err(corrupt());
    }
    if !meta::unknown_sets(tx.db)?.is_empty() {
        return Err(corrupt());
    }
    let last = last.map(|id| id.to_bytes());
    let mut statement = tx.db.prepare_cached(
        "SELECT * FROM throng_now WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let columns = rows::Columns::of_tasks(&statement);
    let mut page = statement.query(params![last, ROWS_PER_PASS])?;
    let (mut checked, mut last) = (0, None);
    while let Some(row) = page.next()? {
        if !rows::is_valid(row, &columns) {
            return Err(corrupt());
        }
        let id = TaskId::from_bytes(row.get("id")?);
        let is_running = row.get::<_, i64>("now")? == State::Running as i64;
        if is_running && !claimed.contains_key(&id) {
            return Err(corrupt());
        }
        if !has_rows_of_group(tx, id, row)? {
            return Err(corrupt());
        }
        (checked, last) = (checked + 1, Some(id));
    }
    Ok(last.filter(|_| checked == ROWS_PER_PASS))
}

/// Returns `true` if the other tables know the group of a task that waits or runs, if it has one.
fn has_rows_of_group(tx: &Transaction<'_>, id: TaskId, row: &Row<'_>) -> Result<bool, Fault> {
    let now: i64 = row.get("now")?;
    let (queue, group): (Option<String>, Option<String>) =
        (row.get("queue")?, row.get("group_name")?);
    if queue.is_none() || group.is_none() {
        return Ok(true);
    }
    let found = if now == State::Running as i64 {
        let sql = "SELECT 1 FROM throng_group_run WHERE id = ?1";
        tx.number(sql, [id.to_bytes()])?
    } else if now == State::Waiting as i64 {
        let sql =
            "SELECT 1 FROM throng_group AS own JOIN throng_task AS task USING (list, sublist, queue)
             WHERE task.id = ?1 AND own.name = task.group_name";
        tx.number(sql, [id.to_bytes()])?
    } else {
        Some(1)
    };
    Ok(found.is_some())
}

/// Returns `true` if tasks wait in each sublist, no turn is above the last one that was issued, and each group has a turn that may start a
/// task.
fn are_sublists_sound(tx: &Transaction<'_>) -> Result<bool, Fault> {
    // A store without groups does not read the settings of queues.
    if tx.number("SELECT EXISTS (SELECT 1 FROM throng_group)", [])? == Some(0) {
        return Ok(true);
    }
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM throng_group AS own WHERE turn > ?1
         OR turn IS NULL AND {MAY_START}
         OR NOT EXISTS (
             SELECT 1 FROM throng_ready AS ready
             WHERE ready.list = own.list AND ready.sublist = own.sublist))"
    );
    Ok(tx.number(&sql, [tx.meta.group_turn])? == Some(0))
}
