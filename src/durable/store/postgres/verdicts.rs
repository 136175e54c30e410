//! The verdicts of a worker on the tasks that it has run.

use std::collections::HashSet;
use std::time::Duration;

use tokio::try_join;

use super::claim;
use super::claims::{self, ClaimsByEpoch};
use super::error::Fault;
use super::line::GivenBack;
use super::next_tasks::Next;
use super::session::Session;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use super::upkeep;
use super::view::uuids;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::run_time_of;
use crate::durable::store::{Turn, Verdict, Verdicts};

/// Ends running tasks that have succeeded, with one statement. This applies to most tasks: those that have never failed and have neither
/// a parent nor steps, and whose results are retained.
const END_DONE: &str = "UPDATE throng.task
    SET state = 3, at = $4 + retention, payload = NULL, output = own.output, took = own.took
    FROM unnest($1::uuid[], $2::bytea[], $3::bigint[]) AS own (id, output, took)
    WHERE task.id = own.id AND retention > 0 AND failures = 0 AND parent IS NULL
        AND NOT EXISTS (SELECT 1 FROM throng.workflow WHERE workflow.id = task.id)
    RETURNING task.id";

/// Removes such tasks whose results are not retained.
const REMOVE_DONE: &str = "DELETE FROM throng.task
    WHERE id = ANY ($1) AND retention = 0 AND failures = 0 AND parent IS NULL
        AND NOT EXISTS (SELECT 1 FROM throng.workflow WHERE workflow.id = task.id)
    RETURNING id";

/// A verdict on a task that its claim holds.
type HeldVerdict<'a> = (TaskId, &'a Verdict);

/// Applies verdicts on the tasks of claims, which are locked. Adds those tasks to `refused` that the claims no longer hold. Returns the
/// tasks that the turn claims, if it is known already that there is no [upkeep] after this.
pub(super) async fn apply_all<'a>(
    tx: &mut Transaction,
    session: &Session,
    request: &'a Turn,
    mut claims: ClaimsByEpoch,
    refused: &mut Vec<TaskId>,
) -> Result<Option<Next<'a>>, Fault> {
    let mut held = Vec::with_capacity(request.verdicts.len());
    for of_claim in &request.verdicts {
        held.push(take_held(tx, of_claim, &mut claims, refused).await?);
    }
    let (ended, mut next) = end_done(tx, session, request, &held, &claims).await?;
    for mut of_claim in held {
        of_claim.retain(|(id, _)| !ended.contains(id));
        // Such verdicts can make tasks due.
        next = next.filter(|_| of_claim.is_empty());
        apply_each(tx, &of_claim, refused).await?;
    }
    Ok(next)
}

/// Takes the tasks of verdicts from their claim, if it holds them.
async fn take_held<'a>(
    tx: &mut Transaction,
    verdicts: &'a Verdicts,
    claims: &mut ClaimsByEpoch,
    refused: &mut Vec<TaskId>,
) -> Result<Vec<HeldVerdict<'a>>, Fault> {
    let claimed = claims.get_mut(&(verdicts.epoch as i64));
    let Some(claimed) = claimed else {
        refused.extend(verdicts.tasks.iter().map(|(id, _)| *id));
        return Ok(Vec::new());
    };
    let mut held = Vec::with_capacity(verdicts.tasks.len());
    for (id, verdict) in &verdicts.tasks {
        match claimed.ids.remove(id) {
            true => held.push((*id, verdict)),
            false => refused.push(*id),
        }
    }
    if let Some(queue) = &claimed.queue {
        tx.tasks_stop(queue)?;
        stop_in_groups(tx, &held).await?;
    }
    Ok(held)
}

