//! The groups of tasks within named queues, which take turns.

use std::time::Duration;

use tokio_postgres::Row;

use super::claim::Next;
use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::View;
use crate::durable::TaskId;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;

impl Transaction {
    /// Records that a task waits, given its columns `queue`, `group_name` and `priority`. Returns `true` if a session is to be woken for it.
    pub(super) async fn group_waits(&mut self, row: &Row) -> Result<bool, Fault> {
        let group: Option<String> = row.try_get("group_name")?;
        match group {
            None => Ok(true),
            Some(_) => Err(unwritten("groups: a task of a group waits")),
        }
    }

    /// Records that a task of a group no longer waits, without having started.
    pub(super) async fn group_left(
        &mut self,
        _queue: &QueueName,
        _priority: i16,
        _group: &str,
    ) -> Result<(), Fault> {
        Err(unwritten("groups: a task of a group leaves its line"))
    }

    /// Records that tasks of a queue stop running.
    pub(super) async fn groups_stopped(&mut self, _ids: &[TaskId]) -> Result<(), Fault> {
        Ok(())
    }

    /// Holds the group of a task.
    pub(super) async fn hold_group(&mut self, _id: TaskId, _wait: Duration) -> Result<(), Fault> {
        Err(unwritten("groups: hold"))
    }

    /// Ends the holds of a queue whose time is over.
    pub(super) async fn end_holds(&mut self, _queue: &QueueName) -> Result<(), Fault> {
        Ok(())
    }
}

/// Returns the time until the first hold of a queue is over. The default queue has no groups.
pub(super) async fn hold_wait(_view: &View, _queue: &QueueName) -> Result<Option<Duration>, Fault> {
    Ok(None)
}

/// Returns `true` if a task of a group waits and may start.
pub(super) async fn is_any_ready(
    _view: &View,
    _kinds: &[i64],
    _queue: &QueueName,
    _quarantined: bool,
) -> Result<bool, Fault> {
    Ok(false)
}

impl Next<'_> {
    /// Takes the next tasks of the groups of a queue, in the order of their turns.
    pub(super) async fn take_from_groups(
        &mut self,
        _tx: &mut Transaction,
        _queue: &QueueName,
        _priority: Priority,
        _kinds: &[i64],
        _most: usize,
    ) -> Result<(), Fault> {
        Ok(())
    }
}
