//! The replay of a task from one of its steps.

use super::admin::replay_one;
use super::changes::run_now;
use super::error::Fault;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::store::{ChangeAnswer, StepKind, StepName};
use crate::durable::{Refusal, TaskId};

/// Removes a step of a task and all later ones, and makes the task ready. Records this as a step.
pub(super) fn replay_from(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    is_dead: bool,
    step: &StepName,
) -> Result<ChangeAnswer, Fault> {
    if !is_dead && !matches!(task.state, State::Waiting | State::Delayed) {
        return Ok(ChangeAnswer::OtherStatus);
    }
    let Some(number) = tx.number_of_step(id, step)? else {
        return Ok(match !is_dead && was_replayed_from(tx, id, step)? {
            true => ChangeAnswer::Same,
            false => ChangeAnswer::Refused(Refusal::NoSuchStep),
        });
    };
    let answer = match task.state {
        State::Waiting => ChangeAnswer::Changed,
        State::Delayed => run_now(tx, id)?,
        _ => replay_one(tx, id)?,
    };
    if answer == ChangeAnswer::Changed {
        let name = StepName::of_replay(number);
        tx.replace_steps_from(id, number, &name, step.as_str().as_bytes())?;
    }
    Ok(answer)
}

fn was_replayed_from(
    tx: &Transaction<'_>,
    id: TaskId,
    step: &StepName,
) -> Result<bool, rusqlite::Error> {
    let last = tx.last_step(id)?;
    Ok(last.is_some_and(|(name, value)| {
        let kind = StepName::split(&name).map(|(kind, _)| kind);
        kind == Some(StepKind::Replay) && value == step.as_str().as_bytes()
    }))
}
