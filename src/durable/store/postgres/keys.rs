//! Keys: which task holds a key, and what becomes of another task with that key.
//!
//! The state and the columns `key`, `key_since` and `key_until` of a task determine whether it holds its key. There is no other record,
//! so a task that ends needs no further step to free its key.

use uuid::Uuid;

use super::enqueue::EARLIEST_DUE;
use super::error::Fault;
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use super::view::{View, task_id, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::key::{Conflict, KeyHash, NewKey};
use crate::durable::queue::Priority;
use crate::durable::store::{KeyConflict, NewTask};

/// Selects the task that holds a key because it has not ended. The conditions are those of the index `task_key`.
pub(super) const HOLDER: &str = "SELECT id FROM throng.task WHERE key = $1 AND state < 2 LIMIT 1";

/// Selects the task that holds a key because its window is not over. A task whose retention is over does not count. The parameters are
/// the key, the time since 1970, the store time, and the time of death up to which dead letters have expired.
pub(super) const HOLDER_IN_WINDOW: &str = "SELECT id FROM throng.task
    WHERE key = $1 AND key_until > $2
        AND (state < 2 OR at > CASE state WHEN 4 THEN $4::bigint ELSE $3::bigint END)
    ORDER BY key_until DESC LIMIT 1";

const KEY_OF: &str = "SELECT key FROM throng.task WHERE id = $1 AND key IS NOT NULL";

const HOLD: &str = "UPDATE throng.task SET key = $2, key_since = $3, key_until = $4 WHERE id = $1";

const FREE: &str = "UPDATE throng.task SET key = NULL, key_since = NULL WHERE id = ANY ($1)";

/// Selects the time at which a task was stored, if its payload can be replaced.
const REPLACEABLE_SINCE: &str = "SELECT key_since FROM throng.task
    WHERE id = $1 AND key_since IS NOT NULL AND state < 2";

const REPLACE: &str = "UPDATE throng.task SET payload = $2, kind = $3 WHERE id = $1";

const DELAY: &str = "UPDATE throng.task SET state = 1, at = $2, ready_at = $2 WHERE id = $1";

/// Enters a task in the line of its kind, at the place that it has.
const ENTER_LINE: &str = "WITH own AS MATERIALIZED (
        SELECT id, kind, queue, name, group_name, priority, place FROM throng.task WHERE id = $1
    ), lined AS (
        INSERT INTO throng.ready (kind, group_name, place, id)
        SELECT kind, coalesce(group_name, ''), place, id FROM own
    )
    SELECT kind, queue, name, group_name, priority FROM own";

impl View {
    /// Returns `true` unless another task holds the key of a dead letter.
    pub(super) async fn key_allows_replay(&self, id: TaskId) -> Result<bool, Fault> {
        let key: Option<Vec<u8>> = self.value(KEY_OF, &[&uuid(id)]).await?;
        let holder = match key {
            Some(key) => self.holder(&key).await?,
            None => None,
        };
        Ok(holder.is_none_or(|holder| holder == id))
    }

    /// Returns the task that holds a key. If the clock was put back, an ended task in its window and an active one may both hold it. Then
    /// the active one counts.
    pub(super) async fn holder(&self, key: &[u8]) -> Result<Option<TaskId>, Fault> {
        let mut holder: Option<Uuid> = self.value(HOLDER, &[&key]).await?;
        if holder.is_none() {
            let (now, expiry) = (self.now.wall, self.expiry());
            let (store_time, dead_until) = (expiry.store_time, expiry.dead_until);
            holder = self
                .value(HOLDER_IN_WINDOW, &[&key, &now, &store_time, &dead_until])
                .await?;
        }
        Ok(holder.map(task_id))
    }
}

