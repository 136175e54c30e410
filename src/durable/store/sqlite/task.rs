//! [`Task`]: the row of a task, and the steps from one state to the next.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::endpoint::EndpointId;
use super::error::{Fault, is_damaged_page};
use super::payload::{self, MAX_INLINE_BYTES};
use super::ready_queue;
use super::state::State;
use super::transaction::Transaction;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::run_time_of;
use crate::durable::store::kind::Kind;
use crate::durable::store::reason_numbers::reason_number;
use crate::durable::store::routes::ListId;
use crate::durable::store::{DeadReason, MAX_ERRORS, TaskState, is_dead_letter};

/// The columns of a task that the steps need.
pub(super) struct Task {
    pub(super) state: State,
    pub(super) list: Option<i64>,
    pub(super) sublist: i64,
    pub(super) position: Option<i64>,
    pub(super) at: Option<i64>,
    pub(super) cancel: bool,
    retention: i64,
    /// The endpoint that has stored the task.
    producer: EndpointId,
    /// `true` if the payload or the output may be in `throng_payload`.
    may_have_large_data: bool,
    pub(super) crashes: i64,
    pub(super) max_crashes: i64,
    pub(super) lost: i64,
    failures: i64,
    pub(super) parent: Option<TaskId>,
}

/// Returns the duration of a run as it is stored.
fn run_millis(took: Option<Duration>) -> Option<i64> {
    took.map(|took| i64::try_from(millis(took)).unwrap_or(i64::MAX))
}

impl Task {
    /// Returns `true` if the task, which has just crashed or was lost, is a dead letter from now on.
    pub(super) fn is_dead_letter(&self) -> bool {
        let count = |it: i64| u32::try_from(it).unwrap_or(u32::MAX);
        is_dead_letter(
            count(self.crashes),
            count(self.lost),
            count(self.max_crashes),
        )
    }
}

