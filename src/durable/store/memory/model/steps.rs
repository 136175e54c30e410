//! The steps of tasks.

use std::time::Duration;

use super::row::{Row, State, StepRow};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::store::{
    ChildEnd, MAX_BYTES_WITH_OUTPUTS, NewStep, SignalAnswer, StepAnswer, StepName, StoredStep,
    TaskState, has_room,
};

impl Model {
    pub(in super::super) fn store_steps(&mut self, steps: &[NewStep]) -> Vec<StepAnswer> {
        let now = self.wall();
        let answers = steps.iter().map(|step| {
            let row = self.tasks.get_mut(&step.id);
            match row.filter(|row| row.is_held(step.epoch)) {
                Some(row) => {
                    let answer = row.add_step(now, &step.name, &step.value);
                    // A task that runs waits for nothing.
                    row.until = row.until.filter(|_| answer != StepAnswer::Stored);
                    answer
                }
                None => StepAnswer::Refused,
            }
        });
        answers.collect()
    }

    pub(in super::super) fn steps(&self, id: TaskId) -> Vec<StoredStep> {
        let now = self.wall();
        let row = self.tasks.get(&id);
        let steps = row.into_iter().flat_map(|row| &row.steps);
        let steps = steps.map(|step| StoredStep {
            name: step.name.as_str().to_owned(),
            value: step.value.clone(),
            age: Duration::from_millis(now.saturating_sub(step.at)),
        });
        steps.collect()
    }

    pub(in super::super) fn signal(
        &mut self,
        id: TaskId,
        name: &StepName,
        value: &[u8],
    ) -> SignalAnswer {
        let now = self.wall();
        let row = self.tasks.get_mut(&id).filter(|row| row.is_alive());
        let answer = row.map_or(SignalAnswer::Absent, |row| {
            row.add_step(now, name, value).into()
        });
        if answer == SignalAnswer::Stored {
            self.wake_suspended(id);
        }
        answer
    }

    /// Stores the end of a child as a step of its parent, unless the parent has ended and is no dead letter. If the parent waits for as
    /// many steps as it has now, it is due.
    pub(super) fn tell_parent(&mut self, parent: TaskId, child: TaskId, end: &TaskState) {
        let now = self.wall();
        let row = self.tasks.get_mut(&parent);
        if let Some(row) = row.filter(|row| row.has_kept_steps()) {
            row.add_child_end(now, child, end);
            self.wake_suspended(parent);
        }
    }

    /// If a task waits for as many steps as it has now, the wait is over: if it is delayed, it is due.
    fn wake_suspended(&mut self, id: TaskId) {
        let row = self.tasks.get_mut(&id);
        let Some(row) = row.filter(|row| row.has_steps_until(row.until)) else {
            return;
        };
        // If the time has made it due before, it waits for nothing any more.
        row.until = None;
        if matches!(row.state, State::Delayed { .. }) {
            self.delay(id, self.wall());
            // The worker that makes the task due need not be able to run it.
            self.wake(1, |_| true);
        }
    }

    /// Suspends a task until `due`, or until it has `until` steps. If it has them, it is due now.
    pub(super) fn suspend(&mut self, id: TaskId, due: u64, until: Option<u32>, waits_for: &str) {
        let Some(row) = self.tasks.get_mut(&id) else {
            return;
        };
        (row.failures, row.crashes, row.lost) = (0, 0, 0);
        row.failing_since = None;
        row.errors.clear();
        let is_reached = row.has_steps_until(until);
        let due = if is_reached { self.wall() } else { due };
        self.delay(id, due);
        if let Some(row) = self.tasks.get_mut(&id) {
            row.until = until.filter(|_| !is_reached);
            row.waits_for = waits_for.to_owned();
        }
    }
}

impl Row {
    fn add_step(&mut self, now: u64, name: &StepName, value: &[u8]) -> StepAnswer {
        if let Some(first) = self.steps.iter().find(|step| step.name == *name) {
            return StepAnswer::Found(first.value.clone());
        }
        let sizes = self.steps.iter().map(StepRow::size);
        let added = name.as_str().len() + value.len();
        if !has_room(self.number_of_steps(), sizes.sum(), added) {
            return StepAnswer::Full;
        }
        self.steps.push(StepRow {
            name: name.clone(),
            value: value.to_vec(),
            at: now,
        });
        StepAnswer::Stored
    }

    /// Returns `true` if the task keeps its steps: it has not ended, or it is a dead letter.
    fn has_kept_steps(&self) -> bool {
        self.is_alive() || matches!(self.state, State::Dead { .. })
    }

    /// Adds the end of a child: in any case, but without its output if the task would have too many bytes of steps with it.
    fn add_child_end(&mut self, now: u64, child: TaskId, end: &TaskState) {
        let name = StepName::of_child(child);
        let size: usize = self.steps.iter().map(StepRow::size).sum();
        let room = MAX_BYTES_WITH_OUTPUTS.saturating_sub(size + name.as_str().len());
        let value = ChildEnd::encode(end, room);
        let is_new = self.steps.iter().all(|step| step.name != name);
        if let Some(value) = value.filter(|_| is_new) {
            let at = now;
            self.steps.push(StepRow { name, value, at });
        }
    }

    /// Returns `true` if there is a number of steps to wait for, and the task has as many.
    fn has_steps_until(&self, until: Option<u32>) -> bool {
        until.is_some_and(|until| self.number_of_steps() >= until)
    }

    pub(super) fn number_of_steps(&self) -> u32 {
        self.steps.len() as u32
    }
}

impl StepRow {
    fn size(&self) -> usize {
        self.name.as_str().len() + self.value.len()
    }
}
