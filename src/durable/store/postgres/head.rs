//! The tasks at the heads of the lines of a queue.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::QueueHead;
use crate::durable::queue::name::QueueName;

/// Returns the tasks of a queue that start next.
pub(super) async fn head(
    _view: &View,
    _queue: &QueueName,
    _limit: usize,
) -> Result<QueueHead, Fault> {
    Err(unwritten("head"))
}
