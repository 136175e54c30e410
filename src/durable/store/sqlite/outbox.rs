//! The outbox, in the table `throng_outbox`, which users create: see [`Outbox`](crate::durable::Outbox).
//!
//! One transaction removes a row and stores its task. A task is therefore stored exactly once, no matter which processes move it.

use std::slice;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::enqueue;
use super::error::Fault;
use super::reader::{EmptyOutbox, ReadConnection};
use super::schema::has_outbox;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::outbox::body::{BODY_VERSION, MAX_BODY_BYTES};
use crate::durable::store::key_answer::output_of_conflict;
use crate::durable::store::{
    DeadReason, DrainedOutbox, KeyConflict, MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewTask, OutboxEntry,
    OutboxLook, SortedEntries, ended_task,
};

/// The interval at which an engine looks for commits of others, if there is an outbox.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which an engine looks for an outbox, if there is none.
const MISSING_INTERVAL: Duration = Duration::from_secs(1);

/// Selects at most `?2` bytes of the next rows of the versions up to `?1`, and those that cannot be read. The first byte of an empty body
/// is `NULL`.
pub(super) const NEXT: &str = "SELECT rowid, id, substr(body, 1, ?2) FROM throng_outbox
    WHERE (typeof(body) = 'blob' AND substr(body, 1, 1) > ?1) IS NOT TRUE ORDER BY rowid";

/// The latest version of the rows to move, as a parameter of the statements.
pub(super) const KNOWN: [u8; 1] = [BODY_VERSION];

pub(super) const MAX_BYTES: i64 = MAX_BODY_BYTES as i64;

const COUNT_NEWER: &str = "SELECT count(*) FROM throng_outbox
    WHERE typeof(body) = 'blob' AND substr(body, 1, 1) > ?1";

const FIND: &str = "SELECT rowid, id, substr(body, 1, ?2) FROM throng_outbox
    WHERE id = ?3 AND (typeof(body) = 'blob' AND substr(body, 1, 1) > ?1) IS NOT TRUE";

/// Looks for rows. While the file does not change, this reads no table.
pub(super) fn look(reader: &ReadConnection) -> Result<OutboxLook, Fault> {
    let mut statement = reader.db.prepare_cached("PRAGMA data_version")?;
    let data_version = statement.query_row([], |row| row.get(0))?;
    let before = reader.empty_outbox.get();
    let mut has_rows = false;
    if before.is_none_or(|before| before.data_version != data_version) {
        let (exists, found) = reader.snapshot(look_once)?;
        has_rows = found;
        let empty = EmptyOutbox {
            data_version,
            is_missing: !exists,
        };
        reader.empty_outbox.set((!found).then_some(empty));
    }
    let is_missing = reader.empty_outbox.get().is_some_and(|it| it.is_missing);
    Ok(OutboxLook {
        has_rows,
        interval: match is_missing {
            true => MISSING_INTERVAL,
            false => LOOK_INTERVAL,
        },
    })
}

/// Returns whether there is an outbox, and whether it has rows to move.
fn look_once(db: &Connection) -> Result<(bool, bool), Fault> {
    if !has_outbox(db)? {
        return Ok((false, false));
    }
    let mut next = db.prepare_cached(NEXT)?;
    Ok((true, next.exists((KNOWN, MAX_BYTES))?))
}

/// Moves the next tasks into the store.
pub(super) fn drain(tx: &mut Transaction<'_>) -> Result<DrainedOutbox, Fault> {
    if !has_outbox(tx.db)? {
        return Ok(DrainedOutbox::default());
    }
    let (rows, more) = next_rows(tx.db)?;
    let sorted = remove(tx, rows)?;
    let mut drained = move_sorted(tx, &sorted)?;
    drained.more = more;
    if !more {
        drained.newer = count_newer(tx.db)?;
    }
    Ok(drained)
}

/// Returns the number of rows of later versions.
pub(super) fn count_newer(db: &Connection) -> Result<u64, rusqlite::Error> {
    if !has_outbox(db)? {
        return Ok(0);
    }
    let mut statement = db.prepare_cached(COUNT_NEWER)?;
    let newer: i64 = statement.query_row([KNOWN], |row| row.get(0))?;
    Ok(newer as u64)
}

/// Returns `true` if a task is in the outbox.
pub(super) fn contains(db: &Connection, id: TaskId) -> Result<bool, rusqlite::Error> {
    if !has_outbox(db)? {
        return Ok(false);
    }
    let mut statement = db.prepare_cached("SELECT 1 FROM throng_outbox WHERE id = ?1")?;
    statement.exists([id.to_bytes()])
}

/// A row and its `rowid`.
pub(super) struct OutboxTableRow {
    pub(super) number: i64,
    /// The bytes of the id, whether or not they are the id of a task.
    pub(super) id: Vec<u8>,
    pub(super) entry: OutboxEntry,
}

impl OutboxTableRow {
    pub(super) fn read(row: &Row<'_>) -> Result<Self, rusqlite::Error> {
        let id = row.get_ref(1)?;
        let task_id = match id {
            ValueRef::Blob(id) => id.try_into().ok().map(TaskId::from_bytes),
            _ => None,
        };
        Ok(Self {
            number: row.get(0)?,
            id: bytes_of(id),
            entry: OutboxEntry {
                id: task_id,
                body: bytes_of(row.get_ref(2)?),
            },
        })
    }
}

