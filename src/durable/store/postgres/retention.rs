//! Reads, changes and enforces the limits of what is kept of ended tasks.

use super::error::Fault;
use super::state::State;
use super::transaction::Transaction;
use super::view::{View, task_id};
use crate::durable::{Counts, Retention, TaskId};

const CHANGE: &str = "UPDATE throng.meta
    SET dead_for = $1, dead_most = $2, kept_most = $3, dead_since = $4";

const EXPIRED: &str = "SELECT id FROM throng.task
    WHERE state = $1 AND at <= $2 ORDER BY at, id LIMIT $3";

const EXCESS_DEAD: &str = "SELECT id FROM throng.task WHERE state = 4 AND at > $1
    ORDER BY at DESC, id DESC LIMIT $2 OFFSET $3";

/// Selects the tasks with a state that expire first.
const FIRST_TO_EXPIRE: &str = "SELECT at, id FROM throng.task
    WHERE state = $1 AND at IS NOT NULL ORDER BY at, id LIMIT $2";

/// Returns the limits.
pub(super) async fn read(view: &View) -> Result<Retention, Fault> {
    Ok(view.limits.retention())
}

/// Changes the limits.
pub(super) async fn change(tx: &mut Transaction, retention: Retention) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let mut limits = tx.limits;
    limits.change(retention, tx.store_time());
    let [dead_for, dead_most, kept_most, dead_since] = limits.numbers();
    tx.execute(CHANGE, &[&dead_for, &dead_most, &kept_most, &dead_since])
        .await?;
    tx.reload_meta().await
}

/// Returns ended tasks whose retention is over.
pub(super) async fn expired(view: &View, limit: i64) -> Result<Vec<TaskId>, Fault> {
    let expiry = view.expiry();
    let mut ids = Vec::new();
    for (state, cutoff) in [
        (State::Done, expiry.store_time),
        (State::Cancelled, expiry.store_time),
        (State::Dead, expiry.dead_until),
    ] {
        let limit = limit - ids.len() as i64;
        ids.extend(
            view.ids(EXPIRED, &[&state.stored(), &cutoff, &limit])
                .await?,
        );
    }
    Ok(ids)
}

/// Returns the dead letters in excess of the maximum, which are the oldest.
pub(super) async fn excess_dead(
    view: &View,
    counts: &Counts,
    limit: i64,
) -> Result<Vec<TaskId>, Fault> {
    let most = view.limits.retention().dead_most;
    if counts.dead <= most {
        return Ok(Vec::new());
    }
    let (since, most) = (view.expiry().dead_until, most as i64);
    Ok(view.ids(EXCESS_DEAD, &[&since, &limit, &most]).await?)
}

/// Returns the other ended tasks in excess of the maximum, which expire first.
pub(super) async fn excess_kept(
    view: &View,
    counts: &Counts,
    limit: i64,
) -> Result<Vec<TaskId>, Fault> {
    let most = view.limits.retention().kept_most;
    let excess = most.map_or(0, |most| counts.kept.saturating_sub(most));
    let limit = limit.min(excess as i64);
    let mut found: Vec<(i64, TaskId)> = Vec::new();
    if limit == 0 {
        return Ok(Vec::new());
    }
    for state in [State::Done, State::Cancelled] {
        let rows = view
            .rows(FIRST_TO_EXPIRE, &[&state.stored(), &limit])
            .await?;
        for row in rows {
            found.push((row.try_get("at")?, task_id(row.try_get("id")?)));
        }
    }
    found.sort_unstable();
    found.truncate(limit as usize);
    Ok(found.into_iter().map(|(_, id)| id).collect())
}
