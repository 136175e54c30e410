//! Claims: reads and writes the tasks that they hold.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Fault;
use super::text;
use super::transaction::Transaction;
use super::view::{task_id, uuids};
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;

/// Locks a claim: a claim that another transaction takes back at the same time is gone then.
const LOAD: &str = "SELECT held, queue FROM throng.claim WHERE epoch = $1 FOR UPDATE";

/// Locks claims, in the order of their epochs.
pub(super) const LOAD_ALL: &str = "SELECT epoch, held, queue FROM throng.claim
    WHERE epoch = ANY ($1) ORDER BY epoch FOR UPDATE";

pub(super) const REMOVE: &str = "DELETE FROM throng.claim WHERE epoch = ANY ($1)";

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

/// The tasks that some claims still hold, by epoch.
pub(super) type ClaimsByEpoch = BTreeMap<i64, ClaimedTasks>;

impl Transaction {
    /// Returns the tasks that a claim still holds: none if there is no such claim.
    pub(super) async fn claimed_tasks(&self, epoch: i64) -> Result<ClaimedTasks, Fault> {
        let row = self.row(LOAD, &[&epoch]).await?;
        row.map_or(Ok(ClaimedTasks::default()), |row| read(&row))
    }

    /// The same for several claims. Those that do not exist are missing.
    pub(super) async fn all_claimed_tasks(&self, epochs: &[i64]) -> Result<ClaimsByEpoch, Fault> {
        if epochs.is_empty() {
            return Ok(ClaimsByEpoch::new());
        }
        let rows = self.rows(LOAD_ALL, &[&epochs]).await?;
        let claims = rows
            .iter()
            .map(|row| Ok((row.try_get("epoch")?, read(row)?)));
        claims.collect()
    }

    /// Records that tasks of a named queue stop running, so that others may start.
    pub(super) fn tasks_stop(&mut self, queue: &QueueName) -> Result<(), Fault> {
        self.require_exclusive()?;
        self.notices.freed.insert(queue.clone());
        Ok(())
    }

    /// Stores the tasks that claims still hold, as a session reports. Claims that hold none are removed.
    pub(super) async fn update_claims(
        &self,
        session: i64,
        claims: &ClaimsByEpoch,
    ) -> Result<(), Fault> {
        let (empty, left): (Vec<_>, Vec<_>) = claims
            .iter()
            .partition(|(_, claimed)| claimed.ids.is_empty());
        if !empty.is_empty() {
            let epochs: Vec<_> = empty.into_iter().map(|(epoch, _)| *epoch).collect();
            self.remove_claims(&epochs).await?;
        }
        for (epoch, claimed) in left {
            self.execute(UPDATE, &[epoch, &uuids(&claimed.ids), &session])
                .await?;
        }
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

fn read(row: &Row) -> Result<ClaimedTasks, Fault> {
    let held: Vec<Uuid> = row.try_get("held")?;
    let queue: Option<String> = row.try_get("queue")?;
    Ok(ClaimedTasks {
        ids: held.into_iter().map(task_id).collect(),
        queue: queue.map(|name| QueueName::from(Some(text::loaded(name)))),
    })
}
