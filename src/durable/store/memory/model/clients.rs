//! The requests of clients, and maintenance.

use super::row::{Row, State};
use super::state::Model;
use crate::durable::clock::millis;
use crate::durable::store::{Event, TaskState};
use crate::durable::{AttemptError, Counts, TaskId};

impl Model {
    /// Returns the status of tasks. If there is an endpoint, it is notified when those that have not ended do so.
    pub(in super::super) fn status(
        &mut self,
        endpoint: Option<usize>,
        ids: &[TaskId],
    ) -> Vec<TaskState> {
        let expiry = self.expiry();
        let found = ids.iter().map(|id| match self.tasks.get_mut(id) {
            Some(row) if !row.is_expired(expiry) => {
                row.watchers.extend(endpoint);
                row.status()
            }
            _ => TaskState::Absent,
        });
        found.collect()
    }

    pub(in super::super) fn errors(&self, id: TaskId) -> Vec<AttemptError> {
        let expiry = self.expiry();
        let row = self.tasks.get(&id);
        let row = row.filter(|row| !row.is_expired(expiry));
        row.map(|row| row.errors(self.wall())).unwrap_or_default()
    }

    pub(in super::super) fn cancel(&mut self, ids: &[TaskId]) -> u64 {
        let cancelled = ids.iter().filter(|&&id| self.cancel_one(id)).count() as u64;
        self.update_group_turns();
        cancelled
    }

    /// Cancels a task, or has its worker cancel it. Returns `false` if it has ended.
    fn cancel_one(&mut self, id: TaskId) -> bool {
        let time = self.store_time();
        let Some(row) = self.tasks.get_mut(&id) else {
            return false;
        };
        let until = time + millis(row.task.retention);
        match row.state {
            State::Waiting => {
                self.ready_queue.retain(|&other| other != id);
                self.end(id, State::Cancelled { until });
            }
            State::Delayed { .. } => self.end(id, State::Cancelled { until }),
            State::Running { epoch } => {
                row.cancel = true;
                let session = self.claims.get(&epoch).map(|lease| lease.session);
                let session = session.and_then(|session| self.sessions.get(&session));
                if let Some(endpoint) = session.map(|session| session.endpoint) {
                    self.send(endpoint, Event::Cancel(vec![id]));
                }
            }
            State::Done { .. } | State::Cancelled { .. } | State::Dead { .. } => return false,
        }
        true
    }

    /// Removes up to `budget` tasks that have expired or are in excess.
    /// Returns `true` if more are left.
    pub(in super::super) fn maintain(&mut self, budget: usize) -> bool {
        let remove = self.removable();
        self.repair_hand_outs();
        self.expire_stats();
        let more = remove.len() > budget;
        for id in remove.into_iter().take(budget) {
            self.tasks.remove(&id);
        }
        let tasks = &self.tasks;
        self.delayed
            .retain(|&(due, id)| tasks.get(&id).is_some_and(|row| row.is_delayed_until(due)));
        self.keyed.retain(|_, ids| {
            ids.retain(|id| tasks.contains_key(id));
            !ids.is_empty()
        });
        more
    }

    pub(in super::super) fn counts(&self) -> Counts {
        let mut counts = self.totals;
        for row in self.tasks.values() {
            counts.unserved += u64::from(self.is_unserved(row));
            *match row.state {
                State::Waiting => &mut counts.waiting,
                State::Delayed { .. } => &mut counts.delayed,
                State::Running { .. } => &mut counts.running,
                State::Done { .. } | State::Cancelled { .. } => &mut counts.kept,
                State::Dead { .. } => &mut counts.dead,
            } += 1;
        }
        counts
    }

    /// Returns `true` if a task waits that no live session may claim.
    pub(super) fn is_unserved(&self, row: &Row) -> bool {
        let mut sessions = self.sessions.values();
        let is_served = sessions.any(|session| !session.is_dead && session.knows(row.kind));
        row.state == State::Waiting && !is_served
    }

    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(in super::super) fn summary(&self) -> String {
        let rows = self.tasks.values();
        let rows: Vec<_> = rows
            .map(|row| (row.status(), row.cancel, &row.watchers))
            .collect();
        let endpoints = self.endpoints.keys();
        let queues: Vec<_> = self.queues.values().map(|it| it.is_paused).collect();
        format!(
            "{rows:?} {:?} {endpoints:?} {queues:?} {}",
            self.counts(),
            self.leftovers()
        )
    }

    /// Returns the number of tasks, claims, sessions, schedules and keys.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(in super::super) fn leftovers(&self) -> u64 {
        let tasks =
            self.tasks.len() + self.ready_queue.len() + self.delayed.len() + self.claims.len();
        (tasks + self.sessions.len() + self.schedules.len() + self.keyed.len()) as u64
    }
}
