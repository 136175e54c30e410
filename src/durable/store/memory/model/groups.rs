//! Groups of tasks within named queues, which take turns.

use std::collections::BTreeSet;
use std::time::Duration;

use super::row::{Row, State};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;

impl Model {
    /// Returns the groups of a queue of which a task of this priority may start, in the order of their turns.
    pub(super) fn ring(&self, queue: &QueueName, priority: Priority) -> Vec<GroupName> {
        let numbers = self.groups.numbers.iter();
        let of_list = numbers.filter(|((of, at, _), _)| of == queue && *at == priority);
        let mut ring: Vec<_> = of_list.map(|((.., group), &turn)| (turn, group)).collect();
        ring.sort_unstable();
        ring.into_iter().map(|(_, group)| group.clone()).collect()
    }

    /// Returns the number of tasks of a group that may start, if only its limit matters.
    pub(super) fn group_permits(&self, queue: &QueueName, group: &GroupName) -> usize {
        let row = self.queues.get(queue);
        let Some(most) = row.and_then(|row| row.settings.group_settings().running_limit()) else {
            return usize::MAX;
        };
        let is_running = |row: &&Row| {
            let is_of = row.task.queue == *queue && row.task.group.as_ref() == Some(group);
            is_of && matches!(row.state, State::Running { .. })
        };
        (most as usize).saturating_sub(self.tasks.values().filter(is_running).count())
    }

    /// Returns `true` if a task may start as far as its group is concerned.
    pub(super) fn may_start_in_group(&self, row: &Row) -> bool {
        let group = row.task.group.as_ref();
        group.is_none_or(|group| self.may_group_start(&row.task.queue, group))
    }

    /// Returns `true` if a group is not held and has a permit.
    fn may_group_start(&self, queue: &QueueName, group: &GroupName) -> bool {
        let holds = &self.groups.holds;
        !holds.contains_key(&(queue.clone(), group.clone())) && self.group_permits(queue, group) > 0
    }

    /// Groups of which a task may start from now on go behind the others, in the order of their names. Those of which none may start any
    /// more lose their turns.
    pub(super) fn update_group_turns(&mut self) {
        if !self.groups.are_used {
            return;
        }
        let waiting = self.ready_queue.iter().map(|id| &self.tasks[id]);
        let waiting = waiting.filter_map(|row| {
            let group = row.task.group.clone()?;
            Some((row.task.queue.clone(), row.task.priority, group))
        });
        let mut ring: BTreeSet<_> = waiting.collect();
        ring.retain(|(queue, _, group)| self.may_group_start(queue, group));
        self.groups
            .numbers
            .retain(|sublist, _| ring.contains(sublist));
        self.groups.last += 1;
        for sublist in ring {
            self.groups
                .numbers
                .entry(sublist)
                .or_insert(self.groups.last);
        }
    }

    /// Records that a group has been served, so the other groups come first.
    pub(super) fn group_served(
        &mut self,
        queue: &QueueName,
        priority: Priority,
        group: &GroupName,
    ) {
        self.groups.last += 1;
        let sublist = (queue.clone(), priority, group.clone());
        self.groups.numbers.insert(sublist, self.groups.last);
    }

    // ===== Holds =====

    /// Holds the group of a task. This replaces an earlier hold. The group loses its turns, even if the hold is over in the same request.
    pub(super) fn hold_group(&mut self, id: TaskId, wait: Duration) {
        let until = self.wall() + millis(wait);
        let Some(row) = self.tasks.get(&id) else {
            return;
        };
        if let Some(group) = row.task.group.clone() {
            let queue = row.task.queue.clone();
            let is_other = |of: &QueueName, name: &GroupName| *of != queue || *name != group;
            let numbers = &mut self.groups.numbers;
            numbers.retain(|(of, _, name), _| is_other(of, name));
            self.groups.holds.insert((queue.clone(), group), until);
            // An idle session may have to check earlier now.
            self.freed.insert(queue);
        }
    }

    /// Ends the holds of a queue whose time is over.
    pub(super) fn end_holds(&mut self, queue: &QueueName) {
        let now = self.wall();
        self.groups
            .holds
            .retain(|(of, _), until| of != queue || *until > now);
    }

    /// Returns the time until the first hold of a queue is over.
    pub(super) fn hold_wait(&self, queue: &QueueName) -> Option<Duration> {
        let holds = self.groups.holds.iter().filter(|((of, _), _)| of == queue);
        let first = holds.map(|(_, &until)| until).min();
        first.map(|until| Duration::from_millis(until.saturating_sub(self.wall())))
    }
}
