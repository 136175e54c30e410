//! Lists of tasks.

use std::time::Duration;

use super::row::{Row, State};
use super::state::Model;
use crate::durable::admin::page::MAX_LISTED_ERROR_BYTES;
use crate::durable::clock::millis;
use crate::durable::envelope::run_time_of;
use crate::durable::store::{ListTasks, shortened};
use crate::durable::{Cursor, Status, TaskId, TaskInfo, TaskPage};

/// The position of a task in the lists of its status: a time, and the id of the task.
type Position = (u64, TaskId);

impl Model {
    pub(in super::super) fn list(&self, request: &ListTasks) -> Option<TaskPage> {
        let after = match &request.after {
            Some(bytes) => Some(position_of(bytes)?),
            None => None,
        };
        let mut rows = self.listed(request.filter.status);
        rows.retain(|&(position, row)| {
            after.is_none_or(|after| position > after) && self.has_session(row, request)
        });
        let mut page = TaskPage::at(self.wall());
        for (position, row) in rows {
            if page.tasks.len() == request.limit || page.examined == request.max_examined() {
                return Some(page);
            }
            page.examined += 1;
            page.next = Some(Cursor::new(request.filter.status, bytes_of(position)));
            let info = self.info(row);
            if request.filter.matches(&info) {
                page.tasks.push(info);
            }
        }
        page.next = None;
        Some(page)
    }

    /// Returns `true` if the session of the filter runs the task, or if the filter has none.
    fn has_session(&self, row: &Row, request: &ListTasks) -> bool {
        let State::Running { epoch } = row.state else {
            return true;
        };
        let claim = self.claims.get(&epoch);
        let session = request.filter.session;
        session.is_none_or(|session| claim.is_some_and(|claim| claim.session == session))
    }

    /// Returns the tasks with a status in the order of their positions.
    fn listed(&self, status: Status) -> Vec<(Position, &Row)> {
        let expiry = self.expiry();
        let rows = self
            .tasks
            .values()
            .filter(|row| row.status().status() == status && !row.is_expired(expiry));
        let mut rows: Vec<_> = rows.map(|row| (row.position(), row)).collect();
        rows.sort_by_key(|&(position, _)| position);
        rows
    }

    pub(super) fn info(&self, row: &Row) -> TaskInfo {
        let status = row.status().status();
        let is_known = !matches!(status, Status::Done | Status::Cancelled);
        let (now, time) = (self.wall(), self.store_time());
        let left = |until: u64, now| Duration::from_millis(until.saturating_sub(now));
        let mut info = TaskInfo {
            id: row.task.id,
            status,
            name: Some(row.task.name.to_string()),
            queue: row.queue().filter(|_| is_known),
            group: row.group().filter(|_| is_known),
            failures: is_known.then_some(row.failures),
            crashes: is_known.then_some(row.crashes),
            ready_for: None,
            due_in: None,
            fencing_token: None,
            kept_for: None,
            running_for: None,
            took: None,
            age: None,
            reason: None,
            error: None,
        };
        match &row.state {
            State::Waiting => info.ready_for = Some(left(now, row.ready_at)),
            State::Delayed { due } => info.due_in = Some(left(*due, now)),
            State::Running { epoch } => {
                info.fencing_token = Some(*epoch);
                let claim = self.claims.get(epoch);
                info.running_for = claim.map(|claim| left(now, claim.claimed_at));
            }
            State::Done { until, .. } | State::Cancelled { until } => {
                info.kept_for = Some(left(*until, time));
                info.age = Some(left(time, until - millis(row.task.retention)));
                if let State::Done { output, .. } = &row.state {
                    info.took = run_time_of(output);
                }
            }
            State::Dead {
                reason,
                error,
                since,
                took,
            } => {
                info.took = *took;
                info.kept_for = Some(left(since + millis(self.retention.dead_for), time));
                info.age = Some(left(time, *since));
                info.reason = Some(*reason);
                info.error = Some(shortened(error.clone(), MAX_LISTED_ERROR_BYTES));
            }
        }
        info
    }
}

impl Row {
    /// Returns the position of the task in the lists of its status.
    fn position(&self) -> Position {
        match self.state {
            State::Delayed { due } => (due, self.task.id),
            // The newest dead letter comes first.
            State::Dead { since, .. } => (u64::MAX - since, inverted(self.task.id)),
            _ => (0, self.task.id),
        }
    }

    fn queue(&self) -> Option<String> {
        self.task.queue.clone().into()
    }

    fn group(&self) -> Option<String> {
        let group = self.task.group.as_ref();
        group.map(|group| group.as_str().to_owned())
    }
}

/// Returns an id with all bits inverted, which reverses the order of ids.
fn inverted(id: TaskId) -> TaskId {
    TaskId::from_bytes(id.to_bytes().map(|byte| !byte))
}

fn bytes_of((time, id): Position) -> Vec<u8> {
    [&time.to_be_bytes()[..], &id.to_bytes()].concat()
}

fn position_of(bytes: &[u8]) -> Option<Position> {
    let (time, id) = bytes.split_first_chunk()?;
    Some((
        u64::from_be_bytes(*time),
        TaskId::from_bytes(id.try_into().ok()?),
    ))
}
