//! The steps of tasks: see `store/steps.rs`.

use super::error::{Fault, unwritten};
use super::task::Task;
use super::transaction::Transaction;
use super::view::{uuid, uuids};
use crate::durable::TaskId;
use crate::durable::store::TaskState;

const REMOVE_STEPS: &str = "DELETE FROM throng.step WHERE id = $1";
const REMOVE_WORKFLOW: &str = "DELETE FROM throng.workflow WHERE id = $1";
const WAIT_FOR_NONE: &str =
    "UPDATE throng.workflow SET until = NULL, waits_for = NULL WHERE id = $1 AND until IS NOT NULL";
const REMOVE_PROGRESS: &str = "DELETE FROM throng.progress WHERE id = ANY ($1)";

impl Transaction {
    /// Removes the steps of a task.
    pub(super) async fn remove_steps(&self, id: TaskId) -> Result<(), Fault> {
        if self.execute(REMOVE_WORKFLOW, &[&uuid(id)]).await? > 0 {
            self.execute(REMOVE_STEPS, &[&uuid(id)]).await?;
        }
        Ok(())
    }

    /// Records that a task does not wait for steps.
    pub(super) async fn wait_for_no_steps(&self, id: TaskId) -> Result<(), Fault> {
        self.execute(WAIT_FOR_NONE, &[&uuid(id)]).await?;
        Ok(())
    }

    /// Suspends a running task until a time, or until it has a number of steps.
    pub(super) async fn suspend(
        &mut self,
        _id: TaskId,
        _task: &Task,
        _due: i64,
        _until: Option<(u32, &str)>,
    ) -> Result<(), Fault> {
        Err(unwritten("steps: suspend"))
    }

    /// Tells the parent of a task, if it has one, of its end.
    pub(super) async fn tell_parent(
        &mut self,
        _id: TaskId,
        task: &Task,
        _end: TaskState,
    ) -> Result<(), Fault> {
        match task.parent {
            None => Ok(()),
            Some(_) => Err(unwritten("steps: tell the parent")),
        }
    }

    /// Removes the progress of the tasks that this transaction has ended.
    pub(super) async fn remove_progress_of_ended(&self) -> Result<(), Fault> {
        if !self.notices.ended.is_empty() {
            self.execute(REMOVE_PROGRESS, &[&uuids(&self.notices.ended)])
                .await?;
        }
        Ok(())
    }
}
