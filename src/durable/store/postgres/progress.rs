//! The progress of running tasks.

use super::error::{Fault, unwritten};
use super::transaction::Transaction;
use super::view::{View, uuids};
use crate::durable::TaskId;
use crate::durable::store::{ProgressReport, ProgressState};

/// Stores the progress of tasks. Returns those that are not held under the epochs of their reports.
pub(super) async fn report(
    _tx: &mut Transaction,
    _reports: &[ProgressReport],
) -> Result<Vec<TaskId>, Fault> {
    Err(unwritten("report_progress"))
}

/// Returns the progress of tasks, in the order of the ids.
pub(super) async fn read(_view: &View, _ids: &[TaskId]) -> Result<Vec<ProgressState>, Fault> {
    Err(unwritten("progress"))
}

const REMOVE: &str = "DELETE FROM throng.progress WHERE id = ANY ($1)";

impl Transaction {
    /// Removes the progress of the tasks that this transaction has ended.
    pub(super) async fn remove_progress_of_ended(&self) -> Result<(), Fault> {
        if !self.notices.ended.is_empty() {
            self.execute(REMOVE, &[&uuids(&self.notices.ended)]).await?;
        }
        Ok(())
    }
}
