//! Claims: reads and writes the tasks that they hold.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::error::Fault;
use super::text;
use super::transaction::Transaction;
use super::view::{task_id, uuids};
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;

/// Locks a claim: a claim that another transaction takes back at the same time is gone then.
const LOAD: &str = "SELECT held, queue FROM throng.claim WHERE epoch = $1 FOR UPDATE";

const REMOVE: &str = "DELETE FROM throng.claim WHERE epoch = ANY ($1)";

const UPDATE: &str = "UPDATE throng.claim SET held = $2, delivered = delivered OR session = $3
    WHERE epoch = $1";

/// Selects the claims that hold tasks.
const OF_TASKS: &str =
    "SELECT id, epoch FROM throng.claim CROSS JOIN LATERAL unnest(held) AS own (id)
    WHERE id = ANY ($1)";

/// The tasks that a claim still holds.
#[derive(Debug, Default)]
pub(super) struct ClaimedTasks {
    pub(super) ids: BTreeSet<TaskId>,
    /// The queue of the tasks, or `None` if they are in the default queue.
    pub(super) queue: Option<QueueName>,
}

impl Transaction {
    /// Returns the tasks that a claim still holds: none if there is no such claim.
    pub(super) async fn claimed_tasks(&self, epoch: i64) -> Result<ClaimedTasks, Fault> {
        let Some(row) = self.row(LOAD, &[&epoch]).await? else {
            return Ok(ClaimedTasks::default());
        };
        let held: Vec<Uuid> = row.try_get("held")?;
        let queue: Option<String> = row.try_get("queue")?;
        Ok(ClaimedTasks {
            ids: held.into_iter().map(task_id).collect(),
            queue: queue.map(|name| QueueName::from(Some(text::loaded(name)))),
        })
    }

    /// The same, and records that some of them stop running, so that others of their queue may start.
    pub(super) async fn stop_claimed_tasks(&mut self, epoch: i64) -> Result<ClaimedTasks, Fault> {
        let claimed = self.claimed_tasks(epoch).await?;
        if let Some(queue) = &claimed.queue {
            self.tasks_stop(queue)?;
        }
        Ok(claimed)
    }

    /// Records that tasks of a named queue stop running.
    pub(super) fn tasks_stop(&mut self, queue: &QueueName) -> Result<(), Fault> {
        self.alone()?;
        self.notices.freed.insert(queue.clone());
        Ok(())
    }

    /// Stores the tasks that a claim still holds, as a session reports. A claim that holds none is removed.
    pub(super) async fn update_claim(
        &self,
        session: i64,
        epoch: i64,
        ids: &BTreeSet<TaskId>,
    ) -> Result<(), Fault> {
        if ids.is_empty() {
            return self.remove_claims(&[epoch]).await;
        }
        self.execute(UPDATE, &[&epoch, &uuids(ids), &session])
            .await?;
        Ok(())
    }

    pub(super) async fn remove_claims(&self, epochs: &[i64]) -> Result<(), Fault> {
        self.execute(REMOVE, &[&epochs]).await?;
        Ok(())
    }

    /// Returns the epochs of the claims that hold these tasks.
    pub(super) async fn claims_of(&self, ids: &[TaskId]) -> Result<Vec<(TaskId, i64)>, Fault> {
        let rows = self.rows(OF_TASKS, &[&uuids(ids)]).await?;
        let claims = rows
            .iter()
            .map(|row| Ok((task_id(row.try_get("id")?), row.try_get("epoch")?)));
        claims.collect()
    }
}
