//! Makes the ready queue, the claims and the tasks consistent.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use crate::durable::TaskId;
use crate::durable::store::kind::Kind;
use crate::durable::store::sqlite::claimed_tasks::ClaimedTasks;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::error::Fault;
use crate::durable::store::sqlite::route_cache;

/// Removes entries without a task from the ready queue and the claims, and puts back tasks without an entry.
pub(super) fn restore(db: &Connection, damage: &mut Damage) -> Result<(), Fault> {
    let claimed = restore_claims(db)?;
    db.execute(
        "DELETE FROM throng_ready WHERE NOT EXISTS (
             SELECT 1 FROM throng_task AS task
             WHERE task.id = throng_ready.id AND task.state = 0
                 AND task.list = throng_ready.list AND task.place = throng_ready.place)",
        [],
    )?;
    let mut orphans = orphans(db)?;
    orphans.retain(|orphan| !claimed.contains(&orphan.id));
    put_back(db, &orphans)?;
    let last = orphans.last().map(|orphan| orphan.id);
    damage.add(orphans.len(), || {
        let id = last.map_or_else(String::new, |id| id.to_string());
        format!("task {id} was in no list")
    });
    Ok(())
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
}

fn orphans(db: &Connection) -> Result<Vec<Orphan>, rusqlite::Error> {
    let mut orphans = db.prepare(
        "SELECT id, kind, place FROM throng_now WHERE now = 2 AND state = 0 ORDER BY place",
    )?;
    let orphans = orphans.query_map([], |row| {
        Ok(Orphan {
            id: TaskId::from_bytes(row.get(0)?),
            kind: Kind::from_number(row.get(1)?),
            position: row.get(2)?,
        })
    })?;
    orphans.collect()
}

/// Puts tasks into the lists from which they are claimed, each at its former position if that is free.
fn put_back(db: &Connection, orphans: &[Orphan]) -> Result<(), Fault> {
    let routes = route_cache::read(db)?;
    let tail = "SELECT coalesce(max(place), 0) FROM throng_ready";
    let mut tail: i64 = db.query_row(tail, [], |row| row.get(0))?;
    let mut insert =
        db.prepare("INSERT OR IGNORE INTO throng_ready (list, place, id) VALUES (?1, ?2, ?3)")?;
    let mut update = db.prepare("UPDATE throng_task SET list = ?2, place = ?3 WHERE id = ?1")?;
    for orphan in orphans {
        let (id, list) = (orphan.id.to_bytes(), routes.leaf(orphan.kind).number());
        let mut position = orphan.position.unwrap_or(tail);
        while insert.execute(params![list, position, id])? == 0 {
            tail += 1;
            position = tail;
        }
        update.execute(params![id, list, position])?;
    }
    Ok(())
}
