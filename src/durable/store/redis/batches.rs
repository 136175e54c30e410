//! Runs scripts that change tasks, one batch of tasks at a time.

use redis::Value;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply;
use super::scripts::{Arguments, Script};
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Failure;
use crate::durable::store::ChangeAnswer;
use crate::durable::{Refusal, TaskId};

/// The maximum number of tasks that one script changes, so that it does not block the server for long.
pub(super) const TASKS_PER_CHANGE: usize = 128;

/// Runs a script on tasks, one batch at a time. Returns an answer for each task, in the order of the ids.
pub(super) async fn in_batches(
    inner: &Inner,
    script: &Script,
    action: Option<&str>,
    ids: &[TaskId],
) -> Result<Vec<ChangeAnswer>, Failure> {
    let mut answers = vec![ChangeAnswer::OtherStatus; ids.len()];
    let mut sent = 0;
    let indexes: Vec<_> = (0..ids.len()).collect();
    for (partition, indexes) in inner.partitions.split(indexes, |&index| ids[index]) {
        for indexes in indexes.chunks(TASKS_PER_CHANGE) {
            let batch: Vec<_> = indexes.iter().map(|&index| ids[index]).collect();
            let mut arguments = Arguments::default();
            action.into_iter().for_each(|action| arguments.push(action));
            arguments.push_ids(&batch);
            let answer = run_change(inner, script, partition, arguments).await;
            let letters = answer.and_then(reply::bytes);
            let letters = letters.map_err(|failure| after_others(failure, sent))?;
            for (&index, &letter) in indexes.iter().zip(&letters) {
                answers[index] = answer_of(letter)?;
            }
            sent += 1;
        }
    }
    Ok(answers)
}

/// Runs a script that changes tasks for an operator.
pub(super) async fn run_change(
    inner: &Inner,
    script: &Script,
    partition: usize,
    arguments: Arguments,
) -> Result<Value, Failure> {
    failpoint("redis.before-change");
    let answer = inner.run(script, partition, arguments).await;
    failpoint("redis.after-change");
    answer
}

/// Returns the meaning of a letter in the answer of a script.
pub(super) fn answer_of(letter: u8) -> Result<ChangeAnswer, Failure> {
    match letter {
        b'y' => Ok(ChangeAnswer::Changed),
        b's' => Ok(ChangeAnswer::Same),
        b'n' => Ok(ChangeAnswer::OtherStatus),
        b'k' => Ok(ChangeAnswer::Refused(Refusal::KeyHeld)),
        b'r' => Ok(ChangeAnswer::Refused(Refusal::Replaceable)),
        b'm' => Ok(ChangeAnswer::Refused(Refusal::NoSuchStep)),
        b'd' => Ok(ChangeAnswer::Refused(Refusal::Unreadable)),
        other => Err(unexpected_answer(&Value::BulkString(vec![other]))),
    }
}
