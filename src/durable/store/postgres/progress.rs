//! The progress of running tasks, in the table `progress`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::error::Fault;
use super::transaction::Transaction;
use super::view::{View, task_id, uuids};
use crate::durable::TaskId;
use crate::durable::store::{Epoch, Progress, ProgressReport, ProgressState};

/// Stores progress, unless a later report of the same run is stored. The claim of the run holds the task, so another epoch is that of an
/// earlier run.
const STORE: &str = "INSERT INTO throng.progress (id, epoch, number, bytes)
    SELECT id, epoch, number, bytes
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bytea[]) AS new (id, epoch, number, bytes)
    ON CONFLICT (id) DO UPDATE
        SET epoch = excluded.epoch, number = excluded.number, bytes = excluded.bytes
        WHERE progress.epoch <> excluded.epoch OR progress.number < excluded.number";

const READ: &str = "SELECT task.id, epoch, number, bytes
    FROM throng.task LEFT JOIN throng.progress ON progress.id = task.id
    WHERE task.id = ANY ($1) AND state < 2";

pub(super) const REMOVE: &str = "DELETE FROM throng.progress WHERE id = ANY ($1)";

/// Stores the progress of running tasks. Returns the tasks that are not held under the epochs of their reports.
pub(super) async fn report(
    tx: &mut Transaction,
    reports: &[ProgressReport],
) -> Result<Vec<TaskId>, Fault> {
    let (mut claims, mut refused) = (BTreeMap::new(), Vec::new());
    let mut last: BTreeMap<TaskId, &Progress> = BTreeMap::new();
    for ProgressReport { id, progress } in reports {
        let epoch = progress.epoch;
        let held = match claims.entry(epoch) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(tx.claimed_tasks(epoch as i64).await?.ids),
        };
        if !held.contains(id) {
            refused.push(*id);
        } else if last.get(id).is_none_or(|it| it.number < progress.number) {
            last.insert(*id, progress);
        }
    }
    store(tx, &last).await?;
    Ok(refused)
}

async fn store(tx: &Transaction, reports: &BTreeMap<TaskId, &Progress>) -> Result<(), Fault> {
    if reports.is_empty() {
        return Ok(());
    }
    let values = reports.values();
    let epochs: Vec<_> = values.clone().map(|it| it.epoch as i64).collect();
    let numbers: Vec<_> = values.clone().map(|it| it.number as i64).collect();
    let bytes: Vec<_> = values.map(|it| &*it.bytes).collect();
    tx.execute(STORE, &[&uuids(reports.keys()), &epochs, &numbers, &bytes])
        .await?;
    Ok(())
}

/// Returns the progress of tasks, in the order of the ids.
pub(super) async fn read(view: &View, ids: &[TaskId]) -> Result<Vec<ProgressState>, Fault> {
    let mut alive = HashMap::new();
    for row in view.rows(READ, &[&uuids(ids)]).await? {
        let progress = match row.try_get::<_, Option<i64>>("epoch")? {
            None => None,
            Some(epoch) => Some(Progress {
                epoch: epoch as Epoch,
                number: row.try_get::<_, i64>("number")? as u64,
                bytes: row.try_get("bytes")?,
            }),
        };
        alive.insert(task_id(row.try_get("id")?), progress);
    }
    let is_absent = |id: &TaskId| !alive.contains_key(id);
    let absent: Vec<_> = ids.iter().copied().filter(is_absent).collect();
    for id in view.in_outbox(&absent).await? {
        alive.insert(id, None);
    }
    let state = |id| match alive.get(id) {
        None => ProgressState::Ended,
        Some(progress) => ProgressState::Alive(progress.clone()),
    };
    Ok(ids.iter().map(state).collect())
}

impl Transaction {
    /// Removes the progress of the tasks that this transaction has ended.
    pub(super) async fn remove_progress_of_ended(&self) -> Result<(), Fault> {
        if !self.notices.ended.is_empty() {
            self.execute(REMOVE, &[&uuids(&self.notices.ended)]).await?;
        }
        Ok(())
    }
}