/// Records that tasks of a named queue stop running in their groups.
async fn stop_in_groups(tx: &mut Transaction, held: &[HeldVerdict<'_>]) -> Result<(), Fault> {
    for (id, verdict) in held {
        if let (_, Some(wait)) = verdict.split() {
            tx.hold_group(*id, wait).await?;
        }
    }
    let stopped: Vec<_> = held.iter().map(|(id, _)| *id).collect();
    tx.groups_stopped(&stopped).await
}

/// Stores the tasks that claims still hold, and ends those that have succeeded and to which [`END_DONE`] or [`REMOVE_DONE`] applies.
/// Returns the latter. Also returns the tasks that the turn claims next, if there is no upkeep.
async fn end_done<'a>(
    tx: &mut Transaction,
    session: &Session,
    request: &'a Turn,
    held: &[Vec<HeldVerdict<'_>>],
    claims: &ClaimsByEpoch,
) -> Result<(HashSet<TaskId>, Option<Next<'a>>), Fault> {
    let (mut ids, mut outputs, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (id, verdict) in held.iter().flatten() {
        if let Verdict::Done(output) = verdict {
            ids.push(*id);
            outputs.push(&**output);
            times.push(run_time_of(output).map(|took| millis(took) as i64));
        }
    }
    let (ids, now) = (uuids(&ids), tx.store_time());
    let end = async {
        let ended = match ids.is_empty() {
            true => Vec::new(),
            false => tx.ids(END_DONE, &[&ids, &outputs, &times, &now]).await?,
        };
        Ok::<_, Fault>(ended)
    };
    // A claim that ends here is no upkeep any longer, so this must be written first: see `View::prepare`.
    tx.prepare(&[END_DONE, claims::REMOVE]).await?;
    let (ended, (), has_upkeep, next) = try_join!(
        biased;
        end,
        tx.update_claims(session.id, claims),
        upkeep::is_any(tx),
        claim::look(tx, session.set.as_deref(), request)
    )?;
    tx.moved(State::Running, State::Done, ended.len());
    let mut all: HashSet<_> = ended.into_iter().collect();
    if all.len() < ids.len() {
        let removed = tx.ids(REMOVE_DONE, &[&ids]).await?;
        tx.deltas.add(|it| &mut it.running, -(removed.len() as i64));
        all.extend(removed);
    }
    tx.deltas.add(|it| &mut it.done, all.len() as i64);
    tx.notices.ended.extend(&all);
    Ok((all, next.filter(|_| !has_upkeep)))
}

/// Applies verdicts to which no statement applies that is for many tasks.
async fn apply_each(
    tx: &mut Transaction,
    held: &[HeldVerdict<'_>],
    refused: &mut Vec<TaskId>,
) -> Result<(), Fault> {
    if held.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = held.iter().map(|(id, _)| *id).collect();
    let tasks = tx.locked_tasks(&ids).await?;
    let mut released = Vec::new();
    for (id, verdict) in held {
        match tasks.get(id) {
            Some(task) if apply(tx, *id, task, verdict.split().0).await? => {
                released.push(GivenBack {
                    id: *id,
                    lost: 0,
                    crashes: 0,
                });
            }
            Some(_) => {}
            None => refused.push(*id),
        }
    }
    released.sort_unstable_by_key(|task| task.id);
    tx.push_front(&released).await
}

/// Applies a verdict. Returns `true` if the task is to go to the head of its line.
async fn apply(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    verdict: &Verdict,
) -> Result<bool, Fault> {
    let now = tx.now.wall;
    let due = |after: &Duration| now.saturating_add(millis(*after) as i64);
    match verdict {
        Verdict::Done(output) => tx.end_done(id, task, output).await?,
        _ if task.cancel => tx.end_cancelled(id, task).await?,
        Verdict::Dead {
            reason,
            error,
            took,
        } => {
            tx.deltas.add(|it| &mut it.died, 1);
            tx.mark_dead(id, task, *reason, error, *took).await?;
        }
        Verdict::Retry { after, error, took } => {
            tx.store_error(id, task, error, *took).await?;
            tx.deltas.add(|it| &mut it.retried, 1);
            tx.delay(id, due(after)).await?;
        }
        Verdict::Snooze { after } => {
            tx.deltas.add(|it| &mut it.snoozed, 1);
            tx.delay(id, due(after)).await?;
        }
        Verdict::Suspend {
            after,
            until,
            waits_for,
        } => {
            tx.deltas.add(|it| &mut it.snoozed, 1);
            let until = until.map(|until| (until, &**waits_for));
            tx.suspend(id, task, due(after), until).await?;
        }
        Verdict::Release | Verdict::HoldGroup { .. } => {
            tx.deltas.add(|it| &mut it.released, 1);
            return Ok(true);
        }
    }
    Ok(false)
}