impl Transaction {
    /// Gives a task that was just stored its key.
    pub(super) async fn hold_key(&self, id: TaskId, key: &NewKey) -> Result<(), Fault> {
        let window = millis(key.window) as i64;
        let until = (window != 0).then(|| self.now.wall.saturating_add(window));
        let since = key.is_until_started.then_some(self.now.wall);
        let KeyHash(hash) = key.hash;
        self.execute(HOLD, &[&uuid(id), &&hash[..], &since, &until])
            .await?;
        Ok(())
    }

    /// Frees the keys of tasks that held them only until a worker claimed them.
    pub(super) async fn free_keys(&self, ids: &[TaskId]) -> Result<(), Fault> {
        self.execute(FREE, &[&uuids(ids)]).await?;
        Ok(())
    }

    /// Resolves the conflict between a new task and the task that holds its key, if there is one.
    pub(super) async fn resolve_conflict(
        &mut self,
        position: usize,
        new: &NewTask,
    ) -> Result<Option<KeyConflict>, Fault> {
        let Some(key) = new.key else {
            return Ok(None);
        };
        // If the task itself holds the key, an earlier request, whose answer was lost, has stored it.
        let holder = self.holder(&key.hash.0).await?;
        let Some(holder) = holder.filter(|&holder| holder != new.id) else {
            return Ok(None);
        };
        let resolution = match key.conflict {
            Conflict::Replace if !self.replace(holder, new, &key).await? => Conflict::Join,
            resolution => resolution,
        };
        Ok(Some(KeyConflict {
            position,
            holder,
            resolution,
        }))
    }

    // ===== Replacements =====

    /// Replaces the payload and the delay of a task. Does nothing and returns `false` if that is not possible.
    async fn replace(&mut self, id: TaskId, new: &NewTask, key: &NewKey) -> Result<bool, Fault> {
        let since: Option<i64> = self.value(REPLACEABLE_SINCE, &[&uuid(id)]).await?;
        let (Some(since), Some(task)) = (since, self.task(id).await?) else {
            return Ok(false);
        };
        let due = self.now.wall.saturating_add(millis(new.delay) as i64);
        let latest = key.latest.map_or(i64::MAX, |latest| millis(latest) as i64);
        let due = due.min(since.saturating_add(latest));
        // The new payload may have another version, or be in another envelope.
        let priority = usize::try_from(task.priority).ok();
        let priority = priority.and_then(|it| Priority::ALL.get(it).copied());
        let kind = new
            .type_kind()
            .placed(&new.queue, priority.unwrap_or_default());
        let kind = kind.number();
        self.execute(REPLACE, &[&uuid(id), &&*new.payload, &kind])
            .await?;
        self.reschedule(id, &task, due, kind != task.kind).await?;
        Ok(true)
    }

    /// Makes a task that waits or is delayed due at `due`. A task that waits and stays due keeps its place, also if it `is_other_kind` from
    /// now on.
    async fn reschedule(
        &mut self,
        id: TaskId,
        task: &Task,
        due: i64,
        is_other_kind: bool,
    ) -> Result<(), Fault> {
        let is_due = due <= self.now.wall;
        match task.state {
            State::Delayed if is_due => self.push_back(&[id], State::Delayed, Some(due)).await,
            State::Delayed => self.delay_until(id, due).await,
            _ if is_due && is_other_kind => {
                self.remove_from_line(task).await?;
                match self.row(ENTER_LINE, &[&uuid(id)]).await? {
                    Some(row) => self.add_ready_row(&row),
                    None => Ok(()),
                }
            }
            _ if is_due => Ok(()),
            _ => {
                self.remove_from_line(task).await?;
                self.moved(State::Waiting, State::Delayed, 1);
                self.delay_until(id, due).await
            }
        }
    }

    async fn delay_until(&mut self, id: TaskId, due: i64) -> Result<(), Fault> {
        let earliest: Option<i64> = self.value(EARLIEST_DUE, &[]).await?;
        self.notices.needs_any |= earliest.is_none_or(|earliest| due < earliest);
        self.execute(DELAY, &[&uuid(id), &due]).await?;
        Ok(())
    }
}
