//! Claims: reads and writes the tasks that they hold.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;

use super::claimed_tasks::ClaimedTasks;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::queue::name::QueueName;

impl Transaction<'_> {
    /// Returns the tasks that a claim still holds: none if there is no such claim.
    pub(super) fn claimed_tasks(&self, epoch: i64) -> Result<ClaimedTasks, rusqlite::Error> {
        Ok(self.claimed_tasks_and_queue(epoch)?.0)
    }

    /// The same, and records that some of them stop running, so that others of their queue may start. Also returns `true` if they are
    /// in a named queue, so that they may have [groups](Self::stop_in_group).
    pub(super) fn stop_claimed_tasks(
        &mut self,
        epoch: i64,
    ) -> Result<(ClaimedTasks, bool), rusqlite::Error> {
        let (tasks, queue) = self.claimed_tasks_and_queue(epoch)?;
        let is_queued = queue.is_some();
        if let Some(queue) = queue {
            self.notices.freed.insert(QueueName::from(Some(queue)));
        }
        Ok((tasks, is_queued))
    }

    fn claimed_tasks_and_queue(
        &self,
        epoch: i64,
    ) -> Result<(ClaimedTasks, Option<String>), rusqlite::Error> {
        let sql = "SELECT held, queue FROM throng_claim WHERE epoch = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let claim = statement.query_row([epoch], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(claim.optional()?.unwrap_or_default())
    }

    /// Stores the tasks that a claim still holds, as a session reports. A claim that holds none is removed.
    pub(super) fn update_claim(
        &self,
        session: i64,
        epoch: i64,
        tasks: &ClaimedTasks,
    ) -> Result<(), rusqlite::Error> {
        match tasks.is_empty() {
            true => self.execute("DELETE FROM throng_claim WHERE epoch = ?1", [epoch])?,
            false => {
                let sql = "UPDATE throng_claim
                     SET held = ?2, delivered = max(delivered, session = ?3) WHERE epoch = ?1";
                self.execute(sql, rusqlite::params![epoch, tasks, session])?
            }
        };
        Ok(())
    }

    /// Returns the epochs of the claims that hold these tasks.
    pub(super) fn claims_of(
        &self,
        ids: &BTreeSet<TaskId>,
    ) -> Result<Vec<(TaskId, i64)>, rusqlite::Error> {
        let sql = "SELECT epoch, held FROM throng_claim";
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut claims = Vec::new();
        while let Some(row) = rows.next()? {
            let epoch: i64 = row.get(0)?;
            let tasks: ClaimedTasks = row.get(1)?;
            let found = tasks.ids().filter(|id| ids.contains(id));
            claims.extend(found.map(|id| (id, epoch)));
        }
        Ok(claims)
    }
}
