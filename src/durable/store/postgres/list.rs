//! Lists tasks by status.

use super::error::{Fault, unwritten};
use super::view::View;
use crate::durable::TaskPage;
use crate::durable::store::ListTasks;

/// Returns a page of the tasks with a status.
pub(super) async fn list(_view: &View, _request: &ListTasks) -> Result<Option<TaskPage>, Fault> {
    Err(unwritten("list"))
}
