//! The replay of a task from one of its steps.

use rusqlite::params;

use super::admin::replay_one;
use super::error::Fault;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::store::{ChangeAnswer, RecordedReplay, StepName, StepReplay};
use crate::durable::{Refusal, TaskId};

/// Removes a step of a task and all later ones, and makes the task ready. Records this as a step.
pub(super) fn replay_from(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    is_dead: bool,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    // An expired dead letter still has its steps.
    if task.state == State::Dead && !is_dead {
        return Ok(ChangeAnswer::OtherStatus);
    }
    let recorded = replay.recorded_in(&tx.records(id)?);
    if recorded == Some(RecordedReplay::Itself) {
        return Ok(ChangeAnswer::Changed);
    }
    if !is_dead && !matches!(task.state, State::Waiting | State::Delayed) {
        return Ok(ChangeAnswer::OtherStatus);
    }
    let found = tx.number_of_step(id, &replay.first)?;
    match found.filter(|_| is_dead || !replay.names_replaced_record(recorded)) {
        Some(number) => cut_and_replay(tx, id, task, number, replay),
        None if is_dead || recorded.is_none() => Ok(ChangeAnswer::Refused(Refusal::NoSuchStep)),
        None => replay_again(tx, id, task, replay),
    }
}

/// Removes the steps of a task from this number on, and makes it ready.
fn cut_and_replay(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    number: u32,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    // The steps are counted below, so nothing would show that an earlier one is lost, and the next run would repeat it.
    if tx.number_of_steps_before(id, number)? + 1 < number {
        return Ok(ChangeAnswer::Refused(Refusal::Unreadable));
    }
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
        tx.replace_steps_from(id, number, &name, &replay.record())?;
    }
    Ok(answer)
}

/// Makes a task due that was replayed from the same step, and has not stored it since.
fn replay_again(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    if task.state != State::Delayed {
        return Ok(ChangeAnswer::Same);
    }
    tx.run_now(id)?;
    tx.record_again(id, replay)?;
    Ok(ChangeAnswer::Changed)
}

impl Transaction<'_> {
    /// Returns the number of a step, if the task has it.
    fn number_of_step(&self, id: TaskId, name: &StepName) -> Result<Option<u32>, rusqlite::Error> {
        let sql = "SELECT number FROM throng_step WHERE id = ?1 AND name = ?2";
        let number = self.number(sql, params![id.to_bytes(), name.as_str()])?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    fn number_of_steps_before(&self, id: TaskId, number: u32) -> Result<u32, rusqlite::Error> {
        let sql = "SELECT count(*) FROM throng_step WHERE id = ?1 AND number < ?2";
        let mut statement = self.db.prepare_cached(sql)?;
        statement.query_row(params![id.to_bytes(), number], |row| row.get(0))
    }

    /// Returns the values of the steps that record replays, in their order.
    fn records(&self, id: TaskId) -> Result<Vec<Vec<u8>>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(
            "SELECT value FROM throng_step
             WHERE id = ?1 AND name >= 'replay:' AND name < 'replay;' ORDER BY number",
        )?;
        let records = statement.query_map([id.to_bytes()], |row| row.get(0))?;
        records.collect()
    }

    /// Adds a request to the last step that records a replay, which was from the same step. The size of the step stays the same.
    fn record_again(&self, id: TaskId, replay: &StepReplay) -> Result<(), rusqlite::Error> {
        let last = self.records(id)?.pop().unwrap_or_default();
        self.execute(
            "UPDATE throng_step SET value = ?2 WHERE id = ?1 AND name = (
                 SELECT name FROM throng_step
                 WHERE id = ?1 AND name >= 'replay:' AND name < 'replay;' ORDER BY number DESC LIMIT 1)",
            params![id.to_bytes(), replay.record_after(&last)],
        )?;
        Ok(())
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
