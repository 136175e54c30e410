//! A worker's turn: applies verdicts, takes back expired claims, makes delayed tasks ready, and claims tasks.

use tokio::try_join;

use super::claim::{claim, read_tasks};
use super::claims::{self, Claims};
use super::error::Fault;
use super::groups;
use super::next_check::{earlier, is_any_ready, next_check};
use super::queues;
use super::renew::renew_lease;
use super::schedules;
use super::session::{self, Session};
use super::transaction::Transaction;
use super::upkeep;
use super::verdicts;
use crate::durable::TaskId;
use crate::durable::schedule::when::COMPUTES;
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
    let (session, claims, has_upkeep) = begin(tx, request).await?;
    let is_last = session.is_last(request.number)?;
    if lock(&tx.shared.parked).remove(&request.session) {
        tx.execute(UNPARK, &[&session.id]).await?;
    }
    let mut turned = match is_last {
        true => repeat(tx, &session).await?,
        false => {
            let (refused, has_upkeep) = match request.verdicts.is_empty() {
                true => (Vec::new(), has_upkeep),
                false => apply(tx, &session, request, claims).await?,
            };
            let changed = has_upkeep && upkeep::keep_up(tx, session.id).await?;
            let claim = take(tx, &session, request, changed).await?;
            TurnAnswer {
                refused,
                claim,
                ..TurnAnswer::default()
            }
        }
    };
    look_ahead(tx, &session, request, &mut turned).await?;
    Ok(turned)
}

/// Locks the session and the claims of a turn, and records that its worker lives. Returns also `true` if the turn has no verdicts and there
/// is upkeep.
async fn begin(tx: &Transaction, request: &Turn) -> Result<(Session, Claims, bool), Fault> {
    let (id, number) = (request.session as i64, request.number as i64);
    let received = request.received.map(|epoch| epoch as i64);
    let epochs = request.verdicts.iter().map(|it| it.epoch as i64);
    let epochs: Vec<_> = epochs.collect();
    tx.prepare(&[session::FIND, claims::LOAD_ALL, CONFIRM_ALIVE])
        .await?;
    let (session, claims, _, has_upkeep) = try_join!(
        session::find(tx, request.session),
        tx.all_claimed_tasks(&epochs),
        async {
            Ok(tx
                .execute(CONFIRM_ALIVE, &[&id, &received, &number])
                .await?)
        },
        async {
            // Verdicts may change that.
            Ok(epochs.is_empty() && upkeep::is_any(tx).await?)
        },
    )?;
    Ok((session, claims, has_upkeep))
}

/// Applies the verdicts of a turn. Returns the tasks whose verdicts are refused, and `false` if there is no upkeep after this.
async fn apply(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    claims: Claims,
) -> Result<(Vec<TaskId>, bool), Fault> {
    let mut refused = Vec::new();
    let verdicts = &request.verdicts;
    let has_upkeep = verdicts::apply_all(tx, session, verdicts, claims, &mut refused).await?;
    Ok((refused, has_upkeep))
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
    let low = tx.shared.low_marks.get(session.id, &kinds);
    (turned.more, turned.next, turned.next_tick) = try_join!(
        is_any_ready(tx, &kinds, &queue, quarantined, low),
        next_check(tx),
        schedules::wait(tx, COMPUTES),
    )?;
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

/// Claims tasks, and records the turn if it has `changed` anything, has claimed tasks or has verdicts.
async fn take(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    changed: bool,
) -> Result<Option<Claim>, Fault> {
    let queue = session.queue();
    if !queue.is_default() {
        tx.end_holds(&queue).await?;
    }
    tx.settle_groups().await?;
    // A claim records the turn, too.
    let claim = claim(tx, session, request).await?;
    // A turn that changes nothing writes nothing.
    if claim.is_none() && (changed || !request.verdicts.is_empty()) {
        tx.execute(RECORD, &[&session.id, &(request.number as i64)])
            .await?;
    }
    Ok(claim)
}

/// Answers a repeated turn with the claim of the session's last turn, as far as it is still held.
async fn repeat(tx: &mut Transaction, session: &Session) -> Result<TurnAnswer, Fault> {
    let mut turned = TurnAnswer::default();
    if let Some(epoch) = session.claim
        && renew_lease(tx, epoch, false).await?
    {
        let ids: Vec<_> = tx.claimed_tasks(epoch).await?.ids.into_iter().collect();
        turned.claim = Some(Claim {
            epoch: epoch as Epoch,
            tasks: read_tasks(tx, &ids).await?,
        });
    }
    Ok(turned)
}
