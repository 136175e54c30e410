//! Reads one task in detail, and the tasks at the head of a queue.

use std::time::Duration;

use super::row::{Row, State};
use super::state::Model;
use crate::durable::admin::detail::{KeyState, Runner};
use crate::durable::admin::excerpt::Excerpt;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Beginning, FoundTask};
use crate::durable::{QueueHead, Status, TaskId};

impl Model {
    pub(in super::super) fn find(&self, id: TaskId) -> Option<FoundTask> {
        let row = self.tasks.get(&id);
        let row = row.filter(|row| !row.is_expired(self.expiry()))?;
        let mut found = FoundTask::new(self.info(row), self.wall());
        if let State::Done { output, .. } = &row.state {
            found.output = Some(Beginning::of(output.clone()));
        }
        if matches!(found.status(), Status::Done | Status::Cancelled) {
            return Some(found);
        }
        found.payload = Some(Beginning::of(row.task.payload.clone()));
        found.detail.parent = row.task.parent;
        let is_delayed = found.status() == Status::Delayed;
        let is_suspended = is_delayed && row.until.is_some();
        found.waits_for = is_suspended.then(|| row.waits_for.clone());
        let detail = &mut found.detail;
        detail.priority = Some(row.task.priority);
        detail.key = self.key_state(row);
        detail.errors = row.errors(self.wall());
        let progress = row.progress.as_ref();
        detail.progress = progress.map(|it| Excerpt::new(&it.bytes, it.bytes.len()));
        if let State::Dead { error, .. } = &row.state {
            detail.error = Some(error.clone());
        }
        self.add_run(row, &mut found);
        Some(found)
    }

    fn key_state(&self, row: &Row) -> Option<KeyState> {
        let key = row.task.key?;
        match self.holder(key.hash) == Some(row.task.id) {
            true => Some(KeyState::Held),
            false => Some(KeyState::Released),
        }
    }

    /// Adds the fields of a running task.
    fn add_run(&self, row: &Row, found: &mut FoundTask) {
        let State::Running { epoch } = row.state else {
            return;
        };
        found.detail.is_cancel_requested = row.cancel;
        if let Some(lease) = self.claims.get(&epoch) {
            let left = lease.until.saturating_sub(self.boot());
            found.detail.lease_left = Some(Duration::from_millis(left));
            found.detail.runner = Some(Runner {
                session: lease.session,
                process: None,
                is_suspect: lease.suspect.is_some(),
            });
        }
    }

    pub(in super::super) fn head(&self, queue: &QueueName, limit: usize) -> QueueHead {
        let rows = self.ready_queue.iter().map(|id| &self.tasks[id]);
        let mut rows: Vec<_> = rows.filter(|row| row.task.queue == *queue).collect();
        rows.sort_by_key(|row| (row.ready_at, row.task.id));
        let rows = rows.into_iter().take(limit);
        QueueHead::at(self.wall(), rows.map(|row| self.info(row)).collect())
    }
}
