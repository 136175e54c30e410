//! A worker's turn: applies verdicts, takes back expired claims, makes delayed tasks ready, and claims tasks.

use rusqlite::params;

use super::claim::{claim, read_task};
use super::error::Fault;
use super::groups;
use super::next_check::{earlier, is_any_ready, next_check};
use super::queues;
use super::reap;
use super::renew::renew_lease;
use super::schedules;
use super::session::{self, Session};
use super::state::State;
use super::transaction::Transaction;
use super::verdicts;
use crate::durable::queue::name::QueueName;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::{Claim, Epoch, Turn, TurnAnswer, Verdict};

/// The number of delayed tasks that a turn makes due, at most.
const MAX_DUE: i64 = 256;

pub(super) fn turn(tx: &mut Transaction<'_>, request: &Turn) -> Result<TurnAnswer, Fault> {
    tx.shared.endpoint.remove_idle(request.session);
    let session = session::find(tx, request.session)?;
    let is_last = session.is_last(request.number)?;
    confirm_alive(tx, &session, request.received)?;
    let mut turned = match is_last {
        true => repeat(tx, &session)?,
        false => take(tx, &session, request)?,
    };
    let mut claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
    let quarantined = request.quarantined && !claimed.any(|task| task.quarantined);
    let lists = session.set.map(|set| tx.routes.reads(set));
    turned.more = is_any_ready(tx.db, lists.into_iter().flatten(), quarantined)?;
    turned.next = next_check(tx.db, tx.shared, tx.now)?;
    add_hold(tx, &session, request.want, &mut turned)?;
    turned.next_tick = schedules::wait(tx.db, tx.now, COMPUTES)?;
    if turned.more {
        apply_limits(tx, &session, request.want, &mut turned)?;
    }
    if turned.more {
        // This wakes another worker, if one is idle. It wakes the next one in turn, as long as tasks are left.
        tx.recheck_lists_of(session.set);
    }
    Ok(turned)
}

/// Applies the limits of the queue to the answer of a turn that has left tasks: perhaps none of them may start.
fn apply_limits(
    tx: &mut Transaction<'_>,
    session: &Session,
    want: usize,
    turned: &mut TurnAnswer,
) -> Result<(), Fault> {
    let Some(set) = session.set else {
        return Ok(());
    };
    let allowed = queues::allowance(tx.db, &tx.routes.queue(set), tx.now)?;
    if allowed.tasks == 0 {
        turned.more = false;
        turned.next = turned.next.into_iter().chain(allowed.wait).min();
        // A worker that has got as many tasks as it wanted may have no free permit when the rate lets the next task start.
        let started = turned.claim.as_ref().map_or(0, |claim| claim.tasks.len());
        if allowed.wait.is_some() && started >= want {
            tx.recheck_lists_of(session.set);
        }
    }
    Ok(())
}

fn queue_of(tx: &Transaction<'_>, session: &Session) -> QueueName {
    let set = session.set;
    set.map(|set| tx.routes.queue(set)).unwrap_or_default()
}

/// Adds to the answer of a turn when the first hold of a group of its queue is over.
fn add_hold(
    tx: &mut Transaction<'_>,
    session: &Session,
    want: usize,
    turned: &mut TurnAnswer,
) -> Result<(), Fault> {
    let queue = queue_of(tx, session);
    if let Some(wait) = groups::hold_wait(tx.db, &queue, tx.now.wall)? {
        turned.next = earlier(turned.next, wait);
        // A worker that has got as many tasks as it wanted may have no free permit when the hold is over.
        let started = turned.claim.as_ref().map_or(0, |claim| claim.tasks.len());
        if started >= want {
            tx.recheck_lists_of(session.set);
        }
    }
    Ok(())
}

fn take(tx: &mut Transaction<'_>, session: &Session, request: &Turn) -> Result<TurnAnswer, Fault> {
    let mut refused = Vec::new();
    for verdicts in &request.verdicts {
        verdicts::apply_all(tx, session, verdicts, &mut refused)?;
    }
    let mut changed = reap::reap_dead(tx)?;
    changed |= reap::reap_late(tx, session.id)?;
    changed |= make_due(tx)?;
    let queue = queue_of(tx, session);
    if !queue.is_default() {
        tx.end_holds(&queue)?;
    }
    let claim = claim(tx, session.set, request)?;
    // A turn that changes nothing writes nothing.
    if changed || claim.is_some() || !request.verdicts.is_empty() {
        let epoch = claim.as_ref().map(|claim| claim.epoch as i64);
        record(tx, session, request.number, epoch)?;
    }
    Ok(TurnAnswer {
        refused,
        claim,
        ..TurnAnswer::default()
    })
}

/// Records that the worker of a session lives and has received the claim `seen`. If it does not renew another claim of
/// its session, it does not have it.
fn confirm_alive(
    tx: &Transaction<'_>,
    session: &Session,
    seen: Option<Epoch>,
) -> Result<(), rusqlite::Error> {
    tx.execute(
        "UPDATE throng_claim
         SET delivered = max(delivered, epoch IS ?2), suspect = min(2 * suspect, 2)
         WHERE session = ?1 AND (suspect = 1 OR epoch IS ?2)",
        params![session.id, seen.map(|epoch| epoch as i64)],
    )?;
    Ok(())
}

/// Records the turn, so that a repetition is detected.
fn record(
    tx: &Transaction<'_>,
    session: &Session,
    number: u64,
    claim: Option<i64>,
) -> Result<(), Fault> {
    tx.execute(
        "UPDATE throng_session SET number = ?2, claim = ?3, first = NULL WHERE id = ?1",
        params![session.id, number as i64, claim],
    )?;
    Ok(())
}

/// Answers a repeated turn with the claim of the session's last turn, as far as it is still held.
fn repeat(tx: &mut Transaction<'_>, session: &Session) -> Result<TurnAnswer, Fault> {
    let mut turned = TurnAnswer::default();
    if let Some(epoch) = session.claim
        && renew_lease(tx, epoch, false)?
    {
        let mut tasks = Vec::new();
        for id in tx.claimed_tasks(epoch)?.ids() {
            tasks.extend(read_task(tx, id)?);
        }
        turned.claim = Some(Claim {
            epoch: epoch as Epoch,
            tasks,
        });
    }
    Ok(turned)
}

/// Moves delayed tasks that are due into the ready queue, the earliest first. Returns `true` if there were any.
fn make_due(tx: &mut Transaction<'_>) -> Result<bool, Fault> {
    let due = tx.ids(
        "SELECT id FROM throng_task WHERE state = 1 AND at <= ?1 ORDER BY at, id LIMIT ?2",
        [tx.now.wall, MAX_DUE],
    )?;
    for &id in &due {
        tx.push_back(id, State::Delayed)?;
    }
    Ok(!due.is_empty())
}

/// Returns the number of bytes of output in a turn.
pub(super) fn output_bytes(request: &Turn) -> usize {
    let verdicts = request.verdicts.iter().flat_map(|it| &it.tasks);
    let bytes = verdicts.map(|(_, verdict)| match verdict {
        Verdict::Done(output) => output.len(),
        _ => 0,
    });
    bytes.sum()
}
