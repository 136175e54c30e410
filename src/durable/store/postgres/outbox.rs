//! The outbox, in the table `outbox`: see [`Outbox`](crate::durable::Outbox).
//!
//! One transaction removes a row and stores its task. A task is therefore stored exactly once, no matter which processes move it. Several
//! processes can move different rows at the same time.

use std::slice;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::Connection;
use super::enqueue;
use super::error::Fault;
use super::shared::Shared;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use super::view::View;
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::outbox::body::{BODY_VERSION, MAX_BODY_BYTES};
use crate::durable::store::key_answer::output_of_conflict;
use crate::durable::store::{
    DeadReason, DrainedOutbox, KeyConflict, MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewTask, OutboxEntry,
    OutboxLook, SortedEntries, ended_task,
};

/// The interval at which an engine looks for commits of others.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) const HAS_ROWS: &str = "SELECT EXISTS (
        SELECT 1 FROM throng.outbox WHERE substring(body FROM 1 FOR 1) <= $1)";

/// Removes the next rows of the versions up to `$1`: at most `$2`, of which all but the last have fewer than `$3` bytes in total. Returns
/// at most `$4` bytes of each body.
const REMOVE: &str = "WITH next AS MATERIALIZED (
        SELECT id, octet_length(body)::bigint AS size FROM throng.outbox
        WHERE substring(body FROM 1 FOR 1) <= $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
    ), sized AS (
        SELECT id, sum(size) OVER (ORDER BY id) - size AS before FROM next
    ), removed AS (
        DELETE FROM throng.outbox WHERE id IN (SELECT id FROM sized WHERE before < $3::bigint)
        RETURNING id, substring(body FROM 1 FOR $4::integer) AS body
    )
    SELECT id, body FROM removed ORDER BY id";

const REMOVE_ONE: &str = "DELETE FROM throng.outbox
    WHERE substring(body FROM 1 FOR 1) <= $1 AND id = $2 RETURNING id, substring(body FROM 1 FOR $3::integer)";

pub(super) const COUNT_NEWER: &str =
    "SELECT count(*) FROM throng.outbox WHERE substring(body FROM 1 FOR 1) > $1";

pub(super) const FIND: &str = "SELECT id FROM throng.outbox WHERE id = ANY ($1::bytea[])";

/// The latest version of the rows to move, as a parameter of the statements.
pub(super) const KNOWN: &[u8] = &[BODY_VERSION];

pub(super) const MAX_BYTES: i32 = MAX_BODY_BYTES as i32;

/// Looks for rows.
pub(super) async fn look(db: &Connection, _: &Shared, (): &()) -> Result<OutboxLook, Fault> {
    let found = db.row(HAS_ROWS, &[&KNOWN]).await?;
    let found = found.map(|row| row.try_get(0)).transpose()?;
    Ok(OutboxLook {
        has_rows: found.unwrap_or(false),
        interval: LOOK_INTERVAL,
    })
}

/// Moves the next tasks into the store.
pub(super) async fn drain(tx: &mut Transaction) -> Result<DrainedOutbox, Fault> {
    let limits = (MAX_BATCH_TASKS as i64, MAX_BATCH_BYTES as i64);
    let rows = tx
        .rows(REMOVE, &[&KNOWN, &limits.0, &limits.1, &MAX_BYTES])
        .await?;
    failpoint("outbox.removed");
    let entries = entries_of(&rows)?;
    let bytes: usize = entries.iter().map(|entry| entry.body.len()).sum();
    let more = entries.len() == MAX_BATCH_TASKS || bytes >= MAX_BATCH_BYTES;
    let mut drained = move_sorted(tx, &SortedEntries::of(entries)).await?;
    drained.more = more;
    if !more {
        drained.newer = count_newer(tx).await?;
    }
    Ok(drained)
}

/// Returns the number of rows of later versions.
pub(super) async fn count_newer(view: &View) -> Result<u64, Fault> {
    let newer: Option<i64> = view.value(COUNT_NEWER, &[&KNOWN]).await?;
    Ok(newer.unwrap_or_default() as u64)
}

fn entries_of(rows: &[Row]) -> Result<Vec<OutboxEntry>, Fault> {
    let entries = rows.iter().map(|row| {
        let id: &[u8] = row.try_get(0)?;
        Ok(OutboxEntry {
            id: id.try_into().ok().map(TaskId::from_bytes),
            body: row.try_get(1)?,
        })
    });
    entries.collect()
}

