//! Takes back the claims of closed sessions, and claims whose lease is over.
//!
//! A request takes back a part of them, with a number of statements that does not depend on the number of claims. So it ends in time,
//! however many workers have crashed. If claims are left, a session looks again at once.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use super::line::GivenBack;
use super::silent_sessions::WORKER_SILENCE;
use super::task::Task;
use super::text;
use super::transaction::Transaction;
use super::view::task_id;
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::store::DeadReason;

/// Selects the claims of sessions that do not exist. A claim that another transaction uses is left to the next turn.
const OF_CLOSED: &str = "SELECT epoch, held, queue, suspect, delivered FROM throng.claim
    WHERE NOT EXISTS (SELECT 1 FROM throng.session WHERE session.id = claim.session)
    ORDER BY epoch LIMIT $1 FOR UPDATE SKIP LOCKED";

/// Selects the claims whose lease has expired.
pub(super) const LATE: &str = "SELECT epoch, held, queue, suspect, delivered FROM throng.claim
    WHERE until <= $2 ORDER BY until, epoch LIMIT $1 FOR UPDATE SKIP LOCKED";

/// Selects the claims that are suspected already, and whose sessions have been silent for long while their processes do not listen.
const OF_GONE: &str = "SELECT epoch, held, queue, suspect, delivered FROM throng.claim
    WHERE until <= $2 AND suspect = 1 AND session IN (
        SELECT id FROM throng.session WHERE abs($3 - seen) >= $4
            AND endpoint <> ALL (ARRAY(SELECT endpoint FROM throng.listener))
    ) ORDER BY until, epoch LIMIT $1 FOR UPDATE SKIP LOCKED";

const SUSPECT: &str = "UPDATE throng.claim
    SET suspect = CASE WHEN session = $3 THEN 2 ELSE 1 END, until = $2 + lease / 3
    WHERE epoch = ANY ($1)";

/// Ends leases in time that were granted before the clock was set back.
const SHORTEN: &str = "UPDATE throng.claim SET until = $1 + lease WHERE until > $1 + lease";

/// The number of claims that a request suspects or takes back at most.
pub(super) const MAX_CLAIMS: i64 = 64;

/// The number of tasks of these claims, unless the first one holds more.
const MAX_TASKS: usize = 1000;

/// A claim whose worker is gone, or late.
struct LateClaim {
    epoch: i64,
    held: Vec<TaskId>,
    queue: Option<QueueName>,
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

/// The claims that a request has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FoundClaims {
    Nothing,
    All,
    /// The first ones. There may be more.
    Some,
}

/// Takes back the claims of sessions that were closed.
pub(super) async fn reap_dead(tx: &mut Transaction) -> Result<FoundClaims, Fault> {
    let rows = tx.rows(OF_CLOSED, &[&MAX_CLAIMS]).await?;
    let (claims, found) = read(tx, &rows)?;
    reap(tx, claims, |_| false).await?;
    Ok(found)
}

/// Takes back the claims of processes that are gone. So a client that opens a session sees what dead workers have left, even if no worker
/// makes a turn.
pub(super) async fn reap_gone(tx: &mut Transaction) -> Result<(), Fault> {
    let (boot, wall) = (tx.now.boot, tx.now.wall);
    let rows = tx
        .rows(OF_GONE, &[&MAX_CLAIMS, &boot, &wall, &WORKER_SILENCE])
        .await?;
    let (claims, _) = read(tx, &rows)?;
    reap(tx, claims, |_| false).await
}

/// Suspects claims whose lease has expired, and takes back those that are suspected already. So a lease gets a second chance: its worker
/// may have been unable to renew it because the server was down, and then this process could not notice that it was late, either. `session`
/// is the session that makes this request.
pub(super) async fn reap_late(tx: &mut Transaction, session: i64) -> Result<FoundClaims, Fault> {
    let now = tx.now.boot;
    let rows = tx.rows(LATE, &[&MAX_CLAIMS, &now]).await?;
    let (claims, found) = read(tx, &rows)?;
    let (new, suspects): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|it| it.suspect == Suspect::No);
    if !new.is_empty() {
        let epochs: Vec<_> = new.iter().map(|it| it.epoch).collect();
        tx.execute(SUSPECT, &[&epochs, &now, &session]).await?;
    }
    reap(tx, suspects, |it| it.suspect == Suspect::Active).await?;
    Ok(found)
}

