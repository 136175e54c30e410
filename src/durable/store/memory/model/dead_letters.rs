//! Dead letters.

use super::row::{Row, State};
use super::state::Model;
use crate::durable::store::{ChangeAnswer, DeadPayload};
use crate::durable::{DeadFilter, DeadLetter, Refusal, TaskId};

impl Model {
    pub(in super::super) fn dead_letters(
        &self,
        filter: &DeadFilter,
        limit: usize,
    ) -> Vec<DeadLetter> {
        let (now, time) = (self.wall(), self.store_time());
        let mut dead_letters: Vec<_> = self
            .dead_rows(filter)
            .filter_map(|row| row.dead_letter(now, time))
            .collect();
        dead_letters
            .sort_by_key(|dead_letter| (dead_letter.age, std::cmp::Reverse(dead_letter.id)));
        dead_letters.truncate(limit);
        dead_letters
    }

    pub(in super::super) fn dead_letter_payload(&self, id: TaskId) -> Option<DeadPayload> {
        let row = self.dead_rows(&DeadFilter::ids([id])).next()?;
        Some(DeadPayload {
            name: (*row.task.name).into(),
            payload: Ok(row.task.payload.clone()),
        })
    }

    pub(in super::super) fn replay_dead_letters(&mut self, filter: &DeadFilter) -> u64 {
        let mut ids: Vec<_> = self.dead_rows(filter).map(|row| row.task.id).collect();
        ids.sort();
        // A dead letter whose key another task holds is not replayed. Of several with one key, that with the lowest id is.
        let answers = ids.into_iter().map(|id| self.replay_one(id));
        let replayed = answers.filter(|it| *it == ChangeAnswer::Changed).count();
        self.wake_for_new_ready();
        replayed as u64
    }

    /// Replays a dead letter, unless another task holds its key.
    pub(super) fn replay_one(&mut self, id: TaskId) -> ChangeAnswer {
        if self.dead_rows(&DeadFilter::ids([id])).next().is_none() {
            return ChangeAnswer::OtherStatus;
        }
        if !self.may_replay(id) {
            return ChangeAnswer::Refused(Refusal::KeyHeld);
        }
        self.replay(id);
        ChangeAnswer::Changed
    }

    /// Returns `true` unless another task holds a key that the dead letter would get back.
    fn may_replay(&self, id: TaskId) -> bool {
        let key = self.tasks[&id].task.key;
        let holder = key.and_then(|key| self.holder(key.hash));
        holder.is_none_or(|holder| holder == id)
    }

    /// Makes a dead letter wait again.
    fn replay(&mut self, id: TaskId) {
        let now = self.wall();
        if let Some(row) = self.tasks.get_mut(&id) {
            (row.failures, row.crashes, row.lost) = (0, 0, 0);
            row.failing_since = None;
            row.ready_at = now;
            row.cancel = false;
            row.errors.clear();
        }
        self.push_back(id);
    }

    pub(in super::super) fn delete_dead_letters(&mut self, filter: &DeadFilter) -> u64 {
        let ids: Vec<_> = self.dead_rows(filter).map(|row| row.task.id).collect();
        ids.iter().for_each(|id| drop(self.tasks.remove(id)));
        ids.len() as u64
    }

    /// Returns the dead letters that match and have not expired.
    fn dead_rows(&self, filter: &DeadFilter) -> impl Iterator<Item = &Row> {
        let expiry = self.expiry();
        self.tasks.values().filter(move |row| {
            matches!(row.state, State::Dead { .. })
                && !row.is_expired(expiry)
                && filter.matches(row.task.id, &row.task.name)
        })
    }
}
