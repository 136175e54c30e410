//! Renews the leases of claims.

use rusqlite::params;

use super::error::Fault;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, RenewAnswer};

pub(super) fn renew(tx: &mut Transaction<'_>, claims: &[Epoch]) -> Result<RenewAnswer, Fault> {
    let mut renewed = RenewAnswer::default();
    for &epoch in claims {
        if !renew_lease(tx, epoch as i64, true)? {
            renewed.lost.push(epoch);
            continue;
        }
        confirm_worker_alive(tx, epoch as i64)?;
        renewed.cancelled.extend(cancelled(tx, epoch as i64)?);
    }
    Ok(renewed)
}

/// Records that the worker of a claim lives, for all suspect claims of its session.
fn confirm_worker_alive(tx: &Transaction<'_>, epoch: i64) -> Result<(), rusqlite::Error> {
    tx.execute(
        "UPDATE throng_claim SET suspect = 2
         WHERE suspect = 1 AND session = (SELECT session FROM throng_claim WHERE epoch = ?1)",
        [epoch],
    )?;
    Ok(())
}

/// Renews the lease of a claim. Returns `false` if the claim no longer exists.
pub(super) fn renew_lease(
    tx: &Transaction<'_>,
    epoch: i64,
    is_delivered: bool,
) -> Result<bool, rusqlite::Error> {
    let renewed = tx.execute(
        "UPDATE throng_claim
         SET until = ?2 + lease, suspect = 0, delivered = max(delivered, ?3) WHERE epoch = ?1",
        params![epoch, tx.now.boot, is_delivered],
    )?;
    Ok(renewed != 0)
}

/// Returns the tasks of a claim that are to be cancelled. Reads the tasks only if the claim is marked.
fn cancelled(tx: &Transaction<'_>, epoch: i64) -> Result<Vec<TaskId>, Fault> {
    let cancels = "SELECT cancels FROM throng_claim WHERE epoch = ?1";
    if tx.number(cancels, [epoch])?.unwrap_or_default() == 0 {
        return Ok(Vec::new());
    }
    let mut ids = Vec::new();
    for id in tx.claimed_tasks(epoch)?.ids() {
        if tx.task(id)?.is_some_and(|task| task.cancel) {
            ids.push(id);
        }
    }
    Ok(ids)
}
