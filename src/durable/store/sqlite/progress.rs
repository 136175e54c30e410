//! The progress of tasks, in the table `throng_progress`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Fault;
use super::outbox;
use super::reader::ReadConnection;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, Progress, ProgressReport, ProgressState};

/// Stores the progress of running tasks. Returns the tasks that are not held under the epochs of their reports.
pub(super) fn report(
    tx: &mut Transaction<'_>,
    reports: &[ProgressReport],
) -> Result<Vec<TaskId>, Fault> {
    let (mut claims, mut refused) = (BTreeMap::new(), Vec::new());
    for ProgressReport { id, progress } in reports {
        let epoch = progress.epoch as i64;
        if let std::collections::btree_map::Entry::Vacant(claim) = claims.entry(epoch) {
            claim.insert(tx.claimed_tasks(epoch)?);
        }
        if !claims[&epoch].contains(*id) || !tx.store_progress(*id, progress)? {
            refused.push(*id);
        }
    }
    Ok(refused)
}

/// Returns the progress of tasks, in the order of the ids.
pub(super) fn read(reader: &ReadConnection, ids: &[TaskId]) -> Result<Vec<ProgressState>, Fault> {
    reader.snapshot(|db| {
        let states = ids.iter().map(|&id| state(db, id));
        Ok(states.collect::<Result<_, _>>()?)
    })
}

fn state(db: &Connection, id: TaskId) -> Result<ProgressState, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT epoch, number, bytes FROM throng_task AS task
         LEFT JOIN throng_progress ON throng_progress.id = task.id
         WHERE task.id = ?1 AND state < 2",
    )?;
    let found = statement.query_row([id.to_bytes()], |row| {
        let Some(epoch) = row.get::<_, Option<i64>>(0)? else {
            return Ok(ProgressState::Alive(None));
        };
        Ok(ProgressState::Alive(Some(Progress {
            epoch: epoch as Epoch,
            number: row.get::<_, i64>(1)? as u64,
            bytes: row.get(2)?,
        })))
    });
    match found.optional()? {
        Some(state) => Ok(state),
        None if outbox::contains(db, id)? => Ok(ProgressState::Alive(None)),
        None => Ok(ProgressState::Ended),
    }
}

impl Transaction<'_> {
    /// Stores the progress of a task that a claim holds, unless a later report of the same run is stored. Returns `false` if the task
    /// has no row.
    fn store_progress(&self, id: TaskId, progress: &Progress) -> Result<bool, rusqlite::Error> {
        if !self.is_active(id)? {
            return Ok(false);
        }
        // The claim holds the task, so another epoch is that of an earlier run.
        self.execute(
            "INSERT INTO throng_progress (id, epoch, number, bytes) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (id) DO UPDATE
                 SET epoch = excluded.epoch, number = excluded.number, bytes = excluded.bytes
                 WHERE epoch <> excluded.epoch OR number < excluded.number",
            params![
                id.to_bytes(),
                progress.epoch as i64,
                progress.number as i64,
                progress.bytes
            ],
        )?;
        Ok(true)
    }

    /// Removes the progress of the tasks that this transaction has ended. If no task has progress, this reads one page of the file.
    pub(super) fn remove_progress_of_ended(&self) -> Result<(), rusqlite::Error> {
        let is_any = "SELECT 1 FROM throng_progress LIMIT 1";
        if self.notices.ended.is_empty() || self.number(is_any, [])?.is_none() {
            return Ok(());
        }
        for (_, id) in &self.notices.ended {
            self.execute("DELETE FROM throng_progress WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }
}