/// Returns the bytes of a value. The table does not restrict the types of its values.
fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the next rows, and `true` if there may be more.
pub(super) fn next_rows(db: &Connection) -> Result<(Vec<OutboxTableRow>, bool), rusqlite::Error> {
    let mut statement = db.prepare_cached(NEXT)?;
    let mut rows = statement.query((KNOWN, MAX_BYTES))?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < MAX_BATCH_TASKS && bytes < MAX_BATCH_BYTES {
        let Some(row) = rows.next()? else {
            return Ok((found, false));
        };
        let row = OutboxTableRow::read(row)?;
        bytes += row.entry.body.len();
        found.push(row);
    }
    Ok((found, true))
}

fn remove(
    tx: &mut Transaction<'_>,
    rows: impl IntoIterator<Item = OutboxTableRow>,
) -> Result<SortedEntries, Fault> {
    let mut entries = Vec::new();
    for row in rows {
        tx.execute("DELETE FROM throng_outbox WHERE rowid = ?1", [row.number])?;
        entries.push(row.entry);
    }
    failpoint("outbox.removed");
    Ok(SortedEntries::of(entries))
}

/// Stores the tasks of rows that the transaction has removed.
fn move_sorted(tx: &mut Transaction<'_>, sorted: &SortedEntries) -> Result<DrainedOutbox, Fault> {
    if !sorted.tasks.is_empty() {
        let enqueued = enqueue::store_all(tx, &sorted.tasks)?;
        for conflict in &enqueued.conflicts {
            store_conflict(tx, &sorted.tasks[conflict.position], conflict)?;
        }
    }
    for (task, error) in &sorted.unreadable {
        store_unreadable(tx, task, error)?;
    }
    Ok(DrainedOutbox {
        moved: (sorted.tasks.len() + sorted.unreadable.len()) as u64,
        unreadable: sorted.unreadable.len() as u64,
        ..DrainedOutbox::default()
    })
}

/// Stores that another task held the key of a task.
fn store_conflict(
    tx: &mut Transaction<'_>,
    task: &NewTask,
    conflict: &KeyConflict,
) -> Result<(), Fault> {
    if let Some(stored) = store_delayed(tx, &ended_task(task))? {
        // Only tasks that may run count.
        tx.meta.counts.stored -= 1;
        let output = output_of_conflict(conflict);
        tx.end(task.id, &stored, State::Cancelled, Some(&*output))?;
    }
    Ok(())
}

/// Stores a row that cannot be read as a dead letter.
fn store_unreadable(tx: &mut Transaction<'_>, task: &NewTask, error: &str) -> Result<(), Fault> {
    let mut task = task.clone();
    if tx.kept_task(task.id)?.is_some() {
        task.id = TaskId::new();
    }
    match store_delayed(tx, &task)? {
        Some(stored) => tx.mark_dead(task.id, &stored, DeadReason::Unreadable, error),
        None => Ok(()),
    }
}

/// Stores a delayed task, which the caller ends. Returns `None` if there already is a task with its id.
fn store_delayed(tx: &mut Transaction<'_>, task: &NewTask) -> Result<Option<Task>, Fault> {
    if tx.kept_task(task.id)?.is_some() {
        return Ok(None);
    }
    enqueue::store_all(tx, slice::from_ref(task))?;
    Ok(tx.task(task.id)?)
}

impl Transaction<'_> {
    /// Returns a task, unless its retention is over.
    fn kept_task(&self, id: TaskId) -> Result<Option<Task>, Fault> {
        let task = self.task(id)?;
        Ok(task.filter(|task| !task.state.is_expired(task.at, self.expiry())))
    }

    /// Returns a task that is to be cancelled. If it is in the outbox, moves it into the store first, without its key, so that it
    /// replaces no other task.
    pub(super) fn task_to_cancel(&mut self, id: TaskId) -> Result<Option<Task>, Fault> {
        let task = self.kept_task(id)?;
        if task.is_some() {
            return Ok(task);
        }
        let mut sorted = self.take_from_outbox(id)?;
        for task in &mut sorted.tasks {
            task.key = None;
        }
        move_sorted(self, &sorted)?;
        Ok(self.task(id)?)
    }

    /// Moves a task into the store. Returns `false` if it is not in the outbox.
    pub(super) fn move_from_outbox(&mut self, id: TaskId) -> Result<bool, Fault> {
        let sorted = self.take_from_outbox(id)?;
        Ok(move_sorted(self, &sorted)?.moved > 0)
    }

    fn take_from_outbox(&mut self, id: TaskId) -> Result<SortedEntries, Fault> {
        if !has_outbox(self.db)? {
            return Ok(SortedEntries::default());
        }
        let row = {
            let mut statement = self.db.prepare_cached(FIND)?;
            let params = rusqlite::params![KNOWN, MAX_BYTES, id.to_bytes()];
            statement
                .query_row(params, OutboxTableRow::read)
                .optional()?
        };
        remove(self, row)
    }
}
