//! The replay of a task from one of its steps.

use super::row::{Row, State, StepRow};
use super::state::Model;
use crate::durable::store::{ChangeAnswer, RecordedReplay, StepKind, StepName, StepReplay};
use crate::durable::{Refusal, TaskId};

impl Model {
    /// Removes a step and all later ones, and makes the task ready. Records this as a step.
    pub(super) fn replay_from(&mut self, id: TaskId, replay: &StepReplay) -> ChangeAnswer {
        let Some(row) = self.tasks.get(&id) else {
            return ChangeAnswer::OtherStatus;
        };
        let is_dead = matches!(row.state, State::Dead { .. });
        if is_dead && row.is_expired(self.expiry()) {
            return ChangeAnswer::OtherStatus;
        }
        let recorded = row.recorded(replay);
        if recorded == Some(RecordedReplay::Itself) {
            return ChangeAnswer::Changed;
        }
        if !is_dead && !matches!(row.state, State::Waiting | State::Delayed { .. }) {
            return ChangeAnswer::OtherStatus;
        }
        let found = row.steps.iter().position(|it| it.name == replay.first);
        match found.filter(|_| is_dead || !replay.names_replaced_record(recorded)) {
            Some(kept) => self.cut_and_replay(id, kept, replay),
            None if is_dead || recorded.is_none() => ChangeAnswer::Refused(Refusal::NoSuchStep),
            None => self.replay_again(id, replay),
        }
    }

    /// Keeps only this number of steps of a task, and makes it ready.
    fn cut_and_replay(&mut self, id: TaskId, kept: usize, replay: &StepReplay) -> ChangeAnswer {
        let now = self.wall();
        let answer = match self.tasks.get(&id).map(|row| &row.state) {
            Some(State::Waiting) => ChangeAnswer::Changed,
            Some(State::Delayed { .. }) => self.run_now(id),
            _ => self.replay_one(id),
        };
        if answer == ChangeAnswer::Changed
            && let Some(row) = self.tasks.get_mut(&id)
        {
            row.cut_steps(now, kept, replay);
        }
        answer
    }

    /// Makes a task due that was replayed from the same step, and has not stored it since.
    fn replay_again(&mut self, id: TaskId, replay: &StepReplay) -> ChangeAnswer {
        if self.run_now(id) != ChangeAnswer::Changed {
            return ChangeAnswer::Same;
        }
        let steps = self.tasks.get_mut(&id).map(|row| row.steps.iter_mut());
        if let Some(last) = steps.and_then(|mut steps| steps.rfind(|it| it.is_record())) {
            last.value = replay.record_after(&last.value);
        }
        ChangeAnswer::Changed
    }
}

impl Row {
    fn recorded(&self, replay: &StepReplay) -> Option<RecordedReplay> {
        let records = self.steps.iter().filter(|step| step.is_record());
        let records: Vec<_> = records.map(|step| &step.value).collect();
        replay.recorded_in(&records)
    }

    /// Keeps this number of steps, and adds one that records the replay.
    fn cut_steps(&mut self, now: u64, kept: usize, replay: &StepReplay) {
        self.steps.truncate(kept);
        self.steps.push(StepRow {
            name: StepName::of_replay(kept as u32 + 1),
            value: replay.record(),
            at: now,
        });
        self.until = None;
    }
}

impl StepRow {
    /// Returns `true` if the step records a replay.
    fn is_record(&self) -> bool {
        let kind = StepName::split(self.name.as_str()).map(|(kind, _)| kind);
        kind == Some(StepKind::Replay)
    }
}