impl Transaction<'_> {
    pub(super) fn task(&self, id: TaskId) -> Result<Option<Task>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(
            "SELECT now, place, at, cancel, retention, endpoint,
                 payload IS NULL, crashes, max_crashes, lost, list, failures, sublist, parent
             FROM throng_now WHERE id = ?1",
        )?;
        let task = statement.query_row([id.to_bytes()], |row| {
            Ok(Task {
                state: State::of(row.get(0)?)?,
                position: row.get(1)?,
                at: row.get(2)?,
                cancel: row.get(3)?,
                retention: row.get(4)?,
                producer: row.get(5)?,
                may_have_large_data: row.get(6)?,
                crashes: row.get(7)?,
                max_crashes: row.get(8)?,
                lost: row.get(9)?,
                list: row.get(10)?,
                failures: row.get(11)?,
                sublist: row.get(12)?,
                parent: row.get::<_, Option<_>>(13)?.map(TaskId::from_bytes),
            })
        });
        task.optional()
    }

    /// Returns `true` if there is an active task with this id. A task that a claim holds is active, unless its row was lost.
    pub(super) fn is_active(&self, id: TaskId) -> Result<bool, rusqlite::Error> {
        let sql = "SELECT 1 FROM throng_task WHERE id = ?1 AND state = 0";
        Ok(self.number(sql, [id.to_bytes()])?.is_some())
    }

    // ===== Tasks that wait =====

    /// Appends a task to the ready queue.
    pub(super) fn push_back(&mut self, id: TaskId, from: State) -> Result<(), Fault> {
        let kind = self.kind(id)?;
        let list = self.routes.entrance(kind);
        let (sublist, is_awaited) = self.sublist_of_task(id, list, kind)?;
        let position = self.queue.next_tail_of(self.db, list, sublist)?;
        self.push(id, (list, sublist, position), is_awaited, from)
    }

    /// Makes a delayed task due.
    pub(super) fn run_now(&mut self, id: TaskId) -> Result<(), Fault> {
        let sql = "UPDATE throng_task SET ready_at = ?2 WHERE id = ?1";
        self.execute(sql, params![id.to_bytes(), self.now.wall])?;
        self.push_back(id, State::Delayed)
    }

    /// Puts running tasks before those that wait, in the order of their ids, and adds to their counts of lost claims
    /// and crashes.
    pub(super) fn push_front(
        &mut self,
        mut ids: Vec<TaskId>,
        lost: i64,
        crashes: i64,
    ) -> Result<(), Fault> {
        ids.sort_unstable();
        for id in ids.into_iter().rev() {
            self.execute(
                "UPDATE throng_task SET lost = lost + ?2, crashes = crashes + ?3 WHERE id = ?1",
                params![id.to_bytes(), lost, crashes],
            )?;
            let kind = self.kind(id)?;
            let list = self.routes.leaf(kind);
            let (sublist, is_awaited) = self.sublist_of_task(id, list, kind)?;
            let position = self.queue.next_head_of(self.db, list, sublist)?;
            self.push(id, (list, sublist, position), is_awaited, State::Running)?;
        }
        Ok(())
    }

    /// Puts a task at a position in a sublist of a list. `is_awaited` if a session is to be woken for it.
    fn push(
        &mut self,
        id: TaskId,
        (list, sublist, position): (ListId, i64, i64),
        is_awaited: bool,
        from: State,
    ) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task SET state = 0, list = ?2, sublist = ?3, place = ?4, at = NULL
             WHERE id = ?1",
            params![id.to_bytes(), list.number(), sublist, position],
        )?;
        ready_queue::insert(self.db, list, sublist, position, id)?;
        self.decrement(from);
        self.increment(State::Waiting);
        if is_awaited {
            self.notices.add_ready(list, 1);
        }
        Ok(())
    }

    /// Returns the sublist of a list in which a task waits, and `true` if a session is to be woken for the task.
    pub(super) fn sublist_of_task(
        &mut self,
        id: TaskId,
        list: ListId,
        kind: Kind,
    ) -> Result<(i64, bool), rusqlite::Error> {
        let group = self.group_of(id)?;
        self.sublist_for(list, kind, group.as_ref())
    }

    /// Removes a waiting task from its list.
    pub(super) fn remove_from_list(&mut self, task: &Task) -> Result<(), rusqlite::Error> {
        if let (Some(list), Some(position)) = (task.list, task.position) {
            ready_queue::remove(self.db, task.list, task.sublist, position)?;
            self.remove_sublist_if_empty(list, task.sublist)?;
        }
        Ok(())
    }

    fn kind(&self, id: TaskId) -> Result<Kind, rusqlite::Error> {
        let mut statement = self
            .db
            .prepare_cached("SELECT kind FROM throng_task WHERE id = ?1")?;
        statement.query_row([id.to_bytes()], |row| row.get(0).map(Kind::from_number))
    }

    /// Delays a running task until `due`.
    pub(super) fn delay(&mut self, id: TaskId, due: i64) -> Result<(), Fault> {
        self.wait_for_no_steps(id)?;
        self.execute(
            "UPDATE throng_task SET state = 1, at = ?2, ready_at = ?2 WHERE id = ?1",
            params![id.to_bytes(), due],
        )?;
        self.decrement(State::Running);
        self.increment(State::Delayed);
        Ok(())
    }

    // ===== Tasks that end =====

    /// Ends a running task with one statement. This applies to most tasks: those that have never failed and have no
    /// parent, whose payload and output are in their row, and whose result is retained. Returns `false` and does nothing for all others.
    pub(super) fn end_done_quickly(
        &mut self,
        id: TaskId,
        producer: EndpointId,
        output: &[u8],
    ) -> Result<bool, Fault> {
        if output.len() > MAX_INLINE_BYTES {
            return Ok(false);
        }
        let ended = self.execute(
            "UPDATE throng_task
             SET state = 3, at = ?2 + retention, payload = NULL, output = ?3, took = ?4
             WHERE id = ?1 AND retention > 0 AND payload IS NOT NULL AND failures = 0
                 AND parent IS NULL",
            params![
                id.to_bytes(),
                self.store_time(),
                output,
                run_millis(run_time_of(output))
            ],
        )?;
        if ended == 0 {
            return Ok(false);
        }
        self.remove_steps(id)?;
        self.meta.counts.done += 1;
        self.notices.ended.push((producer, id));
        self.decrement(State::Running);
        self.increment(State::Done);
        Ok(true)
    }

    pub(super) fn end_done(&mut self, id: TaskId, task: &Task, output: &[u8]) -> Result<(), Fault> {
        self.meta.counts.done += 1;
        let inline = (output.len() <= MAX_INLINE_BYTES).then_some(output);
        if self.end(id, task, State::Done, inline)? {
            if inline.is_none() {
                self.store_large_data(id, output)?;
            }
            self.store_run_time(id, run_time_of(output))?;
        }
        self.tell_parent(id, task, || TaskState::Done(output.to_vec()))
    }

    pub(super) fn end_cancelled(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        if task.state == State::Running {
            self.meta.counts.cancelled += 1;
        }
        self.end(id, task, State::Cancelled, None)?;
        self.tell_parent(id, task, || TaskState::Cancelled)
    }

    /// Makes a task a dead letter, which keeps its payload.
    pub(super) fn mark_dead(
        &mut self,
        id: TaskId,
        task: &Task,
        reason: DeadReason,
        error: &str,
    ) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task
             SET state = 4, at = ?2, reason = ?3, error = ?4, crashes = ?5,
                 failures = failures + ?6, cancel = 0
             WHERE id = ?1",
            params![
                id.to_bytes(),
                self.store_time(),
                reason_number(reason),
                error,
                task.crashes,
                reason.is_failure(),
            ],
        )?;
        self.decrement(task.state);
        self.increment(State::Dead);
        self.notices.ended.push((task.producer, id));
        let error = error.to_owned();
        self.tell_parent(id, task, || TaskState::Dead { reason, error })
    }

    /// Stores the duration of the last run of a task that has ended.
    pub(super) fn store_run_time(
        &self,
        id: TaskId,
        took: Option<Duration>,
    ) -> Result<(), rusqlite::Error> {
        if took.is_some() {
            let sql = "UPDATE throng_task SET took = ?2 WHERE id = ?1";
            self.execute(sql, params![id.to_bytes(), run_millis(took)])?;
        }
        Ok(())
    }

    /// Ends a task and removes its payload. Returns `true` if its row is retained.
    pub(super) fn end(
        &mut self,
        id: TaskId,
        task: &Task,
        end: State,
        output: Option<&[u8]>,
    ) -> Result<bool, Fault> {
        self.notices.ended.push((task.producer, id));
        if task.state == State::Waiting {
            self.remove_from_list(task)?;
        }
        if task.retention == 0 {
            self.remove(id, task)?;
            return Ok(false);
        }
        self.execute(
            "UPDATE throng_task SET state = ?2, at = ?3, payload = NULL, output = ?4
             WHERE id = ?1",
            params![
                id.to_bytes(),
                end.stored() as i64,
                self.store_time().saturating_add(task.retention),
                output,
            ],
        )?;
        self.remove_large_data(id, task)?;
        self.remove_errors(id, task.failures)?;
        self.remove_steps(id)?;
        self.decrement(task.state);
        self.increment(end);
        Ok(true)
    }

    /// Removes all rows of a task.
    pub(super) fn remove(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        self.execute("DELETE FROM throng_task WHERE id = ?1", [id.to_bytes()])?;
        self.remove_large_data(id, task)?;
        self.remove_errors(id, task.failures)?;
        self.remove_steps(id)?;
        self.decrement(task.state);
        Ok(())
    }

    // ===== Errors of attempts =====

    /// Counts the attempt that has failed, and stores its error. Only the last [`MAX_ERRORS`] errors of a task are stored.
    pub(super) fn store_error(
        &self,
        id: TaskId,
        task: &Task,
        error: &str,
        took: Option<Duration>,
    ) -> Result<(), Fault> {
        let attempt = task.failures + 1;
        self.execute(
            "UPDATE throng_task SET failures = ?2, failing_since = ifnull(failing_since, ?3)
             WHERE id = ?1",
            params![id.to_bytes(), attempt, self.now.wall],
        )?;
        self.execute(
            "INSERT OR REPLACE INTO throng_error (id, attempt, at, error, took)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                id.to_bytes(),
                attempt,
                self.now.wall,
                error,
                run_millis(took)
            ],
        )?;
        self.execute(
            "DELETE FROM throng_error WHERE id = ?1 AND attempt <= ?2",
            params![id.to_bytes(), attempt - MAX_ERRORS as i64],
        )?;
        Ok(())
    }

    /// Forgets that attempts of a task have failed, have crashed or were lost.
    pub(super) fn forget_failures(&self, id: TaskId, task: &Task) -> Result<(), rusqlite::Error> {
        if task.failures > 0 || task.crashes > 0 || task.lost > 0 {
            let sql =
                "UPDATE throng_task SET failures = 0, failing_since = NULL, crashes = 0, lost = 0
                 WHERE id = ?1";
            self.execute(sql, [id.to_bytes()])?;
        }
        self.remove_errors(id, task.failures)
    }

    fn remove_errors(&self, id: TaskId, failures: i64) -> Result<(), rusqlite::Error> {
        if failures > 0 {
            self.execute("DELETE FROM throng_error WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }

    // ===== Large payloads and outputs =====

    pub(super) fn store_large_data(&self, id: TaskId, bytes: &[u8]) -> Result<(), Fault> {
        self.execute(
            "INSERT OR REPLACE INTO throng_payload (id, bytes) VALUES (?1, ?2)",
            params![id.to_bytes(), bytes],
        )?;
        Ok(())
    }

    /// Reads the payload or the output of a task. The inner error describes the damage if it is lost.
    pub(super) fn large_data(
        &self,
        id: TaskId,
    ) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
        let bytes = match &self.probe {
            Some(probe) => payload::read_or_lost(probe, id),
            None => match payload::read(self.db, id) {
                Err(error) if is_damaged_page(&error) => Err(error),
                bytes => payload::or_lost(bytes),
            },
        };
        if let Ok(Err(description)) = &bytes {
            self.shared.damage.record_lost_data(id, description);
        }
        bytes
    }

    pub(super) fn remove_large_data(&self, id: TaskId, task: &Task) -> Result<(), rusqlite::Error> {
        // An unreadable page cannot be removed.
        let is_lost = match &self.probe {
            Some(probe) if task.may_have_large_data => payload::read_or_lost(probe, id)?.is_err(),
            _ => false,
        };
        if task.may_have_large_data && !is_lost {
            self.execute("DELETE FROM throng_payload WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }
}
