//! Selects the tasks of a claim.

use std::collections::{BTreeMap, VecDeque};

use super::row::Row;
use super::state::{Model, Session};
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::store::{Claimed, Turn};

/// The tasks of a claim.
pub(super) struct Selection {
    pub(super) tasks: Vec<Claimed>,
    /// The turns of the priorities after the claim.
    pub(super) turns: PriorityTurns,
    /// The groups that were served, with the priority of the claim, in the order in which they were served.
    pub(super) served: Vec<(Priority, GroupName)>,
    /// The time of the claim, in milliseconds since 1970.
    now: u64,
    bytes: usize,
    want_bytes: usize,
    /// `true` if the claim may have a quarantined task.
    quarantined: bool,
    /// `true` if the next task is too large.
    is_full: bool,
}

/// The tasks of a group that may be claimed.
struct Sublist<'a> {
    group: GroupName,
    rows: VecDeque<&'a Row>,
    permits: usize,
}

impl Model {
    /// Selects the tasks of a claim, within the limits of the request, of the queue and of its groups: those of the first priority that
    /// has some. The groups come first, in the order of their turns, and then the tasks without a group.
    pub(super) fn select(&self, request: &Turn, queue: &QueueName) -> Selection {
        let turns = self.priority_turns(queue);
        let mut selection = Selection {
            tasks: Vec::new(),
            turns,
            served: Vec::new(),
            now: self.wall(),
            bytes: 0,
            want_bytes: request.want_bytes,
            quarantined: request.quarantined,
            is_full: false,
        };
        let want = request.want.min(self.room(queue));
        let session = &self.sessions[&request.session];
        // Without tasks of other priorities, there is no need to look for them.
        let order = turns.order().into_iter();
        let order = order.filter(|&(priority, most)| {
            most > 0 && (self.uses_priorities || priority == Priority::Normal)
        });
        for (priority, most) in order {
            let most = want.min(most);
            if self.groups.are_used {
                let sublists = self.sublists(session, queue, priority);
                selection.take_from_groups(self, sublists, priority, most);
            }
            let rows = self.claimable(session, priority);
            for row in rows.filter(|row| row.task.group.is_none()) {
                if selection.tasks.len() == most || selection.is_full {
                    break;
                }
                selection.take(row);
            }
            if !selection.tasks.is_empty() {
                let started = selection.tasks.len() as u64;
                selection.turns.started(priority, started);
                break;
            }
            selection.bytes = 0;
        }
        selection
    }

    /// Returns the waiting tasks of a priority that a session may run.
    fn claimable<'a>(
        &'a self,
        session: &'a Session,
        priority: Priority,
    ) -> impl Iterator<Item = &'a Row> {
        let waiting = self.ready_queue.iter().map(|id| &self.tasks[id]);
        waiting.filter(move |row| {
            let is_claimable = session.knows(row.kind) && !self.is_paused(row);
            is_claimable && row.task.priority == priority
        })
    }

    /// Returns the tasks of the groups that may start, in the order of the turns of the groups.
    fn sublists<'a>(
        &'a self,
        session: &'a Session,
        queue: &QueueName,
        priority: Priority,
    ) -> VecDeque<Sublist<'a>> {
        let mut rows: BTreeMap<GroupName, VecDeque<&Row>> = BTreeMap::new();
        for row in self.claimable(session, priority) {
            if let Some(group) = &row.task.group {
                rows.entry(group.clone()).or_default().push_back(row);
            }
        }
        let ring = self.ring(queue, priority).into_iter();
        let sublists = ring.filter_map(|group| {
            Some(Sublist {
                rows: rows.remove(&group)?,
                permits: self.group_permits(queue, &group),
                group,
            })
        });
        sublists.collect()
    }
}

impl Selection {
    /// Serves groups in turn until nothing more is wanted or may start.
    fn take_from_groups(
        &mut self,
        model: &Model,
        mut sublists: VecDeque<Sublist<'_>>,
        priority: Priority,
        most: usize,
    ) {
        while self.tasks.len() < most
            && !self.is_full
            && let Some(mut sublist) = sublists.pop_front()
        {
            let queue = sublist.rows.front().map(|row| &row.task.queue);
            let row = queue.and_then(|queue| model.queues.get(queue));
            let quantum = row.map_or(1, |row| {
                row.settings.group_settings().quantum_size() as usize
            });
            let before = self.tasks.len();
            let most = most.min(before + quantum.min(sublist.permits));
            while self.tasks.len() < most
                && !self.is_full
                && let Some(row) = sublist.rows.pop_front()
            {
                self.take(row);
            }
            let given = self.tasks.len() - before;
            if given > 0 {
                sublist.permits -= given;
                self.served.push((priority, sublist.group.clone()));
                sublists.push_back(sublist);
            }
        }
    }

    /// Takes a task, unless it is too large, or is quarantined while the claim may have no such task.
    fn take(&mut self, row: &Row) {
        if row.is_quarantined() && !self.quarantined {
            return;
        }
        self.bytes += row.task.payload.len();
        self.is_full = self.bytes > self.want_bytes && !self.tasks.is_empty();
        if !self.is_full {
            self.quarantined &= !row.is_quarantined();
            self.tasks.push(row.claimed(self.now));
        }
    }
}
