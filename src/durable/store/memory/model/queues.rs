//! Named queues: their limits, and what they let start.

use std::collections::BTreeSet;
use std::time::Duration;

use super::row::{Row, State};
use super::state::Model;
use crate::durable::TaskId;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::store::QueueChange;

impl Model {
    /// Changes a queue. Returns `false` if that has no effect.
    pub(in super::super) fn change_queue(&mut self, name: QueueName, change: QueueChange) -> bool {
        let row = self.queues.entry(name.clone()).or_default();
        match change {
            QueueChange::Settings(settings)
                if settings.revision_number() < row.settings.revision_number() =>
            {
                return false;
            }
            QueueChange::Settings(settings) => row.settings = settings,
            QueueChange::Paused(is_paused) => row.is_paused = is_paused,
        }
        self.freed.insert(name);
        self.wake_for_new_ready();
        true
    }

    pub(in super::super) fn queue(&self, name: &QueueName) -> QueueInfo {
        let row = self.queues.get(name);
        let tasks = self.tasks.values();
        let waiting = tasks.filter(|row| row.state == State::Waiting && row.task.queue == *name);
        QueueInfo {
            settings: row.map(|row| row.settings).unwrap_or_default(),
            is_paused: row.is_some_and(|row| row.is_paused),
            waiting: waiting.count() as u64,
            running: self.running_in(name),
        }
    }

    /// Returns the number of tasks of a queue that may start now.
    pub(super) fn room(&self, name: &QueueName) -> usize {
        let permits = self.permits(name);
        let row = self.queues.get(name);
        match row.and_then(|row| Some((row.settings.rate_limit()?, row.used_until))) {
            Some((rate, used)) => permits.min(rate.available(used, self.wall_micros()) as usize),
            None => permits,
        }
    }

    /// Returns the number of tasks of a queue that may start now, if its rate does not matter.
    pub(super) fn permits(&self, name: &QueueName) -> usize {
        match self.queues.get(name) {
            None => usize::MAX,
            Some(row) if row.is_paused => 0,
            Some(row) => row.settings.running_limit().map_or(usize::MAX, |most| {
                (most as usize).saturating_sub(self.running_in(name) as usize)
            }),
        }
    }

    fn is_limited(&self, name: &QueueName) -> bool {
        let row = self.queues.get(name);
        row.is_some_and(|row| {
            row.settings.running_limit().is_some()
                || row.settings.group_settings().running_limit().is_some()
        })
    }

    fn running_in(&self, name: &QueueName) -> u64 {
        let is_running = |row: &&Row| matches!(row.state, State::Running { .. });
        let rows = self.tasks.values().filter(is_running);
        rows.filter(|row| row.task.queue == *name).count() as u64
    }

    /// Returns the order of priorities in which a claim takes tasks.
    pub(super) fn priority_turns(&self, name: &QueueName) -> PriorityTurns {
        let row = self.queues.get(name);
        row.map(|row| row.turns).unwrap_or_default()
    }

    /// Records that tasks have started.
    pub(super) fn started(&mut self, name: &QueueName, turns: PriorityTurns, tasks: usize) {
        let now = self.wall_micros();
        let row = self.queues.entry(name.clone()).or_default();
        row.turns = turns;
        if let Some(rate) = row.settings.rate_limit() {
            let used = rate.use_up(row.used_until, now, tasks as u64);
            if tasks > 0 || used < row.used_until {
                row.used_until = used;
            }
        }
    }

    /// Returns the time until the rate of a queue lets a task start. Without such a limit, nothing depends on time.
    pub(super) fn rate_wait(&self, name: &QueueName) -> Option<Duration> {
        let row = self.queues.get(name)?;
        let wait = row
            .settings
            .rate_limit()?
            .wait(row.used_until, self.wall_micros());
        (self.permits(name) > 0).then(|| Duration::from_micros(wait))
    }

    /// Records that a task stops running, so that another one of its queue may start.
    pub(super) fn free(&mut self, id: TaskId) {
        // Without a maximum, no task waits for the end of another.
        if let Some(row) = self.tasks.get(&id)
            && self.is_limited(&row.task.queue)
        {
            self.freed.insert(row.task.queue.clone());
        }
    }

    /// Wakes idle sessions of each queue in which a task may start because another one has stopped: one for each kind that
    /// waits, since not every session knows it. If a task must wait for the rate of its queue, the session finds out how long.
    pub(super) fn wake_for_freed(&mut self) {
        let mut freed = std::mem::take(&mut self.freed);
        freed.retain(|queue| self.permits(queue) > 0);
        if freed.is_empty() {
            return;
        }
        let waits = |id: &TaskId| {
            let row = &self.tasks[id];
            let may_start = freed.contains(&row.task.queue) && !self.is_paused(row);
            may_start.then_some(row.kind)
        };
        let waiting: BTreeSet<_> = self.ready_queue.iter().filter_map(waits).collect();
        for kind in waiting {
            self.wake(1, |session| session.knows(kind));
        }
    }

    fn wall_micros(&self) -> u64 {
        self.wall_time().as_micros() as u64
    }
}
