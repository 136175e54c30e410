//! The changes that an operator makes to single tasks.

use std::collections::BTreeSet;

use super::cancel::cancel_each;
use super::dead_letters::replay_one;
use super::error::Fault;
use super::queues::queue_column;
use super::replay_from::replay_from;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use super::view::uuid;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Change, ChangeAnswer};
use crate::durable::{Refusal, TaskId};

const IS_REPLACEABLE: &str = "SELECT key_since IS NOT NULL FROM throng.task WHERE id = $1";

/// Moves a task to another queue. The default queue has no groups.
const MOVE: &str = "UPDATE throng.task SET kind = $2, queue = $3::text,
        group_name = CASE WHEN $3::text IS NOT NULL THEN group_name END
    WHERE id = $1";

/// Changes tasks. Returns an answer for each.
pub(super) async fn change(
    tx: &mut Transaction,
    ids: &[TaskId],
    change: &Change,
) -> Result<Vec<ChangeAnswer>, Fault> {
    tx.require_exclusive()?;
    if *change == Change::Cancel {
        let cancelled: BTreeSet<_> = cancel_each(tx, ids).await?.into_iter().collect();
        let answers = ids
            .iter()
            .map(|id| ChangeAnswer::changed_if(cancelled.contains(id)));
        return Ok(answers.collect());
    }
    let mut answers = Vec::with_capacity(ids.len());
    for &id in ids {
        answers.push(match tx.task(id).await? {
            Some(task) => change_one(tx, id, &task, change).await?,
            None => ChangeAnswer::OtherStatus,
        });
    }
    Ok(answers)
}

async fn change_one(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    change: &Change,
) -> Result<ChangeAnswer, Fault> {
    let is_dead = task.state == State::Dead && !task.state.is_expired(task.at, tx.expiry());
    match change {
        Change::RunNow if task.state == State::Delayed => {
            let now = tx.now.wall;
            tx.push_back(&[id], State::Delayed, Some(now)).await?;
            Ok(ChangeAnswer::Changed)
        }
        Change::MoveTo(queue) if matches!(task.state, State::Waiting | State::Delayed) => {
            move_to(tx, id, task, queue).await
        }
        Change::Replay if is_dead => replay_one(tx, id).await,
        Change::ReplayFrom(replay) => replay_from(tx, id, task, is_dead, replay).await,
        Change::Delete if is_dead => {
            tx.remove(id, task).await?;
            Ok(ChangeAnswer::Changed)
        }
        _ => Ok(ChangeAnswer::OtherStatus),
    }
}

/// Moves a task that waits or is delayed to another queue.
async fn move_to(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    queue: &QueueName,
) -> Result<ChangeAnswer, Fault> {
    if task.queue == *queue {
        return Ok(ChangeAnswer::Same);
    }
    // A spawn may replace the task, and looks for it in its queue.
    if tx.value(IS_REPLACEABLE, &[&uuid(id)]).await? == Some(true) {
        return Ok(ChangeAnswer::Refused(Refusal::Replaceable));
    }
    let moved = Kind::from_number(task.kind).moved(&task.name, &task.queue, queue);
    let Some((kind, _)) = moved else {
        return Ok(ChangeAnswer::Refused(Refusal::Unreadable));
    };
    if task.state == State::Waiting {
        tx.remove_from_line(task).await?;
    }
    tx.execute(MOVE, &[&uuid(id), &kind.number(), &queue_column(queue)])
        .await?;
    if task.state == State::Waiting {
        tx.push_back(&[id], State::Waiting, None).await?;
    }
    Ok(ChangeAnswer::Changed)
}
