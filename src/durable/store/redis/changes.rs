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
use crate::durable::store::{Change, ChangeAnswer, StepReplay};

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
        Change::ReplayFrom(replay) => replay_all_from(inner, ids, replay).await,
        Change::Delete => in_batches(inner, &scripts.replay, Some("delete"), ids).await,
    }
}

/// Replays tasks from a step, one by one.
async fn replay_all_from(
    inner: &Inner,
    ids: &[TaskId],
    replay: &StepReplay,
) -> Result<Vec<ChangeAnswer>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for (sent, &id) in ids.iter().enumerate() {
        let answer = replay_from(inner, id, replay).await;
        answers.push(answer.map_err(|failure| after_others(failure, sent))?);
    }
    Ok(answers)
}

/// Replays a task from a step, whether it is a dead letter, is delayed or waits. One script changes dead letters, and another one the
/// others.
async fn replay_from(
    inner: &Inner,
    id: TaskId,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Failure> {
    let mut dead = Arguments::default();
    dead.push("from");
    dead.push_ids(&[id]);
    push_replay(&mut dead, replay);
    let answer = run_one(inner, &inner.scripts.replay, id, dead).await?;
    if answer != ChangeAnswer::OtherStatus {
        return Ok(answer);
    }
    let mut alive = Arguments::default();
    alive.push("from");
    alive.push(id.to_bytes());
    push_replay(&mut alive, replay);
    run_one(inner, &inner.scripts.run_now, id, alive).await
}

fn push_replay(arguments: &mut Arguments, replay: &StepReplay) {
    arguments.push(replay.step.as_str());
    arguments.push(replay.first.as_str());
    arguments.push(replay.nonce.to_be_bytes());
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
