//! The steps of tasks, in the tables `throng_step` and `throng_workflow`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::{Fault, corrupt, no_sense};
use super::reader::ReadConnection;
use super::schema::has_steps;
use super::task::Task;
use super::time::Now;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::{
    ChildEnd, MAX_BYTES_WITH_OUTPUTS, NewStep, SignalAnswer, StepAnswer, StepName, StepWait,
    StoredStep, TaskState, has_room,
};

/// Stores steps of running tasks. Returns an answer for each, in their order.
pub(super) fn store(tx: &mut Transaction<'_>, steps: &[NewStep]) -> Result<Vec<StepAnswer>, Fault> {
    let (mut claims, mut answers) = (BTreeMap::new(), Vec::with_capacity(steps.len()));
    for step in steps {
        let epoch = step.epoch as i64;
        if let Entry::Vacant(claim) = claims.entry(epoch) {
            claim.insert(tx.claimed_tasks(epoch)?);
        }
        let is_held = claims[&epoch].contains(step.id) && tx.is_active(step.id)?;
        answers.push(match is_held {
            true => tx.add_step(step.id, &step.name, &step.value, true)?,
            false => StepAnswer::Refused,
        });
    }
    Ok(answers)
}

/// Stores a signal for a task. If the task waits for as many steps as it has now, it is due.
pub(super) fn signal(
    tx: &mut Transaction<'_>,
    id: TaskId,
    name: &StepName,
    value: &[u8],
) -> Result<SignalAnswer, Fault> {
    let mut is_alive = tx.is_alive(id)?;
    if !is_alive && tx.move_from_outbox(id)? {
        is_alive = tx.is_alive(id)?;
    }
    if !is_alive {
        return Ok(SignalAnswer::Absent);
    }
    let answer = tx.add_step(id, name, value, false)?.into();
    if answer == SignalAnswer::Stored {
        tx.wake_suspended(id)?;
    }
    Ok(answer)
}

/// Returns the steps of a task, in the order in which they were stored.
///
/// # Errors
///
/// If a step is missing, so that a repair ends the task: a run without it would repeat the step.
pub(super) fn read(reader: &ReadConnection, id: TaskId) -> Result<Vec<StoredStep>, Fault> {
    reader.snapshot(|db| {
        // An observer does not add the tables.
        if !has_steps(db)? {
            return Ok(Vec::new());
        }
        let expected = totals(db, id)?.steps;
        let steps = read_steps(db, id, Now::read(&reader.clock))?;
        match steps.len() as u32 == expected {
            true => Ok(steps),
            false => Err(corrupt()),
        }
    })
}

fn read_steps(db: &Connection, id: TaskId, now: Now) -> Result<Vec<StoredStep>, rusqlite::Error> {
    let sql = "SELECT name, value, at FROM throng_step WHERE id = ?1 ORDER BY number";
    let mut statement = db.prepare_cached(sql)?;
    let steps = statement.query_map([id.to_bytes()], |row| {
        Ok(StoredStep {
            name: row.get(0)?,
            value: row.get(1)?,
            age: now.since(row.get(2)?),
        })
    })?;
    steps.collect()
}

/// The number and the size of the steps of a task.
#[derive(Clone, Copy, Default)]
struct StepTotals {
    steps: u32,
    /// The size of the names and values, in bytes.
    bytes: usize,
    /// The number of steps for which the task waits, or has waited.
    until: Option<u32>,
}

fn totals(db: &Connection, id: TaskId) -> Result<StepTotals, rusqlite::Error> {
    let sql = "SELECT steps, bytes, until FROM throng_workflow WHERE id = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_row([id.to_bytes()], |row| {
        Ok(StepTotals {
            steps: row.get(0)?,
            bytes: row.get::<_, u32>(1)? as usize,
            until: row.get(2)?,
        })
    });
    Ok(found.optional()?.unwrap_or_default())
}

