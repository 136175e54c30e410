//! [`Notices`]: what other processes are notified of when a transaction is over.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use super::endpoint::{Endpoint, EndpointId};
use super::queues::{self, QueueRow};
use super::ready_queue;
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;
use crate::durable::store::SessionId;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::{ListId, Routes};

/// The notices of a transaction.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// For each list that has gained tasks, or in which tasks are left, the number of tasks gained.
    lists: BTreeMap<ListId, i64>,
    /// The numbers of sessions to wake for those lists, and the sets from which they may be chosen.
    wakes: Vec<(usize, Vec<SetId>)>,
    /// The named queues of which tasks have stopped running.
    pub(super) freed: BTreeSet<QueueName>,
    /// `true` if a task is due earlier than any before. If so, one worker must check when that is.
    pub(super) has_earlier_task: bool,
    /// `true` if a process has joined. If so, the idle workers of all others must know that it may die.
    pub(super) has_new_process: bool,
    /// Sessions that have ended, which are no longer idle.
    pub(super) closed_sessions: Vec<SessionId>,
    /// Tasks that have ended, each with the endpoint that stored it.
    pub(super) ended: Vec<(EndpointId, TaskId)>,
    /// Running tasks that are to be cancelled, each with the endpoint that runs it.
    pub(super) cancelled: Vec<(EndpointId, TaskId)>,
}

impl Notices {
    /// The number of endpoints that are woken at most for tasks that became ready together. Those wake others.
    const MAX_WAKES: i64 = 4;

    /// Records that `gained` further tasks wait in a list. With 0, it records that tasks are left there.
    pub(super) fn add_ready(&mut self, list: ListId, gained: i64) {
        *self.lists.entry(list).or_default() += gained;
    }

    /// Chooses the sessions to wake for the lists that this transaction has changed.
    pub(super) fn choose_wakes(
        &mut self,
        db: &Connection,
        routes: &Routes,
    ) -> Result<(), rusqlite::Error> {
        for (list, gained) in std::mem::take(&mut self.lists) {
            let sessions = gained.clamp(1, Self::MAX_WAKES) as usize;
            let mut sets = Vec::new();
            for set in readers_with_tasks(db, routes, list)? {
                // If no task of the queue may start now, the step that lets one start wakes a session.
                if queues::has_permits(db, &routes.queue(set))? {
                    sets.push(set);
                }
            }
            self.add_wake(sessions, sets);
        }
        for queue in std::mem::take(&mut self.freed) {
            for sets in readers_of_freed(db, routes, &queue)? {
                self.add_wake(1, sets);
            }
        }
        Ok(())
    }

    fn add_wake(&mut self, sessions: usize, sets: Vec<SetId>) {
        if !sets.is_empty() {
            self.wakes.push((sessions, sets));
        }
    }

    /// Wakes the sessions that have work. This comes before the answer, since a process may exit as soon as it
    /// has its answer.
    pub(super) fn wake(&mut self, endpoint: &Endpoint) {
        for session in self.closed_sessions.drain(..) {
            endpoint.remove_idle(session);
        }
        endpoint.notify_cancelled(&self.cancelled);
        for (sessions, sets) in &self.wakes {
            endpoint.wake(*sessions, |set| sets.contains(&set));
        }
        if self.has_earlier_task {
            endpoint.wake(1, |_| true);
        }
        if self.has_new_process {
            endpoint.wake_others(usize::MAX, |_| true);
        }
    }

    /// Notifies the processes that await tasks. This may come after the answer, since those processes also poll.
    pub(super) fn notify_ended(&self, endpoint: &Endpoint) {
        endpoint.notify_ended(&self.ended);
    }
}

/// Returns the sets whose sessions have work in a list.
fn readers_with_tasks(
    db: &Connection,
    routes: &Routes,
    list: ListId,
) -> Result<Vec<SetId>, rusqlite::Error> {
    let readers: Vec<_> = routes.readers(list).collect();
    match readers.is_empty() || ready_queue::is_empty(db, list)? {
        true => Ok(Vec::new()),
        false => Ok(readers),
    }
}

/// Returns, for each list of a queue, the sets whose sessions may start its tasks because others have stopped running.
fn readers_of_freed(
    db: &Connection,
    routes: &Routes,
    queue: &QueueName,
) -> Result<Vec<Vec<SetId>>, rusqlite::Error> {
    let row = QueueRow::load(db, queue)?;
    let mut sets = Vec::new();
    // Without a maximum, no task waits for the end of another.
    let is_limited = row
        .settings
        .max_running
        .or(row.settings.groups.max_running)
        .is_some();
    if !is_limited || row.permits(db, queue)? == 0 {
        return Ok(sets);
    }
    for list in routes.lists_of_queue(queue) {
        sets.push(readers_with_tasks(db, routes, list)?);
    }
    Ok(sets)
}