/// Ends the leases in time that would last for longer than they were granted because the clock was set back.
pub(super) async fn shorten_leases(tx: &Transaction) -> Result<(), Fault> {
    tx.require_exclusive()?;
    tx.execute(SHORTEN, &[&tx.now.boot]).await?;
    Ok(())
}

/// Reads claims, as many as a request may take back. If more are left, another session looks for them, too.
fn read(tx: &mut Transaction, rows: &[Row]) -> Result<(Vec<LateClaim>, FoundClaims), Fault> {
    let (mut claims, mut tasks) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        let claim = read_one(row)?;
        tasks += claim.held.len();
        if tasks > MAX_TASKS && !claims.is_empty() {
            break;
        }
        claims.push(claim);
    }
    let found = match claims.len() {
        0 => FoundClaims::Nothing,
        read if read < rows.len() || read as i64 == MAX_CLAIMS => FoundClaims::Some,
        _ => FoundClaims::All,
    };
    tx.notices.needs_any |= found == FoundClaims::Some;
    claims.sort_unstable_by_key(|claim| claim.epoch);
    Ok((claims, found))
}

fn read_one(row: &Row) -> Result<LateClaim, Fault> {
    let held: Vec<Uuid> = row.try_get("held")?;
    let mut held: Vec<_> = held.into_iter().map(task_id).collect();
    held.sort_unstable();
    let queue: Option<String> = row.try_get("queue")?;
    Ok(LateClaim {
        epoch: row.try_get("epoch")?,
        held,
        queue: queue.map(|name| QueueName::from(Some(text::loaded(name)))),
        suspect: match row.try_get::<_, i16>("suspect")? {
            0 => Suspect::No,
            1 => Suspect::Silent,
            _ => Suspect::Active,
        },
        is_delivered: row.try_get("delivered")?,
    })
}

/// Takes claims back. The tasks of the last one come first in their lines.
async fn reap(
    tx: &mut Transaction,
    claims: Vec<LateClaim>,
    is_abandoned: fn(&LateClaim) -> bool,
) -> Result<(), Fault> {
    if claims.is_empty() {
        return Ok(());
    }
    stop_in_queues(tx, &claims).await?;
    let ids: Vec<_> = claims.iter().flat_map(|it| &it.held).copied().collect();
    let mut tasks = tx.locked_tasks(&ids).await?;
    let mut given_back = Vec::with_capacity(claims.len());
    for claim in &claims {
        let is_abandoned = is_abandoned(claim);
        given_back.push(give_back(tx, claim, is_abandoned, &mut tasks).await?);
    }
    let given_back: Vec<_> = given_back.into_iter().rev().flatten().collect();
    tx.push_front(&given_back).await?;
    let epochs: Vec<_> = claims.iter().map(|it| it.epoch).collect();
    tx.remove_claims(&epochs).await
}

/// Records that the tasks of named queues stop running.
async fn stop_in_queues(tx: &mut Transaction, claims: &[LateClaim]) -> Result<(), Fault> {
    let mut ids = Vec::new();
    for claim in claims {
        if let Some(queue) = &claim.queue {
            tx.tasks_stop(queue)?;
            ids.extend(&claim.held);
        }
    }
    match ids.is_empty() {
        true => Ok(()),
        false => tx.groups_stopped(&ids).await,
    }
}

/// Ends the tasks of a claim that are to be cancelled, or that have crashed too often. Returns the others. If the worker of the claim lives
/// and does not have it, nothing is counted against them.
async fn give_back(
    tx: &mut Transaction,
    claim: &LateClaim,
    is_abandoned: bool,
    tasks: &mut HashMap<TaskId, Task>,
) -> Result<Vec<GivenBack>, Fault> {
    let crashes = i32::from(claim.is_delivered && !is_abandoned);
    let lost = i32::from(!claim.is_delivered && !is_abandoned);
    let mut given_back = Vec::with_capacity(claim.held.len());
    for &id in &claim.held {
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
            given_back.push(GivenBack { id, lost, crashes });
        }
    }
    Ok(given_back)
}
