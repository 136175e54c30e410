//! The changes that an operator makes to single tasks.

use std::collections::BTreeSet;

use rusqlite::params;

use super::admin::{cancel_each, replay_one};
use super::error::Fault;
use super::queues::queue_column;
use super::replay_from::replay_from;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::{Change, ChangeAnswer};
use crate::durable::{Refusal, TaskId};

pub(super) fn change(
    tx: &mut Transaction<'_>,
    ids: &[TaskId],
    change: &Change,
) -> Result<Vec<ChangeAnswer>, Fault> {
    if *change == Change::Cancel {
        let cancelled: BTreeSet<_> = cancel_each(tx, ids)?.into_iter().collect();
        let answers = ids
            .iter()
            .map(|id| ChangeAnswer::changed_if(cancelled.contains(id)));
        return Ok(answers.collect());
    }
    let mut answers = Vec::with_capacity(ids.len());
    for &id in ids {
        answers.push(match tx.task(id)? {
            Some(task) => change_one(tx, id, &task, change)?,
            None => ChangeAnswer::OtherStatus,
        });
    }
    tx.remove_emptied_sublists()?;
    Ok(answers)
}

fn change_one(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    change: &Change,
) -> Result<ChangeAnswer, Fault> {
    let is_dead = task.state == State::Dead && !task.state.is_expired(task.at, tx.expiry());
    match change {
        Change::RunNow if task.state == State::Delayed => {
            tx.run_now(id)?;
            Ok(ChangeAnswer::Changed)
        }
        Change::MoveTo(queue) if matches!(task.state, State::Waiting | State::Delayed) => {
            move_to(tx, id, task, queue)
        }
        Change::Replay if is_dead => replay_one(tx, id),
        Change::ReplayFrom(replay) => replay_from(tx, id, task, is_dead, replay),
        Change::Delete if is_dead => {
            tx.remove(id, task)?;
            Ok(ChangeAnswer::Changed)
        }
        _ => Ok(ChangeAnswer::OtherStatus),
    }
}

/// Moves a task that waits or is delayed to another queue.
fn move_to(
    tx: &mut Transaction<'_>,
    id: TaskId,
    task: &Task,
    queue: &QueueName,
) -> Result<ChangeAnswer, Fault> {
    let placed = tx.placed(id)?;
    if placed.queue == *queue {
        return Ok(ChangeAnswer::Same);
    }
    if placed.is_replaceable {
        return Ok(ChangeAnswer::Refused(Refusal::Replaceable));
    }
    let Some((kind, _)) = placed.kind.moved(&placed.name, &placed.queue, queue) else {
        return Ok(ChangeAnswer::Refused(Refusal::Unreadable));
    };
    if task.state == State::Waiting {
        tx.take_out_of_list(task)?;
    }
    // The default queue has no groups.
    tx.execute(
        "UPDATE throng_task SET kind = ?2, queue = ?3, group_name = iif(?3 IS NULL, NULL, group_name)
         WHERE id = ?1",
        params![id.to_bytes(), kind.number(), queue_column(queue)],
    )?;
    if task.state == State::Waiting {
        tx.push_back(id, State::Waiting)?;
    }
    Ok(ChangeAnswer::Changed)
}

/// The properties of a task that determine the list in which it waits.
struct Placed {
    name: String,
    kind: Kind,
    queue: QueueName,
    /// `true` if a spawn may replace the task.
    is_replaceable: bool,
}

impl Transaction<'_> {
    fn placed(&self, id: TaskId) -> Result<Placed, rusqlite::Error> {
        let sql = "SELECT name, kind, queue, key_since IS NOT NULL FROM throng_task WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        statement.query_row([id.to_bytes()], |row| {
            Ok(Placed {
                name: row.get(0)?,
                kind: Kind::from_number(row.get(1)?),
                queue: QueueName::from(row.get::<_, Option<String>>(2)?),
                is_replaceable: row.get(3)?,
            })
        })
    }
}
