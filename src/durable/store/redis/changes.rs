//! The changes that an operator makes to single tasks.

use redis::Value;

use super::batches::{answer_of, in_batches, run_change};
use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::move_tasks::move_tasks;
use super::reply;
use super::scripts::{Arguments, Script};
use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::store::{Change, ChangeAnswer, StepName};

/// Changes tasks. Returns an answer for each, in the order of the ids.
pub(super) async fn change(
    inner: &Inner,
    ids: &[TaskId],
    change: &Change,
) -> Result<Vec<ChangeAnswer>, Failure> {
    let scripts = &inner.scripts;
    match change {
        Change::Cancel => in_batches(inner, &scripts.cancel, None, ids).await,
        Change::RunNow => in_batches(inner, &scripts.run_now, None, ids).await,
        Change::MoveTo(queue) => move_tasks(inner, ids, queue).await,
        Change::Replay => in_batches(inner, &scripts.replay, Some("replay"), ids).await,
        Change::ReplayFrom(step) => replay_all_from(inner, ids, step).await,
        Change::Delete => in_batches(inner, &scripts.replay, Some("delete"), ids).await,
    }
}

/// Replays tasks from a step, one by one.
async fn replay_all_from(
    inner: &Inner,
    ids: &[TaskId],
    step: &StepName,
) -> Result<Vec<ChangeAnswer>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for (sent, &id) in ids.iter().enumerate() {
        let answer = replay_from(inner, id, step).await;
        answers.push(answer.map_err(|failure| after_others(failure, sent))?);
    }
    Ok(answers)
}

/// Replays a task from a step, whether it is a dead letter, is delayed or waits. One script changes dead letters, and another one the others.
async fn replay_from(inner: &Inner, id: TaskId, step: &StepName) -> Result<ChangeAnswer, Failure> {
    let mut dead = Arguments::default();
    dead.push("from");
    dead.push_ids(&[id]);
    dead.push(step.as_str());
    let answer = run_one(inner, &inner.scripts.replay, id, dead).await?;
    if answer != ChangeAnswer::OtherStatus {
        return Ok(answer);
    }
    let mut alive = Arguments::default();
    alive.push("from");
    alive.push(id.to_bytes());
    alive.push(step.as_str());
    run_one(inner, &inner.scripts.run_now, id, alive).await
}

async fn run_one(
    inner: &Inner,
    script: &Script,
    id: TaskId,
    arguments: Arguments,
) -> Result<ChangeAnswer, Failure> {
    let answer = run_change(inner, script, inner.partitions.of_task(id), arguments).await;
    match *reply::bytes(answer?)? {
        [letter] => answer_of(letter),
        _ => Err(unexpected_answer(&Value::Nil)),
    }
}
