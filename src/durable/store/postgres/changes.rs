//! Changes single tasks.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::{Change, ChangeAnswer};

/// Changes tasks. Returns an answer for each.
pub(super) async fn change(
    _tx: &mut Transaction,
    _ids: &[TaskId],
    _change: &Change,
) -> Result<Vec<ChangeAnswer>, Fault> {
    Err(unwritten("change"))
}
