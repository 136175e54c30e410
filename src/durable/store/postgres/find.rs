//! Finds a task.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::TaskId;
use crate::durable::store::FoundTask;

/// Returns a task with its details.
pub(super) async fn find(_view: &View, _id: TaskId) -> Result<Option<FoundTask>, Fault> {
    Err(unwritten("find"))
}
