//! The verdicts of a worker on the tasks that it has run.

use std::collections::BTreeSet;
use std::time::Duration;

use super::error::Fault;
use super::line::GivenBack;
use super::session::Session;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use super::view::uuids;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::run_time_of;
use crate::durable::store::{Verdict, Verdicts};

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

/// Applies the verdicts on the tasks of one claim. Adds those tasks to `refused` that the claim no longer holds.
pub(super) async fn apply_all(
    tx: &mut Transaction,
    session: &Session,
    verdicts: &Verdicts,
    refused: &mut Vec<TaskId>,
) -> Result<(), Fault> {
    let epoch = verdicts.epoch as i64;
    let mut claimed = tx.stop_claimed_tasks(epoch).await?;
    let mut held = Vec::new();
    for (id, verdict) in &verdicts.tasks {
        match claimed.ids.remove(id) {
            true => held.push((*id, verdict)),
            false => refused.push(*id),
        }
    }
    if claimed.queue.is_some() {
        for (id, verdict) in &held {
            if let (_, Some(wait)) = verdict.split() {
                tx.hold_group(*id, wait).await?;
            }
        }
        let stopped: Vec<_> = held.iter().map(|(id, _)| *id).collect();
        tx.groups_stopped(&stopped).await?;
    }
    let ended = end_done(tx, &held).await?;
    held.retain(|(id, _)| !ended.contains(id));
    apply_each(tx, &held, refused).await?;
    tx.update_claim(session.id, epoch, &claimed.ids).await
}

/// Ends the tasks that have succeeded and to which [`END_DONE`] or [`REMOVE_DONE`] applies. Returns them.
async fn end_done(
    tx: &mut Transaction,
    held: &[(TaskId, &Verdict)],
) -> Result<BTreeSet<TaskId>, Fault> {
    let (mut ids, mut outputs, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (id, verdict) in held {
        if let Verdict::Done(output) = verdict {
            ids.push(*id);
            outputs.push(&**output);
            times.push(run_time_of(output).map(|took| millis(took) as i64));
        }
    }
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids = uuids(&ids);
    let ended = tx
        .ids(END_DONE, &[&ids, &outputs, &times, &tx.store_time()])
        .await?;
    tx.moved(State::Running, State::Done, ended.len());
    let mut all: BTreeSet<_> = ended.into_iter().collect();
    if all.len() < ids.len() {
        let removed = tx.ids(REMOVE_DONE, &[&ids]).await?;
        tx.deltas.add(|it| &mut it.running, -(removed.len() as i64));
        all.extend(removed);
    }
    tx.deltas.add(|it| &mut it.done, all.len() as i64);
    tx.notices.ended.extend(&all);
    Ok(all)
}

/// Applies verdicts to which no statement applies that is for many tasks.
async fn apply_each(
    tx: &mut Transaction,
    held: &[(TaskId, &Verdict)],
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
