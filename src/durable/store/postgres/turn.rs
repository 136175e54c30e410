//! A worker's turn: applies verdicts, takes back expired claims, makes delayed tasks ready, and claims tasks.

use std::time::Duration;

use tokio::try_join;
use tokio_postgres::Row;

use super::claim;
use super::claimed_tasks::read_tasks;
use super::claims::{self, ClaimsByEpoch};
use super::error::Fault;
use super::groups;
use super::next_check::{Ahead, earlier, look_ahead};
use super::next_tasks::Next;
use super::queues;
use super::renew::renew_lost;
use super::session::{self, Session};
use super::transaction::Transaction;
use super::upkeep::{self, Upkeep};
use super::verdicts;
use crate::durable::TaskId;
use crate::durable::store::{Claim, Epoch, Turn, TurnAnswer};
use crate::sync::lock;

/// Records that the worker of a session lives and has received a claim. If it does not renew another claim of its session, it does not
/// have it.
///
/// It is sent before it is known that the request is not refused, which then must have changed nothing.
const CONFIRM_ALIVE: &str = "UPDATE throng.claim
    SET delivered = delivered OR epoch IS NOT DISTINCT FROM $2,
        suspect = least(2 * suspect, 2)
    WHERE session = $1 AND (suspect = 1 OR epoch IS NOT DISTINCT FROM $2 AND NOT delivered)
        AND EXISTS (SELECT 1 FROM throng.session WHERE session.id = $1 AND number <= $3)";

/// Records a turn without a claim, so that a repetition is detected.
const RECORD: &str =
    "UPDATE throng.session SET number = $2, claim = NULL, first = NULL WHERE id = $1";

const UNPARK: &str = "DELETE FROM throng.park WHERE session = $1";

pub(super) async fn turn(tx: &mut Transaction, request: &Turn) -> Result<TurnAnswer, Fault> {
    let known = tx.sessions.remove(&(request.session as i64));
    let (session, claims, next) = begin(tx, request, known).await?;
    let is_last = session.is_last(request.number)?;
    if lock(&tx.shared.parked).contains(&request.session) {
        tx.execute(UNPARK, &[&session.id]).await?;
        tx.notices.unparked.push(request.session);
    }
    let (mut turned, ahead) = match is_last {
        true => (repeat(tx, &session).await?, None),
        false => {
            let (refused, next) = match request.verdicts.is_empty() {
                true => (Vec::new(), next),
                false => apply(tx, &session, request, claims).await?,
            };
            take(tx, &session, request, refused, next).await?
        }
    };
    complete(tx, &session, request, ahead, &mut turned).await?;
    Ok(turned)
}

/// Locks the session and the claims of a turn, and records that its worker lives. If the turn has no verdicts, and it is known already that
/// there is no [upkeep], returns also the tasks that the turn claims.
async fn begin<'a>(
    tx: &Transaction,
    request: &'a Turn,
    known: Option<Row>,
) -> Result<(Session, ClaimsByEpoch, Option<Next<'a>>), Fault> {
    let (id, number) = (request.session as i64, request.number as i64);
    let received = request.received.map(|epoch| epoch as i64);
    let epochs = request.verdicts.iter().map(|it| it.epoch as i64);
    let epochs: Vec<_> = epochs.collect();
    tx.prepare(&[session::FIND, claims::LOAD_ALL, CONFIRM_ALIVE])
        .await?;
    let confirm = async {
        tx.execute(CONFIRM_ALIVE, &[&id, &received, &number])
            .await?;
        Ok::<_, Fault>(())
    };
    // A transaction goes on after a refusal, so this must not hide that a statement has failed.
    let find = async {
        match session::find_with(tx, request.session, known).await {
            Err(Fault::Refused(cause)) => Ok(Err(cause)),
            found => Ok(Ok(found?)),
        }
    };
    let (session, claims, (), next) = try_join!(
        biased;
        find,
        tx.all_claimed_tasks(&epochs),
        confirm,
        look(tx, request),
    )?;
    Ok((session.map_err(Fault::Refused)?, claims, next))
}

/// Looks for the tasks that a turn claims, if it has no verdicts, and if there is no upkeep.
async fn look<'a>(tx: &Transaction, request: &'a Turn) -> Result<Option<Next<'a>>, Fault> {
    if !request.verdicts.is_empty() {
        return Ok(None);
    }
    let set = lock(&tx.shared.sets).get(&request.session).cloned();
    let set = set.flatten();
    let next = claim::look(tx, set.as_deref(), request);
    let (has_upkeep, next) = try_join!(biased; upkeep::is_any(tx), next)?;
    Ok(next.filter(|_| !has_upkeep))
}

/// Applies the verdicts of a turn. Returns the tasks whose verdicts are refused, and the tasks that the turn claims, if they are known.
async fn apply<'a>(
    tx: &mut Transaction,
    session: &Session,
    request: &'a Turn,
    claims: ClaimsByEpoch,
) -> Result<(Vec<TaskId>, Option<Next<'a>>), Fault> {
    let mut refused = Vec::new();
    let next = verdicts::apply_all(tx, session, request, claims, &mut refused).await?;
    Ok((refused, next))
}

/// Claims the tasks that were found, or does the upkeep and claims the next ones. Records the turn.
async fn take(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    refused: Vec<TaskId>,
    found: Option<Next<'_>>,
) -> Result<(TurnAnswer, Option<Ahead>), Fault> {
    let upkeep = match &found {
        Some(_) => Upkeep::default(),
        None => upkeep::keep_up(tx, session.id).await?,
    };
    let queue = session.queue();
    if !queue.is_default() {
        tx.end_holds(&queue).await?;
    }
    tx.settle_groups().await?;
    // A claim records the turn, too.
    let (claim, ahead) = claim::claim(tx, session, request, found).await?;
    // A turn that changes nothing writes nothing.
    if claim.is_none() && (upkeep.changed || !request.verdicts.is_empty()) {
        tx.execute(RECORD, &[&session.id, &(request.number as i64)])
            .await?;
    }
    let turned = TurnAnswer {
        refused,
        claim,
        next: upkeep.leaves_claims.then_some(Duration::ZERO),
        ..TurnAnswer::default()
    };
    Ok((turned, ahead))
}

/// Adds to the answer whether tasks are left, and when to look again.
async fn complete(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    ahead: Option<Ahead>,
    turned: &mut TurnAnswer,
) -> Result<(), Fault> {
    let mut claimed = turned.claim.iter().flat_map(|claim| &claim.tasks);
    let quarantined = request.quarantined && !claimed.any(|task| task.quarantined);
    let set = session.set.as_ref();
    let kinds = set.map(|set| tx.kinds(set)).unwrap_or_default();
    let queue = session.queue();
    let ahead = match ahead {
        Some(ahead) => ahead,
        None => look_ahead(tx, &kinds, &queue, quarantined, 0).await?,
    };
    (turned.more, turned.next_tick) = (ahead.more, ahead.next_tick);
    if let Some(wait) = ahead.next {
        turned.next = earlier(turned.next, wait);
    }
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
