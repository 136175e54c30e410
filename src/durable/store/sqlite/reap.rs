//! Takes back the claims of dead processes, and claims whose lease is over.

use rusqlite::params;

use super::endpoint::EndpointId;
use super::error::Fault;
use super::session::Session;
use super::work::Work;
use crate::durable::store::DeadReason;

/// A claim, as far as that goes.
struct Lease {
    epoch: i64,
    lease: i64,
    suspect: Suspect,
    delivered: bool,
    /// The process that holds it; nothing if its session was closed.
    holder: Option<EndpointId>,
}

/// The state of a claim whose lease may be over.
#[derive(Clone, Copy, PartialEq)]
enum Suspect {
    /// The lease is not over, or no worker has looked.
    No = 0,
    /// A worker has found the lease over.
    Silent = 1,
    /// Its session was heard then, or later: the worker lives, and does not have the claim.
    Heard = 2,
}

/// Takes back what the dead have claimed; whether there was anything.
pub(super) fn reap_dead(work: &mut Work<'_>) -> Result<bool, Fault> {
    let mut known: Vec<(EndpointId, bool)> = Vec::new();
    let mut found = false;
    for lease in leases(work, i64::MAX)? {
        let is_dead = lease.holder.is_none_or(|holder| {
            let known_as = known.iter().find(|(other, _)| *other == holder);
            known_as.map(|&(_, dead)| dead).unwrap_or_else(|| {
                let dead = work.endpoint.is_dead(holder);
                known.push((holder, dead));
                dead
            })
        });
        if is_dead {
            reap(work, &lease, false)?;
            found = true;
        }
    }
    Ok(found)
}

/// Suspects claims whose lease is over, and takes back those that are suspected already. That their
/// holders may do nothing wrong: that they could not write, since another had the database locked,
/// this one could not see either. Whether there was anything.
pub(super) fn reap_late(work: &mut Work<'_>, by: &Session) -> Result<bool, Fault> {
    let late = leases(work, work.now.boot)?;
    for lease in &late {
        if lease.suspect != Suspect::No {
            reap(work, lease, lease.suspect == Suspect::Heard)?;
        } else {
            work.execute(
                "UPDATE throng_claim SET suspect = iif(session = ?3, 2, 1), until = ?2
                 WHERE epoch = ?1",
                params![lease.epoch, work.now.boot + lease.lease / 3, by.id],
            )?;
        }
    }
    Ok(!late.is_empty())
}

/// The claims that are over by then.
fn leases(work: &Work<'_>, by: i64) -> Result<Vec<Lease>, rusqlite::Error> {
    let mut statement = work.db.prepare_cached(
        "SELECT epoch, lease, suspect, delivered, endpoint
         FROM throng_claim LEFT JOIN throng_session ON throng_session.id = throng_claim.session
         WHERE until <= ?1 OR until > ?2 + lease ORDER BY epoch",
    )?;
    // One that is over later than it can be was given out before the machine was started.
    let leases = statement.query_map([by, work.now.boot], |row| {
        Ok(Lease {
            epoch: row.get(0)?,
            lease: row.get(1)?,
            suspect: match row.get(2)? {
                0 => Suspect::No,
                1 => Suspect::Silent,
                _ => Suspect::Heard,
            },
            delivered: row.get(3)?,
            holder: row.get(4)?,
        })
    })?;
    leases.collect()
}

/// Takes a claim back. It is abandoned if its worker lives: then its tasks have cost nothing.
fn reap(work: &mut Work<'_>, lease: &Lease, is_abandoned: bool) -> Result<(), Fault> {
    let crashes = i64::from(lease.delivered && !is_abandoned);
    let lost = i64::from(!lease.delivered && !is_abandoned);
    let mut back = Vec::new();
    for id in work.held(lease.epoch)?.ids() {
        let Some(mut task) = work.task(id)? else {
            continue;
        };
        if task.cancel {
            work.end_cancelled(id, &task)?;
            continue;
        }
        match crashes {
            0 => work.meta.counts.lost += 1,
            _ => work.meta.counts.crashed += 1,
        }
        task.crashes += crashes;
        task.lost += lost;
        if !is_abandoned && task.is_dead_letter() {
            work.die(id, &task, DeadReason::Crashes, "")?;
        } else {
            back.push(id);
        }
    }
    work.put_first(back, lost, crashes)?;
    work.execute("DELETE FROM throng_claim WHERE epoch = ?1", [lease.epoch])?;
    Ok(())
}
