//! The steps of tasks: see `store/steps.rs`.

use super::error::{Fault, unwritten};
use super::task::Task;
use super::transaction::Transaction;
use super::view::{View, uuid};
use crate::durable::TaskId;
use crate::durable::store::{NewStep, SignalAnswer, StepAnswer, StepName, StoredStep, TaskState};

const REMOVE_STEPS: &str = "DELETE FROM throng.step WHERE id = $1";
const REMOVE_WORKFLOW: &str = "DELETE FROM throng.workflow WHERE id = $1";
const WAIT_FOR_NONE: &str =
    "UPDATE throng.workflow SET until = NULL, waits_for = NULL WHERE id = $1 AND until IS NOT NULL";

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
}

/// Stores steps of running tasks. Returns an answer for each, in their order.
pub(super) async fn store(
    _tx: &mut Transaction,
    _steps: &[NewStep],
) -> Result<Vec<StepAnswer>, Fault> {
    Err(unwritten("store_steps"))
}

/// Returns the steps of a task, in the order in which they were stored.
pub(super) async fn read(_view: &View, _id: TaskId) -> Result<Vec<StoredStep>, Fault> {
    Err(unwritten("steps"))
}

/// Stores a step of a task that has not ended.
pub(super) async fn signal(
    _tx: &mut Transaction,
    _id: TaskId,
    _name: &StepName,
    _value: &[u8],
) -> Result<SignalAnswer, Fault> {
    Err(unwritten("signal"))
}
