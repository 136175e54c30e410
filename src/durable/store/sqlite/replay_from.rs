//! The replay of a task from one of its steps.

use rusqlite::{OptionalExtension, params};

use super::admin::replay_one;
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
        State::Delayed => {
            tx.run_now(id)?;
            ChangeAnswer::Changed
        }
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

impl Transaction<'_> {
    /// Returns the number of a step, if the task has it.
    fn number_of_step(&self, id: TaskId, name: &StepName) -> Result<Option<u32>, rusqlite::Error> {
        let sql = "SELECT number FROM throng_step WHERE id = ?1 AND name = ?2";
        let number = self.number(sql, params![id.to_bytes(), name.as_str()])?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// Returns the name and the value of the last step of a task.
    fn last_step(&self, id: TaskId) -> Result<Option<(String, Vec<u8>)>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(
            "SELECT name, value FROM throng_step WHERE id = ?1 ORDER BY number DESC LIMIT 1",
        )?;
        let last = statement.query_row([id.to_bytes()], |row| Ok((row.get(0)?, row.get(1)?)));
        last.optional()
    }

    /// Removes the steps of a task from this number on, and adds one in their place.
    fn replace_steps_from(
        &self,
        id: TaskId,
        number: u32,
        name: &StepName,
        value: &[u8],
    ) -> Result<(), rusqlite::Error> {
        self.execute(
            "DELETE FROM throng_step WHERE id = ?1 AND number >= ?2",
            params![id.to_bytes(), number],
        )?;
        self.execute(
            "INSERT INTO throng_step (id, name, number, at, value) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id.to_bytes(), name.as_str(), number, self.now.wall, value],
        )?;
        self.execute(
            "UPDATE throng_workflow SET until = NULL, waits_for = NULL, (steps, bytes) = (
                 SELECT count(*), sum(length(CAST(name AS BLOB)) + length(value))
                 FROM throng_step AS step WHERE step.id = ?1)
             WHERE id = ?1",
            [id.to_bytes()],
        )?;
        Ok(())
    }
}
