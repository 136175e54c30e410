//! The replay of a task from one of its steps.

use super::row::{Row, State, StepRow};
use super::state::Model;
use crate::durable::store::{ChangeAnswer, StepKind, StepName};
use crate::durable::{Refusal, TaskId};

impl Model {
    /// Removes a step and all later ones, and makes the task ready. Records this as a step.
    pub(super) fn replay_from(&mut self, id: TaskId, step: &StepName) -> ChangeAnswer {
        let now = self.wall();
        let Some(row) = self.tasks.get(&id) else {
            return ChangeAnswer::OtherStatus;
        };
        let is_dead = matches!(row.state, State::Dead { .. }) && !row.is_expired(self.expiry());
        if !is_dead && !matches!(row.state, State::Waiting | State::Delayed { .. }) {
            return ChangeAnswer::OtherStatus;
        }
        let Some(kept) = row.steps.iter().position(|it| it.name == *step) else {
            return match row.was_replayed_from(step) {
                true if !is_dead => ChangeAnswer::Same,
                _ => ChangeAnswer::Refused(Refusal::NoSuchStep),
            };
        };
        let answer = match row.state {
            State::Waiting => ChangeAnswer::Changed,
            State::Delayed { .. } => self.run_now(id),
            _ => self.replay_one(id),
        };
        if answer == ChangeAnswer::Changed
            && let Some(row) = self.tasks.get_mut(&id)
        {
            row.cut_steps(now, kept, step);
        }
        answer
    }
}

impl Row {
    fn was_replayed_from(&self, step: &StepName) -> bool {
        self.steps.last().is_some_and(|last| {
            let kind = StepName::split(last.name.as_str()).map(|(kind, _)| kind);
            kind == Some(StepKind::Replay) && last.value == step.as_str().as_bytes()
        })
    }

    /// Keeps this number of steps, and adds one that names the first step that is removed.
    fn cut_steps(&mut self, now: u64, kept: usize, step: &StepName) {
        self.steps.truncate(kept);
        self.steps.push(StepRow {
            name: StepName::of_replay(kept as u32 + 1),
            value: step.as_str().as_bytes().to_vec(),
            at: now,
        });
        self.until = None;
    }
}
