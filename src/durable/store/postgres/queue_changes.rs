//! Changes queues.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;
use crate::durable::store::QueueChange;

/// Changes a queue. Returns `false` if that has no effect.
pub(super) async fn change(
    _tx: &mut Transaction,
    _queue: &QueueName,
    _change: QueueChange,
) -> Result<bool, Fault> {
    Err(unwritten("change_queue"))
}
