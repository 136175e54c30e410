//! Takes back the claims of dead processes, and claims whose lease is over.

use rusqlite::params;

use super::endpoint::EndpointId;
use super::error::Fault;
use super::transaction::Transaction;
use crate::durable::store::DeadReason;

/// The lease of a claim.
struct Lease {
    epoch: i64,
    /// The length of the lease, in milliseconds.
    length: i64,
    suspect: Suspect,
    is_delivered: bool,
    /// The endpoint that holds the claim, or `None` if its session was closed.
    worker: Option<EndpointId>,
}

/// The state of a lease that may have expired.
#[derive(Clone, Copy, PartialEq)]
enum Suspect {
    /// The lease has not expired, or no worker has noticed that it has.
    No = 0,
    /// A worker has found the lease expired, and the session of the claim has made no request since.
    Silent = 1,
    /// The same, but the session has made a request since. So its worker lives, and does not have the claim.
    Active = 2,
}

/// Takes back the claims of dead processes. Returns `true` if there were any.
pub(super) fn reap_dead(tx: &mut Transaction<'_>) -> Result<bool, Fault> {
    let mut checked: Vec<(EndpointId, bool)> = Vec::new();
    let mut has_reaped = false;
    for lease in leases(tx, i64::MAX)? {
        let is_dead = lease.worker.is_none_or(|worker| {
            let before = checked.iter().find(|(other, _)| *other == worker);
            before.map(|&(_, is_dead)| is_dead).unwrap_or_else(|| {
                let is_dead = tx.shared.endpoint.is_dead(worker);
                checked.push((worker, is_dead));
                is_dead
            })
        });
        if is_dead {
            reap(tx, &lease, false)?;
            has_reaped = true;
        }
    }
    Ok(has_reaped)
}

/// Suspects claims whose lease has expired, and takes back those that are suspected already. So a lease gets a second
/// chance: its worker may have been unable to renew it because another process had locked the database, and then this
/// process could not notice that it was late, either. `session` is the session that makes this request. Returns `true`
/// if any lease has expired.
pub(super) fn reap_late(tx: &mut Transaction<'_>, session: i64) -> Result<bool, Fault> {
    let late = leases(tx, tx.now.boot)?;
    for lease in &late {
        if lease.suspect != Suspect::No {
            reap(tx, lease, lease.suspect == Suspect::Active)?;
        } else {
            tx.execute(
                "UPDATE throng_claim SET suspect = iif(session = ?3, 2, 1), until = ?2
                 WHERE epoch = ?1",
                params![lease.epoch, tx.now.boot + lease.length / 3, session],
            )?;
        }
    }
    Ok(!late.is_empty())
}

/// Returns the leases that have expired at a time, which is measured from the start of the machine.
fn leases(tx: &Transaction<'_>, time: i64) -> Result<Vec<Lease>, rusqlite::Error> {
    let mut statement = tx.db.prepare_cached(
        "SELECT epoch, lease, suspect, delivered, endpoint
         FROM throng_claim LEFT JOIN throng_session ON throng_session.id = throng_claim.session
         WHERE until <= ?1 OR until > ?2 + lease ORDER BY epoch",
    )?;
    // A lease that ends later than is possible was granted before the machine was started.
    let leases = statement.query_map([time, tx.now.boot], |row| {
        Ok(Lease {
            epoch: row.get(0)?,
            length: row.get(1)?,
            suspect: match row.get(2)? {
                0 => Suspect::No,
                1 => Suspect::Silent,
                _ => Suspect::Active,
            },
            is_delivered: row.get(3)?,
            worker: row.get(4)?,
        })
    })?;
    leases.collect()
}

/// Takes a claim back. If its worker lives and does not have the claim, nothing is counted against the tasks.
fn reap(tx: &mut Transaction<'_>, lease: &Lease, is_abandoned: bool) -> Result<(), Fault> {
    let crashes = i64::from(lease.is_delivered && !is_abandoned);
    let lost = i64::from(!lease.is_delivered && !is_abandoned);
    let mut ready = Vec::new();
    let (claimed, is_queued) = tx.stop_claimed_tasks(lease.epoch)?;
    for id in claimed.ids() {
        if is_queued {
            tx.stop_in_group(id)?;
        }
        let Some(mut task) = tx.task(id)? else {
            continue;
        };
        if task.cancel {
            tx.end_cancelled(id, &task)?;
            continue;
        }
        match crashes {
            0 => tx.meta.counts.lost += 1,
            _ => tx.meta.counts.crashed += 1,
        }
        task.crashes += crashes;
        task.lost += lost;
        if !is_abandoned && task.is_dead_letter() {
            tx.mark_dead(id, &task, DeadReason::Crashes, "")?;
        } else {
            ready.push(id);
        }
    }
    tx.push_front(ready, lost, crashes)?;
    tx.execute("DELETE FROM throng_claim WHERE epoch = ?1", [lease.epoch])?;
    Ok(())
}
