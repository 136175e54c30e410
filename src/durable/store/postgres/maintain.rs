//! Removes what need not be kept any longer.

use std::time::Duration;

use super::error::Fault;
use super::removal::remove_ended;
use super::retention;
use super::schedules;
use super::transaction::Transaction;
use super::{reap, silent_sessions, totals};
use crate::durable::TaskId;
use crate::durable::clock::millis;

const RECORD_STORE_TIME: &str = "UPDATE throng.meta SET aged = $1, aged_at = $2";

const PASSED: &str = "SELECT passed FROM throng.meta";

const RECORD_PASS: &str = "UPDATE throng.meta SET passed = $1";

/// Does the same as [`maintain`], unless the last pass of any process that left nothing to do was less than `interval` ago.
pub(super) async fn maintain_every(
    tx: &mut Transaction,
    interval: Duration,
    budget: usize,
) -> Result<bool, Fault> {
    let passed: Option<Option<i64>> = tx.value(PASSED, &[]).await?;
    // The clock may have been set back.
    let age = passed.flatten().map(|at| tx.now.boot.abs_diff(at));
    match age.is_some_and(|age| age < millis(interval)) {
        true => Ok(false),
        false => maintain(tx, budget).await,
    }
}

/// Removes the sessions of dead processes, among others, and at most `budget` ended tasks. Returns `true` if more is left to remove.
pub(super) async fn maintain(tx: &mut Transaction, budget: usize) -> Result<bool, Fault> {
    tx.require_exclusive()?;
    record_store_time(tx).await?;
    let more = remove_tasks(tx, budget as i64).await?;
    schedules::correct_hand_outs(tx).await?;
    reap::shorten_leases(tx).await?;
    silent_sessions::remove(tx).await?;
    totals::fold(tx).await?;
    let more = tx.expire_stats().await? || more;
    if !more {
        tx.execute(RECORD_PASS, &[&tx.now.boot]).await?;
    }
    Ok(more)
}

/// Records store time. It can advance by another minute from there.
async fn record_store_time(tx: &mut Transaction) -> Result<(), Fault> {
    let (time, now) = (tx.store_time(), tx.now.boot);
    tx.execute(RECORD_STORE_TIME, &[&time, &now]).await?;
    tx.reload_meta().await
}

/// Removes the tasks that have expired, and those in excess of the maxima. Returns `true` if some are left.
async fn remove_tasks(tx: &mut Transaction, budget: i64) -> Result<bool, Fault> {
    let mut pass = Pass {
        left: budget,
        more: false,
    };
    // Each statement reads one more than may be removed, to find out whether more are left.
    let ids = retention::expired(tx, pass.left + 1).await?;
    pass.remove(tx, ids).await?;
    let deltas = std::mem::take(&mut tx.deltas);
    tx.write_deltas(deltas).await?;
    let counts = tx.totals().await?;
    let ids = retention::excess_dead(tx, &counts, pass.left + 1).await?;
    pass.remove(tx, ids).await?;
    let ids = retention::excess_kept(tx, &counts, pass.left + 1).await?;
    pass.remove(tx, ids).await?;
    Ok(pass.more)
}

/// A pass of maintenance.
struct Pass {
    /// The number of tasks that it may still remove.
    left: i64,
    /// `true` if it leaves tasks that are to be removed.
    more: bool,
}

impl Pass {
    async fn remove(&mut self, tx: &mut Transaction, mut ids: Vec<TaskId>) -> Result<(), Fault> {
        self.more |= ids.len() as i64 > self.left;
        ids.truncate(self.left as usize);
        self.left -= ids.len() as i64;
        remove_ended(tx, &ids).await
    }
}
