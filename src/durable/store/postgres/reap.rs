//! Takes back the claims of closed sessions, and claims whose lease is over.

use tokio_postgres::Row;

use super::error::Fault;
use super::silent_sessions::WORKER_SILENCE;
use super::transaction::Transaction;
use crate::durable::store::DeadReason;

/// Selects the claims of sessions that do not exist. A claim that another transaction uses is left to the next turn.
const OF_CLOSED: &str = "SELECT epoch, lease, suspect, delivered FROM throng.claim
    WHERE NOT EXISTS (SELECT 1 FROM throng.session WHERE session.id = claim.session)
    ORDER BY epoch FOR UPDATE SKIP LOCKED";

/// Selects the claims whose lease has expired.
const LATE: &str = "SELECT epoch, lease, suspect, delivered FROM throng.claim
    WHERE until <= $1 ORDER BY epoch FOR UPDATE SKIP LOCKED";

/// Selects the claims that are suspected already, and whose sessions have been silent for long while their processes do not listen.
const OF_GONE: &str = "SELECT epoch, lease, suspect, delivered FROM throng.claim
    WHERE until <= $1 AND suspect = 1 AND session IN (
        SELECT id FROM throng.session WHERE abs($2 - seen) >= $3
            AND endpoint <> ALL (ARRAY(SELECT endpoint FROM throng.listener))
    ) ORDER BY epoch FOR UPDATE SKIP LOCKED";

const SUSPECT: &str = "UPDATE throng.claim
    SET suspect = CASE WHEN session = $3 THEN 2 ELSE 1 END, until = $2 WHERE epoch = $1";

/// The lease of a claim.
struct Lease {
    epoch: i64,
    /// The length of the lease, in milliseconds.
    length: i64,
    suspect: Suspect,
    is_delivered: bool,
}

/// The state of a lease that may have expired.
#[derive(Clone, Copy, PartialEq)]
enum Suspect {
    /// The lease has not expired, or no worker has noticed that it has.
    No,
    /// A worker has found the lease expired, and the session of the claim has made no request since.
    Silent,
    /// The same, but the session has made a request since. So its worker lives, and does not have the claim.
    Active,
}

/// Takes back the claims of sessions that were closed. Returns `true` if there were any.
pub(super) async fn reap_dead(tx: &mut Transaction) -> Result<bool, Fault> {
    let rows = tx.rows(OF_CLOSED, &[]).await?;
    for row in &rows {
        reap(tx, &read(row)?, false).await?;
    }
    Ok(!rows.is_empty())
}

/// Takes back the claims of processes that are gone. So a client that opens a session sees what dead workers have left, even if no worker
/// makes a turn.
pub(super) async fn reap_gone(tx: &mut Transaction) -> Result<(), Fault> {
    let (boot, wall) = (tx.now.boot, tx.now.wall);
    for row in &tx.rows(OF_GONE, &[&boot, &wall, &WORKER_SILENCE]).await? {
        reap(tx, &read(row)?, false).await?;
    }
    Ok(())
}

/// Suspects claims whose lease has expired, and takes back those that are suspected already. So a lease gets a second chance: its worker
/// may have been unable to renew it because the server was down, and then this process could not notice that it was late, either. `session`
/// is the session that makes this request. Returns `true` if any lease has expired.
pub(super) async fn reap_late(tx: &mut Transaction, session: i64) -> Result<bool, Fault> {
    let rows = tx.rows(LATE, &[&tx.now.boot]).await?;
    for row in &rows {
        let lease = read(row)?;
        if lease.suspect == Suspect::No {
            let until = tx.now.boot + lease.length / 3;
            tx.execute(SUSPECT, &[&lease.epoch, &until, &session])
                .await?;
        } else {
            reap(tx, &lease, lease.suspect == Suspect::Active).await?;
        }
    }
    Ok(!rows.is_empty())
}

fn read(row: &Row) -> Result<Lease, Fault> {
    Ok(Lease {
        epoch: row.try_get("epoch")?,
        length: row.try_get("lease")?,
        suspect: match row.try_get::<_, i16>("suspect")? {
            0 => Suspect::No,
            1 => Suspect::Silent,
            _ => Suspect::Active,
        },
        is_delivered: row.try_get("delivered")?,
    })
}

/// Takes a claim back. If its worker lives and does not have the claim, nothing is counted against the tasks.
async fn reap(tx: &mut Transaction, lease: &Lease, is_abandoned: bool) -> Result<(), Fault> {
    let crashes = i32::from(lease.is_delivered && !is_abandoned);
    let lost = i32::from(!lease.is_delivered && !is_abandoned);
    let claimed = tx.stop_claimed_tasks(lease.epoch).await?;
    let ids: Vec<_> = claimed.ids.into_iter().collect();
    if claimed.queue.is_some() {
        tx.groups_stopped(&ids).await?;
    }
    let mut tasks = tx.locked_tasks(&ids).await?;
    let mut ready = Vec::new();
    for id in ids {
        let Some(mut task) = tasks.remove(&id) else {
            continue;
        };
        if task.cancel {
            tx.end_cancelled(id, &task).await?;
            continue;
        }
        match crashes {
            0 => tx.deltas.add(|it| &mut it.lost, 1),
            _ => tx.deltas.add(|it| &mut it.crashed, 1),
        }
        task.crashes += crashes;
        task.lost += lost;
        if !is_abandoned && task.is_dead_letter() {
            tx.mark_dead(id, &task, DeadReason::Crashes, "", None)
                .await?;
        } else {
            ready.push(id);
        }
    }
    tx.push_front(&ready, lost, crashes).await?;
    tx.remove_claim(lease.epoch).await
}
