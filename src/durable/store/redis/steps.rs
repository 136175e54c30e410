//! Stores and reads the steps of tasks.

use std::time::Duration;

use redis::Value;

use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::{Reader, epoch_text};
use super::scripts::Arguments;
use super::{entry, reply};
use crate::durable::TaskId;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::{NewStep, SignalAnswer, StepAnswer, StepName, StoredStep};

/// Stores steps of running tasks. Returns an answer for each, in their order.
pub(super) async fn store(inner: &Inner, steps: &[NewStep]) -> Result<Vec<StepAnswer>, Failure> {
    let mut answers = vec![StepAnswer::Refused; steps.len()];
    let (indexes, mut sent): (Vec<_>, _) = ((0..steps.len()).collect(), 0);
    for (partition, indexes) in inner.partitions.split(indexes, |&index| steps[index].id) {
        let mut arguments = Arguments::default();
        arguments.push_number(indexes.len());
        for step in indexes.iter().map(|&index| &steps[index]) {
            arguments.push(step.id.to_bytes());
            arguments.push(epoch_text(step.epoch));
            arguments.push(step.name.as_str());
            arguments.push(&*step.value);
        }
        let answer = inner.run(&inner.scripts.store_steps, partition, arguments);
        let stored = answer.await.and_then(step_answers);
        let stored = stored.map_err(|failure| after_others(failure, sent))?;
        if stored.len() != indexes.len() {
            return Err(unexpected_answer(&Value::Nil));
        }
        for (index, answer) in indexes.into_iter().zip(stored) {
            answers[index] = answer;
        }
        sent += 1;
    }
    Ok(answers)
}

fn step_answers(answer: Value) -> Result<Vec<StepAnswer>, Failure> {
    Reader::new(answer)?.rest(|part| step_answer(&part.bytes()?))
}

fn step_answer(text: &[u8]) -> Result<StepAnswer, Failure> {
    match text.split_first() {
        Some((b's', _)) => Ok(StepAnswer::Stored),
        Some((b'f', value)) => Ok(StepAnswer::Found(value.to_vec())),
        Some((b'r' | b'a', _)) => Ok(StepAnswer::Refused),
        Some((b'x', _)) => Ok(StepAnswer::Full),
        Some((b'e', _)) => Ok(StepAnswer::Corrupt),
        _ => Err(unexpected_answer(&Value::Nil)),
    }
}

/// Stores a step of a task that has not ended.
pub(super) async fn signal(
    inner: &Inner,
    id: TaskId,
    name: &StepName,
    value: &[u8],
) -> Result<SignalAnswer, Failure> {
    let mut arguments = Arguments::default();
    arguments.push(id.to_bytes());
    arguments.push(name.as_str());
    arguments.push(value);
    let script = &inner.scripts.signal;
    let answer = inner
        .run(script, inner.partitions.of_task(id), arguments)
        .await?;
    Ok(step_answer(&reply::bytes(answer)?)?.into())
}

/// Returns the steps of a task, in the order in which they were stored.
///
/// # Errors
///
/// If steps are lost or cannot be read: a run without them would repeat them.
pub(super) async fn read(inner: &Inner, id: TaskId) -> Result<Vec<StoredStep>, Failure> {
    let mut arguments = Arguments::default();
    arguments.push(id.to_bytes());
    let script = &inner.scripts.read_steps;
    let answer = inner
        .run(script, inner.partitions.of_task(id), arguments)
        .await?;
    let mut parts = Reader::new(answer)?;
    let now = parts.number()?.try_into().unwrap_or_default();
    let expected = parts.optional_bytes()?.filter(|row| row.len() == 4);
    let expected = expected.map_or(0, |row| entry::number(&row));
    let rows = parts.list()?.rest(Reader::bytes)?;
    let steps = steps_in(&rows, now).filter(|steps| steps.len() as u64 >= expected);
    steps.ok_or_else(|| Failure::new(Effect::None, Cause::Corrupt).answered())
}

/// Reads the rows of `steps:<id>`, which are pairs of names and rows. Returns `None` if one cannot be read.
fn steps_in(rows: &[Vec<u8>], now: u64) -> Option<Vec<StoredStep>> {
    let (pairs, _) = rows.as_chunks::<2>();
    let steps = pairs.iter().filter(|[name, _]| !name.is_empty());
    let steps = steps.map(|[name, row]| step_in(name, row, now));
    let mut steps = steps.collect::<Option<Vec<_>>>()?;
    steps.sort_by_key(|(number, _)| *number);
    Some(steps.into_iter().map(|(_, step)| step).collect())
}

/// Reads a step, and its number.
fn step_in(name: &[u8], row: &[u8], now: u64) -> Option<(u64, StoredStep)> {
    let (number, row) = row.split_at_checked(4)?;
    let (at, value) = row.split_at_checked(6)?;
    let age = now.saturating_sub(entry::number(at));
    let step = StoredStep {
        name: String::from_utf8(name.to_vec()).ok()?,
        value: value.to_vec(),
        age: Duration::from_millis(age),
    };
    Some((entry::number(number), step))
}
