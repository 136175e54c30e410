//! Taking back what the dead and the late have claimed.

use rusqlite::params;

use super::endpoint::EndpointId;
use super::error::Fault;
use super::work::Work;
use crate::durable::store::DeadReason;

/// A claim, as far as that goes.
struct Lease {
    epoch: i64,
    lease: i64,
    suspect: bool,
    confirmed: bool,
    /// The process that holds it; nothing if its session was closed.
    holder: Option<EndpointId>,
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
            reap(work, &lease)?;
            found = true;
        }
    }
    Ok(found)
}

/// Suspects claims whose lease is over, and takes back those that are suspected already. That their
/// holders may do nothing wrong: that they could not write, since another had the database locked,
/// this one could not see either. Whether there was anything.
pub(super) fn reap_late(work: &mut Work<'_>) -> Result<bool, Fault> {
    let late = leases(work, work.now.boot)?;
    for lease in &late {
        if lease.suspect {
            reap(work, lease)?;
        } else {
            work.execute(
                "UPDATE throng_claim SET suspect = 1, until = ?2 WHERE epoch = ?1",
                params![lease.epoch, work.now.boot + lease.lease / 3],
            )?;
        }
    }
    Ok(!late.is_empty())
}

/// The claims that are over by then.
fn leases(work: &Work<'_>, by: i64) -> Result<Vec<Lease>, rusqlite::Error> {
    let mut statement = work.db.prepare_cached(
        "SELECT epoch, lease, suspect, confirmed, endpoint
         FROM throng_claim LEFT JOIN throng_session ON throng_session.id = throng_claim.session
         WHERE until <= ?1 OR until > ?2 + lease ORDER BY epoch",
    )?;
    // One that is over later than it can be was given out before the machine was started.
    let leases = statement.query_map([by, work.now.boot], |row| {
        Ok(Lease {
            epoch: row.get(0)?,
            lease: row.get(1)?,
            suspect: row.get(2)?,
            confirmed: row.get(3)?,
            holder: row.get(4)?,
        })
    })?;
    leases.collect()
}

fn reap(work: &mut Work<'_>, lease: &Lease) -> Result<(), Fault> {
    let mut back = Vec::new();
    for id in work.held(lease.epoch)?.ids() {
        let Some(mut task) = work.task(id)? else {
            continue;
        };
        if task.cancel {
            work.end_cancelled(id, &task)?;
            continue;
        }
        match lease.confirmed {
            true => work.meta.counts.crashed += 1,
            false => work.meta.counts.lost += 1,
        }
        task.crashes += i64::from(lease.confirmed);
        if lease.confirmed && task.crashes > task.max_crashes {
            work.die(id, &task, DeadReason::Crashes, "")?;
        } else {
            back.push(id);
        }
    }
    let crashes = i64::from(lease.confirmed);
    work.put_first(back, 1 - crashes, crashes)?;
    work.execute("DELETE FROM throng_claim WHERE epoch = ?1", [lease.epoch])?;
    Ok(())
}
