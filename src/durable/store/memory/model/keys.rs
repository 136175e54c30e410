//! Keys: which task holds a key, and what becomes of another task with that key.

use super::row::{Expiry, Row, State};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::key::{Conflict, KeyHash, NewKey};
use crate::durable::store::{KeyConflict, NewTask};

impl Row {
    /// Returns the key of the task, if the task holds it.
    fn held_key(&self, now: u64, expiry: Expiry) -> Option<KeyHash> {
        let key = self.task.key.filter(|_| !self.is_expired(expiry))?;
        let window = millis(key.window);
        let is_in_window = window > 0 && now < self.stored_at + window;
        (self.is_alive() || is_in_window).then_some(key.hash)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(
            self.state,
            State::Waiting | State::Delayed { .. } | State::Running { .. }
        )
    }
}

impl Model {
    /// Returns the task that holds a key. If the clock was put back, an ended task in its window and a live one may both hold it;
    /// the live one counts.
    pub(super) fn holder(&self, key: KeyHash) -> Option<TaskId> {
        let (now, expiry) = (self.wall(), self.expiry());
        let rows = self.keyed.get(&key).into_iter().flatten();
        let rows = rows.filter_map(|id| self.tasks.get(id));
        let mut holders = rows.filter(|row| row.held_key(now, expiry) == Some(key));
        let first = holders.clone().next();
        let alive = holders.find(|row| row.is_alive());
        alive.or(first).map(|row| row.task.id)
    }

    /// Resolves the conflict between a new task and the task that holds its key, if there is one.
    pub(super) fn resolve_conflict(
        &mut self,
        position: usize,
        task: &NewTask,
    ) -> Option<KeyConflict> {
        let key = task.key?;
        let holder = self.holder(key.hash)?;
        // An earlier request, whose answer was lost, has stored the task.
        if holder == task.id {
            return None;
        }
        let held = self.tasks[&holder].task.key;
        let resolution = match key.conflict {
            // Otherwise, a worker may have read the payload.
            Conflict::Replace if held.is_none_or(|held| !held.is_until_started) => Conflict::Join,
            resolution => resolution,
        };
        if resolution == Conflict::Replace {
            self.replace(holder, task, &key);
        }
        Some(KeyConflict {
            position,
            holder,
            resolution,
        })
    }

    /// Replaces the payload and the delay of a task that no worker has claimed.
    fn replace(&mut self, holder: TaskId, task: &NewTask, key: &NewKey) {
        let now = self.wall();
        let Some(row) = self.tasks.get_mut(&holder) else {
            return;
        };
        row.task.payload.clone_from(&task.payload);
        row.task.envelope = task.envelope;
        row.task.version = task.version;
        let kind = std::mem::replace(&mut row.kind, row.task.kind());
        let is_other_kind = kind != row.kind;
        let latest = key
            .latest
            .map_or(u64::MAX, |latest| row.stored_at + millis(latest));
        let due = (now + millis(task.delay)).min(latest);
        match row.state {
            // It keeps its place in the queue.
            State::Waiting if due <= now && !is_other_kind => {}
            State::Waiting if due <= now => self.note_ready(holder),
            _ if due <= now => {
                row.ready_at = due;
                self.push_back(holder);
            }
            _ => {
                self.delay(holder, due);
                self.ready_queue.retain(|&other| other != holder);
            }
        }
    }
}
