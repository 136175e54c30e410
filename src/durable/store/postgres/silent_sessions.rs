//! Removes what dead processes have left: their sessions, and their rows in the tables of those who wait.
//!
//! A process lives if it holds the lock of its endpoint, which it takes when it listens to notifications: the server frees it when the
//! connection is gone. A process that cannot listen lives while it makes requests. If it is alive after all, it opens another session.

use super::error::Fault;
use super::transaction::Transaction;
use crate::sync::lock;

/// Removes sessions without claims that have been silent for long, and whose processes do not listen: those of workers, which make requests
/// all the time, and after a longer time those of producers.
const REMOVE: &str = "WITH listening AS MATERIALIZED (
        SELECT endpoint FROM throng.listener
    )
    DELETE FROM throng.session WHERE endpoint <> $1
        AND abs($2 - seen) >= CASE WHEN types IS NULL THEN $4::bigint ELSE $3::bigint END
        AND endpoint NOT IN (SELECT endpoint FROM listening)
        AND NOT EXISTS (SELECT 1 FROM throng.claim WHERE claim.session = session.id)";

const REMOVE_PARKED: &str = "DELETE FROM throng.park
    WHERE NOT EXISTS (SELECT 1 FROM throng.session WHERE session.id = park.session)";

/// Removes the rows of tasks that ended while a process began to await them, among the first `$3` rows behind that of the task `$1` and the
/// endpoint `$2`. Selects the last of these rows if there may be more.
pub(super) const REMOVE_WATCHES: &str = "WITH page AS MATERIALIZED (
        SELECT id, endpoint FROM throng.watch WHERE (id, endpoint) > ($1, $2)
        ORDER BY id, endpoint LIMIT $3
    ), removed AS (
        DELETE FROM throng.watch USING page
        WHERE watch.id = page.id AND watch.endpoint = page.endpoint
            AND NOT EXISTS (SELECT 1 FROM throng.task WHERE task.id = page.id AND state < 2)
    )
    SELECT id, endpoint FROM page ORDER BY id, endpoint OFFSET $3 - 1";

/// The number of rows of those who await tasks that a pass of maintenance reads. The next pass of the process goes on behind them.
pub(super) const WATCHES_PER_PASS: i64 = 4096;

/// The time after which the session of a worker is silent, in milliseconds.
pub(super) const WORKER_SILENCE: i64 = 180_000;

/// The same of a producer, in milliseconds.
const PRODUCER_SILENCE: i64 = 24 * 3_600_000;

pub(super) async fn remove(tx: &Transaction) -> Result<(), Fault> {
    let (own, now) = (tx.shared.endpoint, tx.now.wall);
    tx.execute(REMOVE, &[&own, &now, &WORKER_SILENCE, &PRODUCER_SILENCE])
        .await?;
    tx.execute(REMOVE_PARKED, &[]).await?;
    remove_watches(tx).await
}

async fn remove_watches(tx: &Transaction) -> Result<(), Fault> {
    let (id, endpoint) = *lock(&tx.shared.checked_watch);
    let last = tx
        .row(REMOVE_WATCHES, &[&id, &endpoint, &WATCHES_PER_PASS])
        .await?;
    let last = match last {
        Some(row) => (row.try_get("id")?, row.try_get("endpoint")?),
        None => Default::default(),
    };
    *lock(&tx.shared.checked_watch) = last;
    Ok(())
}
