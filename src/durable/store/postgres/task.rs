//! [`Task`]: the row of a task, and the steps from one state to the next.

use std::collections::HashMap;
use std::time::Duration;

use super::deltas::field_of;
use super::error::Fault;
use super::state::State;
use super::text;
use super::transaction::Transaction;
use super::view::{View, task_id, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::run_time_of;
use crate::durable::queue::name::QueueName;
use crate::durable::store::reason_numbers::reason_number;
use crate::durable::store::{DeadReason, MAX_ERRORS, TaskState, is_dead_letter};

const LOAD: &str =
    "SELECT id, now, place, at, cancel, retention, crashes, max_crashes, lost, failures,
        parent, queue, group_name, priority, kind, name
    FROM throng.task_now WHERE id = ANY ($1) ORDER BY id";

/// Locks the rows of tasks, in the order of their ids, so that two transactions do not wait for one another.
const LOCK: &str = "SELECT 1 FROM throng.task WHERE id = ANY ($1) ORDER BY id FOR UPDATE";

const DELAY: &str = "UPDATE throng.task SET state = 1, at = $2, ready_at = $2 WHERE id = $1";

const END: &str = "UPDATE throng.task
    SET state = $2, at = $3, payload = NULL, output = $4, took = $5 WHERE id = $1";

const MARK_DEAD: &str = "UPDATE throng.task
    SET state = 4, at = $2, reason = $3, error = $4, cancel = false, took = $5,
        crashes = $6, lost = $7, failures = failures + $8
    WHERE id = $1";

const REMOVE: &str = "DELETE FROM throng.task WHERE id = $1";

const REMOVE_READY: &str =
    "DELETE FROM throng.ready WHERE kind = $1 AND group_name = $2 AND place = $3";

const FAIL: &str = "UPDATE throng.task
    SET failures = failures + 1, failing_since = coalesce(failing_since, $2) WHERE id = $1";

const INSERT_ERROR: &str = "INSERT INTO throng.error (id, attempt, at, error, took)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id, attempt) DO UPDATE
        SET at = excluded.at, error = excluded.error, took = excluded.took";

const REMOVE_OLD_ERRORS: &str = "DELETE FROM throng.error WHERE id = $1 AND attempt <= $2";

const REMOVE_ERRORS: &str = "DELETE FROM throng.error WHERE id = $1";

const FORGET_FAILURES: &str = "UPDATE throng.task
    SET failures = 0, failing_since = NULL, crashes = 0, lost = 0 WHERE id = $1";

/// The columns of a task that the steps need.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) state: State,
    pub(super) place: Option<i64>,
    pub(super) at: Option<i64>,
    pub(super) cancel: bool,
    pub(super) retention: i64,
    pub(super) crashes: i32,
    pub(super) lost: i32,
    pub(super) max_crashes: i64,
    pub(super) failures: i32,
    pub(super) parent: Option<TaskId>,
    pub(super) queue: QueueName,
    pub(super) group: Option<String>,
    pub(super) priority: i16,
    pub(super) kind: i64,
    pub(super) name: String,
}

/// Returns the duration of a run as it is stored.
fn run_millis(took: Option<Duration>) -> Option<i64> {
    took.map(|took| i64::try_from(millis(took)).unwrap_or(i64::MAX))
}

impl Task {
    /// Returns `true` if the task, which has just crashed or was lost, is a dead letter from now on.
    pub(super) fn is_dead_letter(&self) -> bool {
        is_dead_letter(
            self.crashes as u32,
            self.lost as u32,
            u32::try_from(self.max_crashes).unwrap_or(u32::MAX),
        )
    }
}

impl View {
    /// Reads tasks. Those that do not exist are missing.
    pub(super) async fn tasks(&self, ids: &[TaskId]) -> Result<HashMap<TaskId, Task>, Fault> {
        let rows = self.rows(LOAD, &[&uuids(ids)]).await?;
        let mut tasks = HashMap::with_capacity(rows.len());
        for row in rows {
            let (queue, group): (Option<String>, Option<String>) =
                (row.try_get("queue")?, row.try_get("group_name")?);
            let task = Task {
                state: State::of(row.try_get("now")?)?,
                place: row.try_get("place")?,
                at: row.try_get("at")?,
                cancel: row.try_get("cancel")?,
                retention: row.try_get("retention")?,
                crashes: row.try_get("crashes")?,
                lost: row.try_get("lost")?,
                max_crashes: row.try_get("max_crashes")?,
                failures: row.try_get("failures")?,
                parent: row.try_get::<_, Option<_>>("parent")?.map(task_id),
                queue: QueueName::from(queue.map(text::loaded)),
                group: group.map(text::loaded),
                priority: row.try_get("priority")?,
                kind: row.try_get("kind")?,
                name: text::loaded(row.try_get("name")?),
            };
            tasks.insert(task_id(row.try_get("id")?), task);
        }
        Ok(tasks)
    }

    pub(super) async fn task(&self, id: TaskId) -> Result<Option<Task>, Fault> {
        Ok(self.tasks(&[id]).await?.remove(&id))
    }
}

