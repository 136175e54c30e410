//! Renews the leases of claims.

use super::error::Fault;
use super::transaction::Transaction;
use super::view::task_id;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, RenewAnswer};

const RENEW: &str = "UPDATE throng.claim
    SET until = $2 + lease, suspect = 0, delivered = delivered OR $3 WHERE epoch = $1";

/// Records that the worker of a claim lives, for all suspect claims of its session.
const CONFIRM_ALIVE: &str = "UPDATE throng.claim SET suspect = 2
    WHERE suspect = 1 AND session = (SELECT session FROM throng.claim WHERE epoch = $1)";

/// Selects the tasks of a claim that are to be cancelled.
const CANCELLED: &str =
    "SELECT task.id FROM throng.claim CROSS JOIN LATERAL unnest(held) AS own (id)
    JOIN throng.task ON task.id = own.id
    WHERE epoch = $1 AND cancels AND task.cancel ORDER BY task.id";

const SEEN: &str = "UPDATE throng.session SET seen = $2::bigint
    WHERE id = (SELECT session FROM throng.claim WHERE epoch = $1) AND seen < $2::bigint - 30000";

pub(super) async fn renew(tx: &mut Transaction, claims: &Vec<Epoch>) -> Result<RenewAnswer, Fault> {
    let mut renewed = RenewAnswer::default();
    for &epoch in claims {
        if !renew_lease(tx, epoch as i64, true).await? {
            renewed.lost.push(epoch);
            continue;
        }
        let epoch = epoch as i64;
        tx.execute(CONFIRM_ALIVE, &[&epoch]).await?;
        tx.execute(SEEN, &[&epoch, &tx.now.wall]).await?;
        renewed.cancelled.extend(cancelled(tx, epoch).await?);
    }
    Ok(renewed)
}

/// Renews the lease of a claim. Returns `false` if the claim no longer exists.
pub(super) async fn renew_lease(
    tx: &Transaction,
    epoch: i64,
    is_delivered: bool,
) -> Result<bool, Fault> {
    Ok(tx
        .execute(RENEW, &[&epoch, &tx.now.boot, &is_delivered])
        .await?
        != 0)
}

async fn cancelled(tx: &Transaction, epoch: i64) -> Result<Vec<TaskId>, Fault> {
    let ids: Vec<uuid::Uuid> = tx.values(CANCELLED, &[&epoch]).await?;
    Ok(ids.into_iter().map(task_id).collect())
}
