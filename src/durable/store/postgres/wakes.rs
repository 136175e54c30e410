//! Chooses the sessions to wake for the tasks that a transaction has made ready.

use tokio_postgres::Row;

use super::error::Fault;
use super::notices::{Notices, ReadyTasks};
use super::queues;
use super::text;
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;

impl Transaction {
    /// Records that further tasks of a type wait. With 0, tasks may be left.
    pub(super) fn add_ready(&mut self, kind: i64, queue: &QueueName, name: &str, gained: i64) {
        if self.is_paused(name) {
            return;
        }
        let new = || ReadyTasks {
            queue: queue.clone(),
            gained: 0,
        };
        self.notices.ready.entry(kind).or_insert_with(new).gained += gained;
    }

    /// Records a task that became ready, given its columns `kind`, `queue`, `name`, `group_name` and `priority`.
    pub(super) fn add_ready_row(&mut self, row: &Row) -> Result<(), Fault> {
        if let Some(group) = row.try_get("group_name")? {
            return self.waits_in_group(row, group);
        }
        let queue: Option<String> = row.try_get("queue")?;
        let queue = QueueName::from(queue.map(text::loaded));
        let name = text::loaded(row.try_get("name")?);
        self.add_ready(row.try_get("kind")?, &queue, &name, 1);
        Ok(())
    }

    /// Has a session look for tasks of these kinds in a queue, since some may be left.
    pub(super) fn look_again(&mut self, queue: QueueName, kinds: Vec<i64>) {
        if !kinds.is_empty() {
            self.notices.left.push((queue, kinds));
        }
    }

    /// Chooses the sessions to wake for the tasks that this transaction has made ready.
    pub(super) async fn choose_wakes(&mut self) -> Result<(), Fault> {
        let ready = std::mem::take(&mut self.notices.ready).into_iter();
        let ready = ready.map(|(kind, it)| {
            let sessions = it.gained.clamp(1, Notices::MAX_WAKES);
            (it.queue, sessions, vec![kind])
        });
        let left = std::mem::take(&mut self.notices.left).into_iter();
        let left = left.map(|(queue, kinds)| (queue, 1, kinds));
        for (queue, sessions, kinds) in ready.chain(left).collect::<Vec<_>>() {
            // If no task of the queue may start now, the step that lets one start wakes a session.
            if queues::has_permits(self, &queue).await? {
                self.notices.wakes.push((sessions, kinds));
            }
        }
        let mut changed = std::mem::take(&mut self.notices.changed);
        for queue in std::mem::take(&mut self.notices.freed) {
            // Without a maximum, no task waits for the end of another.
            if queues::has_maximum(self, &queue).await? {
                changed.insert(queue);
            }
        }
        for queue in changed {
            if queues::has_permits(self, &queue).await? {
                self.notices.add_queue_wake(&queue, None);
            }
        }
        Ok(())
    }
}
