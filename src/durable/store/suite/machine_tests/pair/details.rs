//! Single tasks in detail, and the tasks at the heads of queues.

use std::time::Duration;

use super::lists::leave_out;
use super::{Outcome, Pair, equal, refusal};
use crate::durable::admin::detail::{KeyState, TaskDetail};
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::queue_name;
use crate::durable::store::{FoundTask, Store};
use crate::durable::{Status, TaskId, TaskInfo};

/// The maximum number of tasks at the head of a queue. No more tasks wait.
const LIMIT: usize = 1_000;

impl<H: Harness> Pair<H> {
    pub(super) async fn find(&mut self, process: u8, ids: &[TaskId]) -> Outcome {
        // A store that learns of a death otherwise than the model may end the lease.
        let was_killed = self.started > self.processes.len();
        let [model, tested] = self.stores(process);
        for &id in ids {
            let mut expected = model.0.find(id).await.map_err(refusal)?;
            let mut answered = tested.0.find(id).await.map_err(refusal)?;
            if let (Some(expected), Some(answered)) = (&mut expected, &mut answered) {
                leave_out_unknown(expected, answered);
                if was_killed {
                    leave_out_lease(&mut expected.detail);
                    leave_out_lease(&mut answered.detail);
                }
            }
            equal("a task", &expected, &answered)?;
        }
        Ok(())
    }

    /// Compares the heads of the queues as sets.
    pub(super) async fn head(&mut self, process: u8, is_queued: bool) -> Outcome {
        let queue = if is_queued { "q" } else { "" };
        let [model, tested] = self.stores(process);
        let (mut expected, mut answered) = (read(model, queue).await?, read(tested, queue).await?);
        for (expected, answered) in expected.iter_mut().zip(&mut answered) {
            leave_out(expected, answered);
        }
        equal("the head of a queue", &expected, &answered)
    }
}

/// Returns the head of a queue, in the order of the ids.
async fn read(store: &Store, queue: &str) -> Result<Vec<TaskInfo>, String> {
    let head = store.0.head(queue_name(queue), LIMIT).await;
    let mut head = head.map_err(refusal)?.tasks;
    head.sort_by_key(|task| task.id);
    Ok(head)
}

/// Removes what depends on the store, or what a store does not know.
fn leave_out_unknown(expected: &mut FoundTask, answered: &mut FoundTask) {
    leave_out(&mut expected.detail.task, &mut answered.detail.task);
    // Redis may not find the entry of a waiting task.
    if answered.status() == Status::Waiting && answered.payload.is_none() {
        expected.payload = None;
    }
    leave_out_key(&mut expected.detail);
    leave_out_key(&mut answered.detail);
    if answered.detail.priority.is_none() {
        expected.detail.priority = None;
    }
    let runners = (&mut expected.detail.runner, &mut answered.detail.runner);
    if let (Some(expected), Some(answered)) = runners {
        // Each store issues its own sessions.
        answered.session = expected.session;
        answered.process.clone_from(&expected.process);
    }
}

fn leave_out_lease(detail: &mut TaskDetail) {
    detail.lease_left = detail.lease_left.map(|_| Duration::ZERO);
    if let Some(runner) = &mut detail.runner {
        runner.is_suspect = false;
    }
}

/// SQLite forgets a key that the task held until it started.
fn leave_out_key(detail: &mut TaskDetail) {
    detail.key = detail.key.filter(|&key| key == KeyState::Held);
}
