//! Makes the ready queue, the claims and the tasks consistent.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use crate::durable::TaskId;
use crate::durable::store::kind::Kind;
use crate::durable::store::sqlite::claimed_tasks::ClaimedTasks;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::groups::{self, TaskGroup};
use crate::durable::store::sqlite::ready_queue::NO_GROUP;
use crate::durable::store::sqlite::route_cache;

/// Removes entries without a task from the ready queue and the claims, and puts back tasks without an entry.
pub(super) fn restore(db: &Connection, damage: &mut Damage) -> Result<(), Fault> {
    let claimed = restore_claims(db)?;
    db.execute(
        "DELETE FROM throng_ready WHERE NOT EXISTS (
             SELECT 1 FROM throng_task AS task
             WHERE task.id = throng_ready.id AND task.state = 0
                 AND task.list = throng_ready.list AND task.sublist = throng_ready.sublist
                 AND task.place = throng_ready.place
                 AND (task.sublist = 0) = (task.queue IS NULL OR task.group_name IS NULL))",
        [],
    )?;
    restore_sublists(db)?;
    let mut orphans = orphans(db)?;
    orphans.retain(|orphan| !claimed.contains(&orphan.id));
    put_back(db, &orphans)?;
    restore_runs(db, &claimed)?;
    remove_progress_of_ended(db)?;
    let last = orphans.last().map(|orphan| orphan.id);
    damage.add(orphans.len(), || {
        let id = last.map_or_else(String::new, |id| id.to_string());
        format!("task {id} was in no list")
    });
    Ok(())
}

/// Derives the sublists from the tasks that wait in them. A task in the sublist of another group becomes an orphan. The groups are in the
/// order of their names.
fn restore_sublists(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute_batch(
        "DELETE FROM throng_group;
         INSERT OR IGNORE INTO throng_group (list, sublist, queue, name, turn)
             SELECT ready.list, ready.sublist, task.queue, task.group_name, 1
             FROM throng_ready AS ready JOIN throng_task AS task ON task.id = ready.id
             WHERE ready.sublist <> 0;
         DELETE FROM throng_ready WHERE sublist <> 0 AND NOT EXISTS (
             SELECT 1 FROM throng_group AS sublist JOIN throng_task AS task ON task.id = throng_ready.id
             WHERE sublist.list = throng_ready.list AND sublist.sublist = throng_ready.sublist
                 AND sublist.queue = task.queue AND sublist.name = task.group_name);
         UPDATE throng_meta SET group_turn = max(group_turn, 1);",
    )
}

/// Derives the running tasks of groups from the claims, and then which groups may be served.
fn restore_runs(db: &Connection, claimed: &BTreeSet<TaskId>) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM throng_group_run", [])?;
    let mut insert = db.prepare(
        "INSERT INTO throng_group_run (id, queue, name) SELECT id, queue, group_name FROM throng_task
         WHERE id = ?1 AND queue IS NOT NULL AND group_name IS NOT NULL",
    )?;
    for id in claimed {
        insert.execute([id.to_bytes()])?;
    }
    let mut sublists = db.prepare("SELECT DISTINCT queue, name FROM throng_group")?;
    let groups = sublists.query_map([], |row| {
        let (queue, name) = (row.get(0)?, row.get(1)?);
        Ok(TaskGroup { queue, name })
    })?;
    let mut update =
        db.prepare("UPDATE throng_group SET turn = NULL WHERE queue = ?1 AND name = ?2")?;
    for group in groups.collect::<Result<Vec<_>, _>>()? {
        if !groups::may_start(db, &group)? {
            update.execute([&group.queue, &group.name])?;
        }
    }
    Ok(())
}

/// Removes the progress of tasks that a repair has ended.
fn remove_progress_of_ended(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute_batch(
        "DELETE FROM throng_progress WHERE NOT EXISTS (
             SELECT 1 FROM throng_task AS task WHERE task.id = throng_progress.id AND state < 2)",
    )
}

/// Removes tasks from the claims that are not active. Returns those that are.
fn restore_claims(db: &Connection) -> Result<BTreeSet<TaskId>, rusqlite::Error> {
    let mut all = BTreeSet::new();
    for (epoch, mut tasks) in claims(db)? {
        let mut is_active =
            db.prepare_cached("SELECT 1 FROM throng_task WHERE id = ?1 AND state = 0")?;
        for id in tasks.ids().collect::<Vec<_>>() {
            // At most one claim keeps a task.
            if !is_active.exists([id.to_bytes()])? || !all.insert(id) {
                tasks.remove(id);
            }
        }
        match tasks.is_empty() {
            true => db.execute("DELETE FROM throng_claim WHERE epoch = ?1", [epoch])?,
            false => db.execute(
                "UPDATE throng_claim SET held = ?2 WHERE epoch = ?1",
                params![epoch, tasks],
            )?,
        };
    }
    Ok(all)
}

/// Returns the claims: their epochs, and the tasks that they hold.
pub(super) fn claims(db: &Connection) -> Result<Vec<(i64, ClaimedTasks)>, rusqlite::Error> {
    let mut claims = db.prepare("SELECT epoch, held FROM throng_claim")?;
    let claims = claims.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    claims.collect()
}

/// An active task that is not in the ready queue. A claim may hold it.
struct Orphan {
    id: TaskId,
    kind: Kind,
    position: Option<i64>,
    group: Option<TaskGroup>,
}

fn orphans(db: &Connection) -> Result<Vec<Orphan>, rusqlite::Error> {
    let mut orphans = db.prepare(
        "SELECT id, kind, place, queue, group_name FROM throng_now WHERE now = 2 AND state = 0 ORDER BY place",
    )?;
    let orphans = orphans.query_map([], |row| {
        Ok(Orphan {
            id: TaskId::from_bytes(row.get(0)?),
            kind: Kind::from_number(row.get(1)?),
            position: row.get(2)?,
            group: match (row.get(3)?, row.get(4)?) {
                (Some(queue), Some(name)) => Some(TaskGroup { queue, name }),
                _ => None,
            },
        })
    })?;
    orphans.collect()
}

/// Puts tasks into the lists from which they are claimed, each at its former position if that is free.
fn put_back(db: &Connection, orphans: &[Orphan]) -> Result<(), Fault> {
    let routes = route_cache::read(db)?;
    let tail = "SELECT coalesce(max(place), 0) FROM throng_ready";
    let mut tail: i64 = db.query_row(tail, [], |row| row.get(0))?;
    let mut insert = db.prepare(
        "INSERT OR IGNORE INTO throng_ready (list, sublist, place, id) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let mut update =
        db.prepare("UPDATE throng_task SET list = ?2, sublist = ?3, place = ?4 WHERE id = ?1")?;
    for orphan in orphans {
        let (id, list) = (orphan.id.to_bytes(), routes.leaf(orphan.kind));
        let sublist = match &orphan.group {
            Some(group) => groups::sublist_of(db, list, group, || 1)?,
            None => NO_GROUP,
        };
        // Behind a position that is out of reach, no task could be stored.
        let former = orphan
            .position
            .filter(|place| place.unsigned_abs() < 1 << 62);
        let mut position = former.unwrap_or(tail);
        while insert.execute(params![list.number(), sublist, position, id])? == 0 {
            tail += 1;
            position = tail;
        }
        update.execute(params![id, list.number(), sublist, position])?;
    }
    Ok(())
}
