//! Stores tasks.

use std::collections::{BTreeSet, VecDeque};

use super::row::{Row, State};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::Priority;
use crate::durable::store::{Enqueue, Enqueued, NewTask};

impl Model {
    pub(in super::super) fn enqueue(
        &mut self,
        endpoint: usize,
        request: &Enqueue,
    ) -> Result<Enqueued, Failure> {
        let tasks = request.batch.close();
        let first = tasks.first().map(|task| task.id);
        if self.is_repeated(request.session, request.number)? {
            // The same number with other tasks means that two processes use this session.
            let session = &self.sessions[&request.session];
            return match session.first == first {
                true => Ok(session.enqueued.clone()),
                false => Err(Failure::new(Effect::None, Cause::NoSession)),
            };
        }
        if first.is_none() {
            return Ok(Enqueued::default());
        }
        let earliest = self.earliest_due();
        let enqueued = self.store_all(endpoint, tasks);
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.number = request.number;
            session.claim = None;
            session.first = first;
            session.enqueued = enqueued.clone();
        }
        let is_earlier = self.earliest_due().unwrap_or(u64::MAX) < earliest.unwrap_or(u64::MAX);
        if is_earlier {
            // The worker that makes the task due need not be able to run it.
            self.wake(1, |_| true);
        }
        self.wake_for_new_ready();
        Ok(enqueued)
    }

    /// Stores tasks, except those whose keys other tasks hold. Returns the conflicts.
    pub(super) fn store_all(&mut self, endpoint: usize, tasks: &[NewTask]) -> Enqueued {
        let mut enqueued = Enqueued::default();
        for (position, task) in tasks.iter().enumerate() {
            match self.resolve_conflict(position, task) {
                Some(conflict) => enqueued.conflicts.push(conflict),
                None => self.store(endpoint, task),
            }
        }
        enqueued
    }

    fn store(&mut self, endpoint: usize, task: &NewTask) {
        self.remove_if_expired(task.id);
        if self.tasks.contains_key(&task.id) {
            return;
        }
        let now = self.wall();
        let row = Row {
            task: task.clone(),
            kind: task.kind(),
            state: match millis(task.delay) {
                0 => State::Waiting,
                delay => State::Delayed { due: now + delay },
            },
            failures: 0,
            failing_since: None,
            crashes: 0,
            lost: 0,
            cancel: false,
            stored_at: now,
            ready_at: now + millis(task.delay),
            errors: VecDeque::new(),
            progress: None,
            steps: Vec::new(),
            until: None,
            waits_for: String::new(),
            watchers: BTreeSet::from([endpoint]),
        };
        self.uses_priorities |= task.priority != Priority::Normal;
        self.groups.are_used |= task.group.is_some();
        if let State::Delayed { due } = row.state {
            self.delayed.insert((due, task.id));
        }
        let is_ready = row.state == State::Waiting;
        self.tasks.insert(task.id, row);
        if let Some(key) = task.key {
            let ids = self.keyed.entry(key.hash).or_default();
            ids.retain(|id| self.tasks.contains_key(id));
            ids.insert(task.id);
        }
        if is_ready {
            self.push_back(task.id);
        }
        self.totals.stored += 1;
    }

    fn remove_if_expired(&mut self, id: TaskId) {
        let expiry = self.expiry();
        let row = self.tasks.get(&id);
        if row.is_some_and(|row| row.is_expired(expiry)) {
            self.tasks.remove(&id);
        }
    }
}
