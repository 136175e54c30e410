//! Keys: which task holds a key, and what becomes of another task with that key.
//!
//! The state and the columns `key`, `key_since` and `key_until` of a task determine whether it holds its key. There is no other record,
//! so a task that ends needs no further step to free its key.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Fault;
use super::next_check::EARLIEST_DUE;
use super::payload::MAX_INLINE_BYTES;
use super::ready_queue::{self, NO_GROUP};
use super::state::State;
use super::task::Task;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::key::{Conflict, KeyHash, NewKey};
use crate::durable::queue::Priority;
use crate::durable::store::kept::Expiry;
use crate::durable::store::kind::Kind;
use crate::durable::store::{KeyConflict, NewTask};

/// Selects the task that holds a key because it has not ended. The conditions are those of the index `throng_task_key`.
pub(super) const HOLDER: &str = "SELECT id FROM throng_task WHERE key = ?1 AND state < 2 LIMIT 1";

/// Selects the task that holds a key because its window is not over. A task whose retention is over does not count. The parameters are
/// the key, the time since 1970, the store time, and the time of death up to which dead letters have expired.
pub(super) const HOLDER_IN_WINDOW: &str = "SELECT id FROM throng_task
     WHERE key = ?1 AND key_until > ?2 AND (state < 2 OR at > iif(state = 4, ?4, ?3))
     ORDER BY key_until DESC LIMIT 1";

/// Returns the task that holds a key at a time since 1970.
pub(super) fn holder(
    db: &Connection,
    key: KeyHash,
    now: i64,
    expiry: Expiry,
) -> Result<Option<TaskId>, rusqlite::Error> {
    let id = |row: &rusqlite::Row<'_>| row.get(0).map(TaskId::from_bytes);
    let mut active = db.prepare_cached(HOLDER)?;
    let active = active.query_row([key.0], id).optional()?;
    if active.is_some() {
        return Ok(active);
    }
    let mut ended = db.prepare_cached(HOLDER_IN_WINDOW)?;
    let params = params![key.0, now, expiry.store_time, expiry.dead_until];
    ended.query_row(params, id).optional()
}

