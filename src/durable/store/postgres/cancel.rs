//! Cancels tasks.

use super::error::Fault;
use super::state::State;
use super::transaction::Transaction;
use super::view::uuid;
use crate::durable::TaskId;

const MARK_TASK: &str = "UPDATE throng.task SET cancel = true WHERE id = $1";

const MARK_CLAIM: &str = "UPDATE throng.claim SET cancels = true WHERE epoch = $1";

/// Selects the process that holds a claim.
const WORKER: &str = "SELECT endpoint FROM throng.claim
    JOIN throng.session ON session.id = claim.session WHERE epoch = $1";

pub(super) async fn cancel(tx: &mut Transaction, ids: &[TaskId]) -> Result<u64, Fault> {
    Ok(cancel_each(tx, ids).await?.len() as u64)
}

/// Cancels tasks. Returns the ids of those that had not ended.
pub(super) async fn cancel_each(
    tx: &mut Transaction,
    ids: &[TaskId],
) -> Result<Vec<TaskId>, Fault> {
    tx.require_exclusive()?;
    let (mut found, mut running) = (Vec::new(), Vec::new());
    for &id in ids {
        // An earlier task of the request may be the child of this one.
        let Some(task) = tx.task_to_cancel(id).await? else {
            continue;
        };
        match task.state {
            State::Waiting | State::Delayed => tx.end_cancelled(id, &task).await?,
            State::Running => running.push(id),
            State::Done | State::Dead | State::Cancelled => continue,
        }
        found.push(id);
    }
    if !running.is_empty() {
        for (id, epoch) in tx.claims_of(&running).await? {
            cancel_running(tx, id, epoch).await?;
        }
    }
    Ok(found)
}

/// Notifies the worker that runs the task. The verdict of the worker determines how the task ends.
async fn cancel_running(tx: &mut Transaction, id: TaskId, epoch: i64) -> Result<(), Fault> {
    tx.execute(MARK_TASK, &[&uuid(id)]).await?;
    tx.execute(MARK_CLAIM, &[&epoch]).await?;
    if let Some(worker) = tx.value(WORKER, &[&epoch]).await? {
        tx.notices.cancelled.entry(worker).or_default().push(id);
    }
    Ok(())
}
