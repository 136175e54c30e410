//! Renews the leases of claims.

use super::error::Fault;
use super::transaction::Transaction;
use super::view::task_id;
use crate::durable::store::{Epoch, RenewAnswer};

const RENEW: &str = "UPDATE throng.claim
    SET until = $2 + lease, suspect = 0, delivered = delivered OR $3
    WHERE epoch = ANY ($1) RETURNING epoch, session";

/// Records that the workers of sessions live, for all of their suspect claims that were not renewed.
const CONFIRM_ALIVE: &str = "UPDATE throng.claim SET suspect = 2
    WHERE session = ANY ($1) AND suspect = 1";

/// Selects the tasks of claims that are to be cancelled.
const CANCELLED: &str =
    "SELECT task.id FROM throng.claim CROSS JOIN LATERAL unnest(held) AS own (id)
    CROSS JOIN LATERAL (SELECT id FROM throng.task WHERE task.id = own.id AND cancel OFFSET 0) AS task
    WHERE epoch = ANY ($1) AND cancels
    ORDER BY array_position($1, epoch), task.id";

const SEEN: &str = "UPDATE throng.session SET seen = $2::bigint
    WHERE id = ANY ($1) AND abs($2::bigint - seen) >= 30000";

/// The number of statements does not depend on the number of claims, so a worker with many of them renews them in time.
pub(super) async fn renew(tx: &mut Transaction, claims: &[Epoch]) -> Result<RenewAnswer, Fault> {
    let epochs: Vec<_> = claims.iter().map(|&epoch| epoch as i64).collect();
    let mut renewed = Vec::with_capacity(epochs.len());
    let mut sessions = Vec::new();
    for row in tx.rows(RENEW, &[&epochs, &tx.now.boot, &true]).await? {
        renewed.push(row.try_get::<_, i64>("epoch")?);
        sessions.push(row.try_get::<_, i64>("session")?);
    }
    tx.execute(CONFIRM_ALIVE, &[&sessions]).await?;
    tx.execute(SEEN, &[&sessions, &tx.now.wall]).await?;
    let cancelled: Vec<uuid::Uuid> = tx.values(CANCELLED, &[&epochs]).await?;
    renewed.sort_unstable();
    let lost = claims.iter().copied();
    let lost = lost.filter(|&epoch| renewed.binary_search(&(epoch as i64)).is_err());
    Ok(RenewAnswer {
        lost: lost.collect(),
        cancelled: cancelled.into_iter().map(task_id).collect(),
        unreached: Vec::new(),
    })
}

/// Renews the lease of a claim whose answer was lost. Returns `false` if the claim no longer exists.
pub(super) async fn renew_lost(tx: &Transaction, epoch: i64) -> Result<bool, Fault> {
    let renewed = tx
        .rows(RENEW, &[&vec![epoch], &tx.now.boot, &false])
        .await?;
    Ok(!renewed.is_empty())
}
