//! The changes that an operator makes to single tasks.

use super::row::State;
use super::state::Model;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Change, ChangeAnswer};
use crate::durable::{DeadFilter, Refusal, TaskId};

impl Model {
    pub(in super::super) fn change(
        &mut self,
        ids: &[TaskId],
        change: &Change,
    ) -> Vec<ChangeAnswer> {
        let answers = ids.iter().map(|&id| match change {
            Change::Cancel => ChangeAnswer::changed_if(self.cancel(&[id]) > 0),
            Change::RunNow => self.run_now(id),
            Change::MoveTo(queue) => self.move_to(id, queue),
            Change::Replay => self.replay_one(id),
            Change::ReplayFrom(replay) => self.replay_from(id, replay),
            Change::Delete => {
                let filter = DeadFilter::ids([id]);
                ChangeAnswer::changed_if(self.delete_dead_letters(&filter) > 0)
            }
        });
        let answers = answers.collect();
        self.wake_for_new_ready();
        answers
    }

    pub(super) fn run_now(&mut self, id: TaskId) -> ChangeAnswer {
        let now = self.wall();
        match self.tasks.get_mut(&id) {
            Some(row) if matches!(row.state, State::Delayed { .. }) => {
                row.ready_at = now;
                self.push_back(id);
                ChangeAnswer::Changed
            }
            _ => ChangeAnswer::OtherStatus,
        }
    }

    fn move_to(&mut self, id: TaskId, queue: &QueueName) -> ChangeAnswer {
        let Some(row) = self.tasks.get_mut(&id) else {
            return ChangeAnswer::OtherStatus;
        };
        match row.state {
            State::Waiting | State::Delayed { .. } => {}
            _ => return ChangeAnswer::OtherStatus,
        }
        if row.task.queue == *queue {
            return ChangeAnswer::Same;
        }
        if row.task.key.is_some_and(|key| key.is_until_started) {
            return ChangeAnswer::Refused(Refusal::Replaceable);
        }
        row.task.queue = queue.clone();
        if queue.is_default() {
            row.task.group = None;
        }
        row.kind = row.task.kind();
        if row.state == State::Waiting {
            self.ready_queue.retain(|&other| other != id);
            self.push_back(id);
        }
        ChangeAnswer::Changed
    }
}