impl Transaction<'_> {
    /// Gives a task that was just stored its key.
    pub(super) fn hold_key(&self, id: TaskId, key: &NewKey) -> Result<(), rusqlite::Error> {
        let window = millis(key.window) as i64;
        let until = (window != 0).then(|| self.now.wall.saturating_add(window));
        let since = key.is_until_started.then_some(self.now.wall);
        let sql = "UPDATE throng_task SET key = ?2, key_since = ?3, key_until = ?4 WHERE id = ?1";
        self.execute(sql, params![id.to_bytes(), key.hash.0, since, until])
            .map(drop)
    }

    /// Frees the key of a task that held it only until a worker claimed the task.
    pub(super) fn free_key(&self, id: TaskId) -> Result<(), rusqlite::Error> {
        let sql = "UPDATE throng_task SET key = NULL, key_since = NULL WHERE id = ?1";
        self.execute(sql, [id.to_bytes()]).map(drop)
    }

    /// Returns `true` unless another task holds the key of a dead letter.
    pub(super) fn key_allows_replay(&self, id: TaskId) -> Result<bool, rusqlite::Error> {
        let sql = "SELECT key FROM throng_task WHERE id = ?1 AND key IS NOT NULL";
        let mut statement = self.db.prepare_cached(sql)?;
        let key = statement.query_row([id.to_bytes()], |row| row.get(0).map(KeyHash));
        let holder = match key.optional()? {
            Some(key) => self.holder(key)?,
            None => None,
        };
        Ok(holder.is_none_or(|holder| holder == id))
    }

    /// Returns the task that holds a key.
    fn holder(&self, key: KeyHash) -> Result<Option<TaskId>, rusqlite::Error> {
        holder(self.db, key, self.now.wall, self.expiry())
    }

    /// Resolves the conflict between a new task and the task that holds its key, if there is one.
    pub(super) fn resolve_conflict(
        &mut self,
        position: usize,
        new: &NewTask,
    ) -> Result<Option<KeyConflict>, Fault> {
        let Some(key) = new.key else {
            return Ok(None);
        };
        // If the task itself holds the key, an earlier request, whose answer was lost, has stored it.
        let Some(holder) = self.holder(key.hash)?.filter(|&holder| holder != new.id) else {
            return Ok(None);
        };
        let resolution = match key.conflict {
            Conflict::Replace if !self.replace(holder, new, &key)? => Conflict::Join,
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
    fn replace(&mut self, id: TaskId, new: &NewTask, key: &NewKey) -> Result<bool, Fault> {
        let (Some((since, priority)), Some(task)) = (self.replaceable(id)?, self.task(id)?) else {
            return Ok(false);
        };
        let due = self.now.wall.saturating_add(millis(new.delay) as i64);
        let latest = key.latest.map_or(i64::MAX, |latest| millis(latest) as i64);
        let due = due.min(since.saturating_add(latest));
        let kind = new.type_kind().placed(&new.queue, priority);
        self.replace_payload(id, &task, new)?;
        let is_other_kind = self.replace_kind(id, kind)?;
        self.reschedule(id, &task, due, is_other_kind.then_some(kind))?;
        Ok(true)
    }

    /// Returns the time at which a task was stored, and its priority, if its payload can be replaced.
    fn replaceable(&self, id: TaskId) -> Result<Option<(i64, Priority)>, rusqlite::Error> {
        let sql = "SELECT key_since, priority FROM throng_task
             WHERE id = ?1 AND key_since IS NOT NULL AND state < 2";
        let mut statement = self.db.prepare_cached(sql)?;
        let found = statement.query_row([id.to_bytes()], |row| {
            let priority: i64 = row.get(1)?;
            let priority = usize::try_from(priority).ok();
            let priority = priority.and_then(|it| Priority::ALL.get(it).copied());
            Ok((row.get(0)?, priority.unwrap_or_default()))
        });
        found.optional()
    }

    fn replace_payload(&self, id: TaskId, task: &Task, new: &NewTask) -> Result<(), Fault> {
        let inline = (new.payload.len() <= MAX_INLINE_BYTES).then_some(&*new.payload);
        self.remove_large_data(id, task)?;
        let sql = "UPDATE throng_task SET payload = ?2 WHERE id = ?1";
        self.execute(sql, params![id.to_bytes(), inline])?;
        match inline {
            None => self.store_large_data(id, &new.payload),
            Some(_) => Ok(()),
        }
    }

    /// Changes the kind of a task, since the new payload may have another version, or be in another envelope. Returns `true` if the kind
    /// has changed.
    fn replace_kind(&self, id: TaskId, kind: Kind) -> Result<bool, rusqlite::Error> {
        let sql = "UPDATE throng_task SET kind = ?2 WHERE id = ?1 AND kind <> ?2";
        let changed = self.execute(sql, params![id.to_bytes(), kind.number()])?;
        Ok(changed != 0)
    }

    /// Makes a task that waits or is delayed due at `due`. A task that waits and stays due keeps its place. If its kind has changed,
    /// to `other`, it moves to the list of that kind.
    fn reschedule(
        &mut self,
        id: TaskId,
        task: &Task,
        due: i64,
        other: Option<Kind>,
    ) -> Result<(), Fault> {
        let is_due = due <= self.now.wall;
        match (task.state, task.position) {
            (State::Delayed, _) if is_due => {
                let sql = "UPDATE throng_task SET ready_at = ?2 WHERE id = ?1";
                self.execute(sql, params![id.to_bytes(), due])?;
                self.push_back(id, State::Delayed)
            }
            (State::Delayed, _) => Ok(self.delay_until(id, due)?),
            (_, Some(position)) if is_due => match other {
                Some(kind) => self.move_to_list(id, task, position, kind),
                None => Ok(()),
            },
            (_, position) => {
                if position.is_some() {
                    self.take_out_of_list(task)?;
                }
                self.decrement(State::Waiting);
                self.increment(State::Delayed);
                Ok(self.delay_until(id, due)?)
            }
        }
    }

    /// Removes a waiting task from its list. Its sublist stays until the end of the request.
    pub(super) fn take_out_of_list(&mut self, task: &Task) -> Result<(), rusqlite::Error> {
        if let (Some(list), Some(position)) = (task.list, task.position) {
            ready_queue::remove(self.db, task.list, task.sublist, position)?;
            self.emptied.push((list, task.sublist));
        }
        Ok(())
    }

    /// Moves a waiting task to the list of another kind, at the same place. In another sublist, it goes to the end.
    fn move_to_list(
        &mut self,
        id: TaskId,
        task: &Task,
        position: i64,
        kind: Kind,
    ) -> Result<(), Fault> {
        let list = self.routes.entrance(kind);
        self.take_out_of_list(task)?;
        let (sublist, is_awaited) = self.sublist_of_task(id, list, kind)?;
        let stays = (Some(list.number()), sublist) == (task.list, task.sublist);
        let position = match sublist == NO_GROUP || stays {
            true => position,
            false => self.queue.next_tail_of(self.db, list, sublist)?,
        };
        ready_queue::insert(self.db, list, sublist, position, id)?;
        let sql = "UPDATE throng_task SET list = ?2, sublist = ?3, place = ?4 WHERE id = ?1";
        self.execute(
            sql,
            params![id.to_bytes(), list.number(), sublist, position],
        )?;
        if is_awaited {
            self.notices.add_ready(list, 1);
        }
        Ok(())
    }

    fn delay_until(&mut self, id: TaskId, due: i64) -> Result<(), rusqlite::Error> {
        let earliest = self.number(EARLIEST_DUE, [])?;
        self.notices.has_earlier_task |= earliest.is_none_or(|earliest| due < earliest);
        let sql = "UPDATE throng_task SET state = 1, at = ?2, ready_at = ?2 WHERE id = ?1";
        self.execute(sql, params![id.to_bytes(), due]).map(drop)
    }
}