impl Transaction {
    /// Locks tasks, and reads them.
    pub(super) async fn locked_tasks(
        &self,
        ids: &[TaskId],
    ) -> Result<HashMap<TaskId, Task>, Fault> {
        self.rows(LOCK, &[&uuids(ids)]).await?;
        self.tasks(ids).await
    }

    /// Delays a running task until `due`.
    pub(super) async fn delay(&mut self, id: TaskId, due: i64) -> Result<(), Fault> {
        self.wait_for_no_steps(id).await?;
        self.execute(DELAY, &[&uuid(id), &due]).await?;
        self.moved(State::Running, State::Delayed, 1);
        Ok(())
    }

    // ===== Tasks that end =====

    pub(super) async fn end_done(
        &mut self,
        id: TaskId,
        task: &Task,
        output: &[u8],
    ) -> Result<(), Fault> {
        self.deltas.add(|it| &mut it.done, 1);
        let took = run_time_of(output);
        self.end(id, task, State::Done, Some(output), took).await?;
        self.tell_parent(id, task, TaskState::Done(output.to_vec()))
            .await
    }

    pub(super) async fn end_cancelled(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        if task.state == State::Running {
            self.deltas.add(|it| &mut it.cancelled, 1);
        }
        self.end(id, task, State::Cancelled, None, None).await?;
        self.tell_parent(id, task, TaskState::Cancelled).await
    }

    /// Makes a running task a dead letter. Its row gets the crashes and the losses of `task`.
    pub(super) async fn mark_dead(
        &mut self,
        id: TaskId,
        task: &Task,
        reason: DeadReason,
        error: &str,
        took: Option<Duration>,
    ) -> Result<(), Fault> {
        let at = self.store_time();
        let failures = i32::from(reason.is_failure());
        let stored = text::stored(error);
        self.execute(
            MARK_DEAD,
            &[
                &uuid(id),
                &at,
                &reason_number(reason),
                &stored,
                &run_millis(took),
                &task.crashes,
                &task.lost,
                &failures,
            ],
        )
        .await?;
        self.moved(task.state, State::Dead, 1);
        self.notices.ended.push(id);
        let error = error.to_owned();
        self.tell_parent(id, task, TaskState::Dead { reason, error })
            .await
    }

    /// Ends a task and removes its payload. Its row is removed if it is not retained.
    pub(super) async fn end(
        &mut self,
        id: TaskId,
        task: &Task,
        end: State,
        output: Option<&[u8]>,
        took: Option<Duration>,
    ) -> Result<(), Fault> {
        self.notices.ended.push(id);
        if task.state == State::Waiting {
            self.remove_from_line(task).await?;
        }
        if task.retention == 0 {
            return self.remove(id, task).await;
        }
        let until = self.store_time().saturating_add(task.retention);
        self.execute(
            END,
            &[&uuid(id), &end.stored(), &until, &output, &run_millis(took)],
        )
        .await?;
        self.remove_errors(id, task.failures).await?;
        self.remove_steps(id).await?;
        self.moved(task.state, end, 1);
        Ok(())
    }

    /// Removes all rows of a task, except that in its line.
    pub(super) async fn remove(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        self.execute(REMOVE, &[&uuid(id)]).await?;
        self.remove_errors(id, task.failures).await?;
        self.remove_steps(id).await?;
        self.deltas.add(field_of(task.state), -1);
        Ok(())
    }

    /// Removes a waiting task from its line.
    pub(super) async fn remove_from_line(&mut self, task: &Task) -> Result<(), Fault> {
        // Another transaction may claim the task at the same time.
        self.require_exclusive()?;
        let group = task.group.as_deref().map(text::stored).unwrap_or_default();
        self.execute(REMOVE_READY, &[&task.kind, &group, &task.place])
            .await?;
        if let Some(group) = &task.group {
            self.left_group(&task.queue, group);
        }
        Ok(())
    }

    // ===== Errors of attempts =====

    /// Counts the attempt that has failed, and stores its error. Only the last [`MAX_ERRORS`] errors of a task are stored.
    pub(super) async fn store_error(
        &self,
        id: TaskId,
        task: &Task,
        error: &str,
        took: Option<Duration>,
    ) -> Result<(), Fault> {
        let (id, attempt, now) = (uuid(id), task.failures + 1, self.now.wall);
        self.execute(FAIL, &[&id, &now]).await?;
        let error = text::stored(error);
        self.execute(
            INSERT_ERROR,
            &[&id, &attempt, &now, &error, &run_millis(took)],
        )
        .await?;
        self.execute(REMOVE_OLD_ERRORS, &[&id, &(attempt - MAX_ERRORS as i32)])
            .await?;
        Ok(())
    }

    /// Forgets that attempts of a task have failed, have crashed or were lost.
    pub(super) async fn forget_failures(&self, id: TaskId, task: &Task) -> Result<(), Fault> {
        if task.failures > 0 || task.crashes > 0 || task.lost > 0 {
            self.execute(FORGET_FAILURES, &[&uuid(id)]).await?;
        }
        self.remove_errors(id, task.failures).await
    }

    async fn remove_errors(&self, id: TaskId, failures: i32) -> Result<(), Fault> {
        if failures > 0 {
            self.execute(REMOVE_ERRORS, &[&uuid(id)]).await?;
        }
        Ok(())
    }
}