impl Transaction<'_> {
    /// Returns the number of steps of a task. If no task has any, this reads nothing after the first time.
    pub(super) fn number_of_steps(&self, id: TaskId) -> Result<u32, rusqlite::Error> {
        match self.has_workflows()? {
            true => Ok(totals(self.db, id)?.steps),
            false => Ok(0),
        }
    }

    /// Returns the number of steps of a task that is claimed, and how its last wait has ended.
    pub(super) fn claimed_steps(&self, id: TaskId) -> Result<(u32, StepWait), rusqlite::Error> {
        if !self.has_workflows()? {
            return Ok((0, StepWait::Over));
        }
        let StepTotals { steps, until, .. } = totals(self.db, id)?;
        // A run that did not know its steps would repeat them.
        let sql = "SELECT 1 FROM throng_step WHERE id = ?1";
        if steps == 0 && self.number(sql, [id.to_bytes()])?.is_some() {
            return Err(no_sense());
        }
        Ok((steps, StepWait::of(steps, until)))
    }

    /// Suspends a running task until `due`, or until it has `until` steps, which the text describes. If it has them, it is due now.
    pub(super) fn suspend(
        &mut self,
        id: TaskId,
        task: &Task,
        due: i64,
        until: Option<(u32, &str)>,
    ) -> Result<(), Fault> {
        self.forget_failures(id, task)?;
        let Some((until, waits_for)) = until else {
            return self.delay(id, due);
        };
        if self.number_of_steps(id)? >= until {
            return self.delay(id, self.now.wall);
        }
        self.delay(id, due)?;
        self.has_workflows.set(Some(true));
        self.execute(
            "INSERT INTO throng_workflow (id, steps, bytes, until, waits_for) VALUES (?1, 0, 0, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET until = excluded.until, waits_for = excluded.waits_for",
            params![id.to_bytes(), until, waits_for],
        )?;
        Ok(())
    }

    /// Records that a task, which is delayed now, waits for no number of steps.
    pub(super) fn wait_for_no_steps(&self, id: TaskId) -> Result<(), rusqlite::Error> {
        if self.has_workflows()? {
            let sql = "UPDATE throng_workflow SET until = NULL, waits_for = NULL
                 WHERE id = ?1 AND until IS NOT NULL";
            self.execute(sql, [id.to_bytes()])?;
        }
        Ok(())
    }

    /// Removes the steps of a task that has ended.
    pub(super) fn remove_steps(&self, id: TaskId) -> Result<(), rusqlite::Error> {
        if !self.has_workflows()? {
            return Ok(());
        }
        let removed = self.execute("DELETE FROM throng_workflow WHERE id = ?1", [id.to_bytes()])?;
        if removed != 0 {
            self.execute("DELETE FROM throng_step WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }

    /// Removes steps of tasks that have ended, in a range of ids that begins behind `after` and ends with `last`. An earlier version of the
    /// crate leaves them.
    pub(super) fn remove_left_steps(
        &self,
        after: Option<TaskId>,
        last: Option<TaskId>,
    ) -> Result<(), rusqlite::Error> {
        if !self.has_workflows()? {
            return Ok(());
        }
        let mut statement = self.db.prepare_cached(
            "SELECT id FROM throng_workflow AS own
             WHERE id > coalesce(?1, x'') AND (?2 IS NULL OR id <= ?2) AND NOT EXISTS (
                 SELECT 1 FROM throng_task AS task
                 WHERE task.id = own.id AND (state < 2 OR state = 4))",
        )?;
        let range = [after, last].map(|id| id.map(TaskId::to_bytes));
        let left = statement.query_map(range, |row| row.get(0).map(TaskId::from_bytes))?;
        let left: Vec<_> = left.collect::<Result<_, _>>()?;
        left.into_iter().try_for_each(|id| self.remove_steps(id))
    }

    /// Stores the end of a child as a step of its parent, unless the parent has ended and is no dead letter. If the parent waits for as
    /// many steps as it has now, it is due.
    pub(super) fn tell_parent(
        &mut self,
        child: TaskId,
        task: &Task,
        end: impl FnOnce() -> TaskState,
    ) -> Result<(), Fault> {
        if let Some(parent) = task.parent
            && self.has_kept_steps(parent)?
        {
            self.add_child_end(parent, child, &end())?;
            self.wake_suspended(parent)?;
        }
        Ok(())
    }

    fn is_alive(&self, id: TaskId) -> Result<bool, rusqlite::Error> {
        let sql = "SELECT 1 FROM throng_task WHERE id = ?1 AND state < 2";
        Ok(self.number(sql, [id.to_bytes()])?.is_some())
    }

    /// Returns `true` if a task keeps its steps: it has not ended, or it is a dead letter.
    fn has_kept_steps(&self, id: TaskId) -> Result<bool, rusqlite::Error> {
        let sql = "SELECT 1 FROM throng_task WHERE id = ?1 AND (state < 2 OR state = 4)";
        Ok(self.number(sql, [id.to_bytes()])?.is_some())
    }

    /// Adds the end of a child: in any case, but without its output if the task would have too many bytes of steps with it.
    fn add_child_end(
        &self,
        parent: TaskId,
        child: TaskId,
        end: &TaskState,
    ) -> Result<(), rusqlite::Error> {
        let (name, before) = (StepName::of_child(child), totals(self.db, parent)?);
        let room = MAX_BYTES_WITH_OUTPUTS.saturating_sub(before.bytes + name.as_str().len());
        match ChildEnd::encode(end, room) {
            Some(value) if self.step(parent, &name)?.is_none() => {
                self.insert_step(parent, &name, &value, before)
            }
            _ => Ok(()),
        }
    }

    /// If a task waits for as many steps as it has now, the wait is over: if it is delayed, it is due.
    fn wake_suspended(&mut self, id: TaskId) -> Result<(), rusqlite::Error> {
        let sql = "UPDATE throng_workflow SET until = NULL WHERE id = ?1 AND until <= steps";
        if self.execute(sql, [id.to_bytes()])? == 0 {
            return Ok(());
        }
        let sql = "UPDATE throng_task SET at = ?2, ready_at = ?2 WHERE id = ?1 AND state = 1";
        let woken = self.execute(sql, params![id.to_bytes(), self.now.wall])?;
        self.notices.has_earlier_task |= woken != 0;
        Ok(())
    }

    /// Adds a step. A task that runs waits for no steps any more.
    fn add_step(
        &self,
        id: TaskId,
        name: &StepName,
        value: &[u8],
        is_running: bool,
    ) -> Result<StepAnswer, rusqlite::Error> {
        let before = totals(self.db, id)?;
        if before.steps > 0
            && let Some(first) = self.step(id, name)?
        {
            return Ok(StepAnswer::Found(first));
        }
        let added = name.as_str().len() + value.len();
        if !has_room(before.steps, before.bytes, added) {
            return Ok(StepAnswer::Full);
        }
        self.insert_step(id, name, value, before)?;
        if is_running && before.until.is_some() {
            self.wait_for_no_steps(id)?;
        }
        Ok(StepAnswer::Stored)
    }

    /// Inserts a step of a task that has had these steps before.
    fn insert_step(
        &self,
        id: TaskId,
        name: &StepName,
        value: &[u8],
        StepTotals { steps, bytes, .. }: StepTotals,
    ) -> Result<(), rusqlite::Error> {
        self.has_workflows.set(Some(true));
        self.execute(
            "INSERT INTO throng_step (id, name, number, at, value) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                id.to_bytes(),
                name.as_str(),
                steps + 1,
                self.now.wall,
                value
            ],
        )?;
        let bytes = bytes + name.as_str().len() + value.len();
        self.execute(
            "INSERT INTO throng_workflow (id, steps, bytes) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET steps = excluded.steps, bytes = excluded.bytes",
            params![id.to_bytes(), steps + 1, bytes as i64],
        )?;
        Ok(())
    }

    /// Returns the value of a step, if the task has it.
    fn step(&self, id: TaskId, name: &StepName) -> Result<Option<Vec<u8>>, rusqlite::Error> {
        let sql = "SELECT value FROM throng_step WHERE id = ?1 AND name = ?2";
        let mut statement = self.db.prepare_cached(sql)?;
        let value = statement.query_row(params![id.to_bytes(), name.as_str()], |row| row.get(0));
        value.optional()
    }

    fn has_workflows(&self) -> Result<bool, rusqlite::Error> {
        if let Some(known) = self.has_workflows.get() {
            return Ok(known);
        }
        let found = self
            .number("SELECT 1 FROM throng_workflow LIMIT 1", [])?
            .is_some();
        self.has_workflows.set(Some(found));
        Ok(found)
    }
}