/// Stores the tasks of rows that the transaction has removed.
async fn move_sorted(tx: &mut Transaction, sorted: &SortedEntries) -> Result<DrainedOutbox, Fault> {
    if !sorted.tasks.is_empty() {
        let enqueued = enqueue::store_all(tx, &sorted.tasks).await?;
        for conflict in &enqueued.conflicts {
            store_conflict(tx, &sorted.tasks[conflict.position], conflict).await?;
        }
    }
    for (task, error) in &sorted.unreadable {
        store_unreadable(tx, task, error).await?;
    }
    Ok(DrainedOutbox {
        moved: (sorted.tasks.len() + sorted.unreadable.len()) as u64,
        unreadable: sorted.unreadable.len() as u64,
        ..DrainedOutbox::default()
    })
}

/// Stores that another task held the key of a task.
async fn store_conflict(
    tx: &mut Transaction,
    task: &NewTask,
    conflict: &KeyConflict,
) -> Result<(), Fault> {
    if let Some(stored) = store_delayed(tx, &ended_task(task)).await? {
        // Only tasks that may run count.
        tx.deltas.add(|it| &mut it.stored, -1);
        let output = output_of_conflict(conflict);
        let (end, output) = (State::Cancelled, Some(&*output));
        tx.end(task.id, &stored, end, output, None).await?;
    }
    Ok(())
}

/// Stores a row that cannot be read as a dead letter.
async fn store_unreadable(tx: &mut Transaction, task: &NewTask, error: &str) -> Result<(), Fault> {
    let mut task = task.clone();
    if tx.kept_task(task.id).await?.is_some() {
        task.id = TaskId::new();
    }
    if let Some(stored) = store_delayed(tx, &task).await? {
        let reason = DeadReason::Unreadable;
        tx.mark_dead(task.id, &stored, reason, error, None).await?;
    }
    Ok(())
}

/// Stores a delayed task, which the caller ends. Returns `None` if there already is a task with its id.
async fn store_delayed(tx: &mut Transaction, task: &NewTask) -> Result<Option<Task>, Fault> {
    if tx.kept_task(task.id).await?.is_some() {
        return Ok(None);
    }
    enqueue::store_all(tx, slice::from_ref(task)).await?;
    tx.task(task.id).await
}

impl View {
    /// Returns those of these tasks that are in the outbox.
    pub(super) async fn in_outbox(&self, ids: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<Vec<u8>> = self.values(FIND, &[&outbox_ids(ids)]).await?;
        let found = found.into_iter().filter_map(|id| id.try_into().ok());
        Ok(found.map(TaskId::from_bytes).collect())
    }
}

/// Returns the ids of tasks as they are stored in the outbox.
pub(super) fn outbox_ids(ids: &[TaskId]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.to_bytes().to_vec()).collect()
}

impl Transaction {
    /// Returns a task, unless its retention is over.
    async fn kept_task(&self, id: TaskId) -> Result<Option<Task>, Fault> {
        let task = self.task(id).await?;
        Ok(task.filter(|task| !task.state.is_expired(task.at, self.expiry())))
    }

    /// Returns a task that is to be cancelled. If it is in the outbox, moves it into the store first, without its key, so that it
    /// replaces no other task.
    pub(super) async fn task_to_cancel(&mut self, id: TaskId) -> Result<Option<Task>, Fault> {
        let task = self.kept_task(id).await?;
        if task.is_some() {
            return Ok(task);
        }
        let mut sorted = self.take_from_outbox(id).await?;
        for task in &mut sorted.tasks {
            task.key = None;
        }
        move_sorted(self, &sorted).await?;
        self.task(id).await
    }

    /// Moves a task into the store, if it is in the outbox.
    pub(super) async fn move_from_outbox(&mut self, id: TaskId) -> Result<(), Fault> {
        let sorted = self.take_from_outbox(id).await?;
        move_sorted(self, &sorted).await?;
        Ok(())
    }

    async fn take_from_outbox(&mut self, id: TaskId) -> Result<SortedEntries, Fault> {
        let params: &[&(dyn ToSql + Sync)] = &[&KNOWN, &&id.to_bytes()[..], &MAX_BYTES];
        let row = self.rows(REMOVE_ONE, params).await?;
        Ok(SortedEntries::of(entries_of(&row)?))
    }
}
