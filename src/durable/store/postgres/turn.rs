//! A worker's turn: applies verdicts, takes back expired claims, makes delayed tasks ready, and claims tasks.

use std::time::Duration;

use super::claim::{claim, read_tasks};
use super::error::Fault;
use super::groups;
use super::next_check::{earlier, is_any_ready, next_check};
use super::queues;
use super::reap::{self, FoundClaims};
use super::renew::renew_lost;
use super::schedules;
use super::session::{self, Session};
use super::transaction::Transaction;
use super::verdicts;
use crate::durable::schedule::when::COMPUTES;
use crate::durable::store::{Claim, Epoch, Turn, TurnAnswer};
use crate::sync::lock;

/// Records that the worker of a session lives and has received a claim. If it does not renew another claim of its session, it does not
/// have it.
const CONFIRM_ALIVE: &str = "UPDATE throng.claim
    SET delivered = delivered OR epoch IS NOT DISTINCT FROM $2,
        suspect = least(2 * suspect, 2)
    WHERE session = $1 AND (suspect = 1 OR epoch IS NOT DISTINCT FROM $2 AND NOT delivered)";

/// Records the turn, so that a repetition is detected.
const RECORD: &str =
    "UPDATE throng.session SET number = $2, claim = $3, first = NULL WHERE id = $1";

const UNPARK: &str = "DELETE FROM throng.park WHERE session = $1";

pub(super) async fn turn(tx: &mut Transaction, request: &Turn) -> Result<TurnAnswer, Fault> {
    let session = session::find(tx, request.session).await?;
    let is_last = session.is_last(request.number)?;
    if lock(&tx.shared.parked).contains(&request.session) {
        tx.execute(UNPARK, &[&session.id]).await?;
        tx.notices.unparked.push(request.session);
    }
    let received = request.received.map(|epoch| epoch as i64);
    tx.execute(CONFIRM_ALIVE, &[&session.id, &received]).await?;
    let mut turned = match is_last {
        true => repeat(tx, &session).await?,
        false => take(tx, &session, request).await?,
    };
    look_ahead(tx, &session, request, &mut turned).await?;
    Ok(turned)
}

/// Adds to the answer whether tasks are left, and when to look again.
async fn look_ahead(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    turned: &mut TurnAnswer,
) -> Result<(), Fault> {
    let mut claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
    let quarantined = request.quarantined && !claimed.any(|task| task.quarantined);
    let set = session.set.as_ref();
    let kinds = set.map(|set| tx.kinds(set)).unwrap_or_default();
    let queue = session.queue();
    turned.more = is_any_ready(tx, &kinds, &queue, quarantined).await?;
    if let Some(wait) = next_check(tx).await? {
        turned.next = earlier(turned.next, wait);
    }
    turned.next_tick = schedules::wait(tx, COMPUTES).await?;
    let started = turned.claim.as_ref().map_or(0, |claim| claim.tasks.len());
    // A worker that has got as many tasks as it wanted may have no free permit when a hold is over, or when the rate lets a task start.
    let is_full = started >= request.want;
    if let Some(wait) = groups::hold_wait(tx, &queue).await? {
        turned.next = earlier(turned.next, wait);
        if is_full {
            tx.look_again(queue.clone(), kinds.clone());
        }
    }
    if turned.more {
        let allowed = queues::allowance(tx, &queue).await?;
        turned.more = allowed.tasks > 0;
        if let Some(wait) = allowed.wait.filter(|_| !turned.more) {
            turned.next = earlier(turned.next, wait);
        }
        // This wakes another worker, if one is idle. It wakes the next one in turn, as long as tasks are left.
        if turned.more || allowed.wait.is_some() && is_full {
            tx.look_again(queue, kinds);
        }
    }
    Ok(())
}

async fn take(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
) -> Result<TurnAnswer, Fault> {
    let mut refused = Vec::new();
    for verdicts in &request.verdicts {
        verdicts::apply_all(tx, session, verdicts, &mut refused).await?;
    }
    let found = [
        reap::reap_dead(tx).await?,
        reap::reap_late(tx, session.id).await?,
    ];
    let mut changed = found.iter().any(|&found| found != FoundClaims::Nothing);
    // This may make tasks due.
    tx.tell_parents().await?;
    changed |= tx.make_due().await?;
    let queue = session.queue();
    if !queue.is_default() {
        tx.end_holds(&queue).await?;
    }
    tx.settle_groups().await?;
    let claim = claim(tx, session, request).await?;
    // A turn that changes nothing writes nothing.
    if changed || claim.is_some() || !request.verdicts.is_empty() {
        let epoch = claim.as_ref().map(|claim| claim.epoch as i64);
        let number = request.number as i64;
        tx.execute(RECORD, &[&session.id, &number, &epoch]).await?;
    }
    Ok(TurnAnswer {
        refused,
        claim,
        next: found.contains(&FoundClaims::Some).then_some(Duration::ZERO),
        ..TurnAnswer::default()
    })
}

/// Answers a repeated turn with the claim of the session's last turn, as far as it is still held.
async fn repeat(tx: &mut Transaction, session: &Session) -> Result<TurnAnswer, Fault> {
    let mut turned = TurnAnswer::default();
    if let Some(epoch) = session.claim
        && renew_lost(tx, epoch).await?
    {
        let ids: Vec<_> = tx.claimed_tasks(epoch).await?.ids.into_iter().collect();
        turned.claim = Some(Claim {
            epoch: epoch as Epoch,
            tasks: read_tasks(tx, &ids).await?,
        });
    }
    Ok(turned)
}
