//! The errors of attempts after which tasks were tried again.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::{AttemptError, TaskId};

/// Returns the errors of a task, the oldest first.
pub(super) async fn read(_view: &View, _id: TaskId) -> Result<Vec<AttemptError>, Fault> {
    Err(unwritten("errors"))
}
