//! The verdicts of a worker on the tasks that it has run.

use std::time::Duration;

use super::error::Fault;
use super::session::Session;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::store::{Verdict, Verdicts};

/// Applies the verdicts on the tasks of one claim. Adds those tasks to `refused` that the claim no longer holds.
pub(super) fn apply_all(
    tx: &mut Transaction<'_>,
    session: &Session,
    verdicts: &Verdicts,
    refused: &mut Vec<TaskId>,
) -> Result<(), Fault> {
    let epoch = verdicts.epoch as i64;
    let (mut claimed, is_queued) = tx.stop_claimed_tasks(epoch)?;
    let mut released = Vec::new();
    for (id, verdict) in &verdicts.tasks {
        let Some(producer) = claimed.remove(*id) else {
            refused.push(*id);
            continue;
        };
        let (verdict, hold) = verdict.split();
        if let Some(wait) = hold {
            tx.hold_group(*id, wait)?;
        }
        if is_queued {
            tx.stop_in_group(*id)?;
        }
        if let Verdict::Done(output) = verdict
            && tx.end_done_quickly(*id, producer, output)?
        {
            continue;
        }
        match tx.task(*id)? {
            Some(task) if apply(tx, *id, &task, verdict)? => released.push(*id),
            Some(_) => {}
            None => refused.push(*id),
        }
    }
    tx.push_front(released, 0, 0)?;
    Ok(tx.update_claim(session.id, epoch, &claimed)?)
}

/// Applies a verdict. Returns `true` if the task is to go to the head of the ready queue.
fn apply(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    verdict: &Verdict,
) -> Result<bool, Fault> {
    let due = |after: &Duration| tx.now.wall + millis(*after) as i64;
    match verdict {
        Verdict::Done(output) => tx.end_done(id, task, output)?,
        _ if task.cancel => tx.end_cancelled(id, task)?,
        Verdict::Dead {
            reason,
            error,
            took,
        } => {
            tx.meta.counts.died += 1;
            tx.mark_dead(id, task, *reason, error)?;
            tx.store_run_time(id, *took)?;
        }
        Verdict::Retry { after, error, took } => {
            let due = due(after);
            tx.store_error(id, task, error, *took)?;
            tx.meta.counts.retried += 1;
            tx.delay(id, due)?;
        }
        Verdict::Snooze { after } => {
            let due = due(after);
            tx.meta.counts.snoozed += 1;
            tx.delay(id, due)?;
        }
        Verdict::Suspend {
            after,
            until,
            waits_for,
        } => {
            let due = due(after);
            tx.meta.counts.snoozed += 1;
            tx.suspend(id, task, due, until.map(|until| (until, &**waits_for)))?;
        }
        Verdict::Release | Verdict::HoldGroup { .. } => {
            tx.meta.counts.released += 1;
            return Ok(true);
        }
    }
    Ok(false)
}
