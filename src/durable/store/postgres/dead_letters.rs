//! Dead letters.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::View;
use crate::durable::store::DeadPayload;
use crate::durable::{DeadFilter, DeadLetter, TaskId};

/// Returns dead letters, the newest first.
pub(super) async fn list(
    _view: &View,
    _filter: &DeadFilter,
    _limit: usize,
) -> Result<Vec<DeadLetter>, Fault> {
    Err(unwritten("dead_letters"))
}

/// Returns the payload of a dead letter.
pub(super) async fn payload(_view: &View, _id: TaskId) -> Result<Option<DeadPayload>, Fault> {
    Err(unwritten("dead_letter_payload"))
}

/// Makes dead letters wait again. Returns their number.
pub(super) async fn replay(_tx: &mut Transaction, _filter: &DeadFilter) -> Result<u64, Fault> {
    Err(unwritten("replay_dead_letters"))
}

/// Deletes dead letters. Returns their number.
pub(super) async fn delete(_tx: &mut Transaction, _filter: &DeadFilter) -> Result<u64, Fault> {
    Err(unwritten("delete_dead_letters"))
}
