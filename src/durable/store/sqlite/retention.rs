//! Reads, changes and enforces the limits of what is kept of ended tasks.

use rusqlite::params;

use super::error::Fault;
use super::meta::Meta;
use super::reader::ReadConnection;
use super::state::StoredState;
use super::transaction::Transaction;
use crate::durable::{Retention, TaskId};

pub(super) fn read(reader: &ReadConnection) -> Result<Retention, Fault> {
    reader.snapshot(|db| Ok(Meta::load(db, reader.shared.layouts)?.limits.retention()))
}

pub(super) fn change(tx: &mut Transaction<'_>, retention: Retention) {
    tx.meta.limits.change(retention, tx.store_time());
}

/// Returns ended tasks whose retention is over.
pub(super) fn expired(tx: &Transaction<'_>, limit: i64) -> Result<Vec<TaskId>, rusqlite::Error> {
    let sql = "SELECT id FROM throng_task WHERE state = ?1 AND at <= ?2 LIMIT ?3";
    let expiry = tx.expiry();
    let mut ids = Vec::new();
    for (state, cutoff) in [
        (StoredState::Done, expiry.store_time),
        (StoredState::Cancelled, expiry.store_time),
        (StoredState::Dead, expiry.dead_until),
    ] {
        let limit = limit - ids.len() as i64;
        ids.extend(tx.ids(sql, params![state as i64, cutoff, limit])?);
    }
    Ok(ids)
}

/// Returns the dead letters in excess of the maximum, which are the oldest.
pub(super) fn excess_dead(
    tx: &Transaction<'_>,
    limit: i64,
) -> Result<Vec<TaskId>, rusqlite::Error> {
    let most = tx.meta.limits.retention().dead_most;
    if tx.meta.counts.dead <= most {
        return Ok(Vec::new());
    }
    tx.ids(
        "SELECT id FROM throng_task WHERE state = 4 AND at > ?1
         ORDER BY at DESC, id DESC LIMIT ?2 OFFSET ?3",
        [tx.expiry().dead_until, limit, most as i64],
    )
}

/// Selects the tasks with a state that expire first.
pub(super) const FIRST_TO_EXPIRE: &str =
    "SELECT at, id FROM throng_task WHERE state = ?1 AND at IS NOT NULL ORDER BY at, id LIMIT ?2";

/// Returns the other ended tasks in excess of the maximum, which expire first.
pub(super) fn excess_kept(
    tx: &Transaction<'_>,
    limit: i64,
) -> Result<Vec<TaskId>, rusqlite::Error> {
    let most = tx.meta.limits.retention().kept_most;
    let excess = most.map_or(0, |most| tx.meta.counts.kept.saturating_sub(most));
    let limit = limit.min(excess as i64);
    let mut found: Vec<(i64, TaskId)> = Vec::new();
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut statement = tx.db.prepare_cached(FIRST_TO_EXPIRE)?;
    for state in [StoredState::Done, StoredState::Cancelled] {
        let rows = statement.query_map([state as i64, limit], |row| {
            Ok((row.get(0)?, TaskId::from_bytes(row.get(1)?)))
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort_unstable();
    found.truncate(limit as usize);
    Ok(found.into_iter().map(|(_, id)| id).collect())
}
