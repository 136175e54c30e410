//! The replay of a task from one of its steps.

use super::dead_letters::replay_one;
use super::error::Fault;
use super::state::State;
use super::task::Task;
use super::text;
use super::transaction::Transaction;
use super::view::{View, uuid};
use crate::durable::store::{ChangeAnswer, RecordedReplay, StepName, StepReplay};
use crate::durable::{Refusal, TaskId};

const NUMBER: &str = "SELECT number FROM throng.step WHERE id = $1 AND name = $2";

const COUNT_BEFORE: &str = "SELECT count(*) FROM throng.step WHERE id = $1 AND number < $2";

/// Selects the steps that record replays, in their order.
const RECORDS: &str = "SELECT value FROM throng.step
    WHERE id = $1 AND name >= 'replay:' AND name < 'replay;' ORDER BY number";

const REPLACE_LAST_RECORD: &str = "UPDATE throng.step SET value = $2 WHERE id = $1 AND name = (
        SELECT name FROM throng.step
        WHERE id = $1 AND name >= 'replay:' AND name < 'replay;' ORDER BY number DESC LIMIT 1)";

const CUT: &str = "DELETE FROM throng.step WHERE id = $1 AND number >= $2";

const LEFT: &str = "SELECT name, length(value) AS bytes FROM throng.step WHERE id = $1";

const INSERT: &str = "INSERT INTO throng.step (id, name, number, at, value)
    VALUES ($1, $2, $3, $4, $5)";

const COUNT: &str = "UPDATE throng.workflow
    SET until = NULL, waits_for = NULL, steps = $2, bytes = $3 WHERE id = $1";

/// Removes a step of a task and all later ones, and makes the task ready. Records this as a step.
pub(super) async fn replay_from(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    is_dead: bool,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    tx.require_exclusive()?;
    // An expired dead letter still has its steps.
    if task.state == State::Dead && !is_dead {
        return Ok(ChangeAnswer::OtherStatus);
    }
    let recorded = replay.recorded_in(&records(tx, id).await?);
    if recorded == Some(RecordedReplay::Itself) {
        return Ok(ChangeAnswer::Changed);
    }
    if !is_dead && !matches!(task.state, State::Waiting | State::Delayed) {
        return Ok(ChangeAnswer::OtherStatus);
    }
    let found = number_of_step(tx, id, &replay.first).await?;
    match found.filter(|_| is_dead || !replay.names_replaced_record(recorded)) {
        Some(number) => cut_and_replay(tx, id, task, number, replay).await,
        None if is_dead || recorded.is_none() => Ok(ChangeAnswer::Refused(Refusal::NoSuchStep)),
        None => replay_again(tx, id, task, replay).await,
    }
}

/// Removes the steps of a task from this number on, and makes it ready.
async fn cut_and_replay(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    number: u32,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    // The steps are counted below, so nothing would show that an earlier one is lost, and the next run would repeat it.
    let before: Option<i64> = tx
        .value(COUNT_BEFORE, &[&uuid(id), &i64::from(number)])
        .await?;
    if before.unwrap_or_default() + 1 < i64::from(number) {
        return Ok(ChangeAnswer::Refused(Refusal::Unreadable));
    }
    let answer = match task.state {
        State::Waiting => ChangeAnswer::Changed,
        State::Delayed => {
            run_now(tx, id).await?;
            ChangeAnswer::Changed
        }
        _ => replay_one(tx, id).await?,
    };
    if answer == ChangeAnswer::Changed {
        replace_steps_from(tx, id, number, &replay.record()).await?;
    }
    Ok(answer)
}

/// Makes a task due that was replayed from the same step, and has not stored it since.
async fn replay_again(
    tx: &mut Transaction,
    id: TaskId,
    task: &Task,
    replay: &StepReplay,
) -> Result<ChangeAnswer, Fault> {
    if task.state != State::Delayed {
        return Ok(ChangeAnswer::Same);
    }
    run_now(tx, id).await?;
    let last = records(tx, id).await?.pop().unwrap_or_default();
    // Both values have the same length.
    let record = replay.record_after(&last);
    tx.execute(REPLACE_LAST_RECORD, &[&uuid(id), &record])
        .await?;
    Ok(ChangeAnswer::Changed)
}

/// Makes a delayed task wait.
async fn run_now(tx: &mut Transaction, id: TaskId) -> Result<(), Fault> {
    let now = tx.now.wall;
    tx.push_back(&[id], State::Delayed, Some(now)).await
}

/// Returns the number of a step, if the task has it.
async fn number_of_step(view: &View, id: TaskId, name: &StepName) -> Result<Option<u32>, Fault> {
    let name = text::stored(name.as_str());
    let number: Option<i64> = view.value(NUMBER, &[&uuid(id), &name]).await?;
    Ok(number.map(|number| number as u32))
}

/// Returns the values of the steps that record replays, in their order.
async fn records(view: &View, id: TaskId) -> Result<Vec<Vec<u8>>, Fault> {
    Ok(view.values(RECORDS, &[&uuid(id)]).await?)
}

/// Removes the steps of a task from this number on, and adds the record of a replay in their place.
async fn replace_steps_from(
    tx: &Transaction,
    id: TaskId,
    number: u32,
    record: &[u8],
) -> Result<(), Fault> {
    let (id, place) = (uuid(id), i64::from(number));
    tx.execute(CUT, &[&id, &place]).await?;
    let name = StepName::of_replay(number);
    let name = text::stored(name.as_str());
    tx.execute(INSERT, &[&id, &name, &place, &tx.now.wall, &record])
        .await?;
    let (mut steps, mut bytes) = (0_i32, 0_i64);
    for row in tx.rows(LEFT, &[&id]).await? {
        let name = text::loaded(row.try_get("name")?);
        steps += 1;
        bytes += name.len() as i64 + i64::from(row.try_get::<_, i32>("bytes")?);
    }
    tx.execute(COUNT, &[&id, &steps, &bytes]).await?;
    Ok(())
}
