//! Reads one task in detail.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::claimed_tasks::ClaimedTasks;
use super::error::Fault;
use super::keys::holder;
use super::list::{info, left};
use super::meta::read_expiry;
use super::payload;
use super::queries::{errors_of, run_time};
use super::reader::ReadConnection;
use super::state::State;
use super::time::Now;
use crate::durable::admin::detail::{KeyState, Runner};
use crate::durable::admin::excerpt::Excerpt;
use crate::durable::admin::page::MAX_LISTED_ERROR_BYTES;
use crate::durable::key::KeyHash;
use crate::durable::queue::Priority;
use crate::durable::store::kept::Expiry;
use crate::durable::store::reason_numbers::reason;
use crate::durable::store::{Beginning, DeadReason, FoundTask, SessionId, shortened};
use crate::durable::{Status, TaskId, TaskInfo};

const TASK: &str = "
    SELECT name, queue, group_name, failures, crashes, now, at, ready_at, reason, error, priority, key, cancel, payload, output,
        retention, took
    FROM throng_now WHERE id = ?1";

/// Selects the claims whose bytes contain those of an id. At most one of them holds the task; the others match by chance.
const CLAIM: &str = "
    SELECT epoch, held, session, until, suspect, process, claimed_at FROM throng_claim
    LEFT JOIN throng_session ON throng_session.id = throng_claim.session
    WHERE instr(held, ?1) > 0";

/// A task that is being read.
struct Reading<'a> {
    reader: &'a ReadConnection,
    db: &'a Connection,
    now: Now,
    expiry: Expiry,
    id: TaskId,
}

/// Returns a task, or `None` if there is no such task.
pub(super) fn find(reader: &ReadConnection, id: TaskId) -> Result<Option<FoundTask>, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let reading = Reading {
            reader,
            db,
            now,
            expiry: read_expiry(db, now)?,
            id,
        };
        let mut statement = db.prepare_cached(TASK)?;
        let found = statement.query_row([id.to_bytes()], |row| reading.task(row));
        Ok(found.optional()?.flatten())
    })
}

impl Reading<'_> {
    fn task(&self, row: &Row<'_>) -> Result<Option<FoundTask>, rusqlite::Error> {
        let state = State::of(row.get(5)?)?;
        let at: Option<i64> = row.get(6)?;
        if state.is_expired(at, self.expiry) {
            return Ok(None);
        }
        let mut found = FoundTask::new(self.info(state, at, row)?, self.now.wall.max(0) as u64);
        match state {
            State::Done => found.output = self.data(row, 14, &mut found.detail.damage)?,
            State::Cancelled => {}
            _ => self.add_unfinished(&mut found, row)?,
        }
        match state {
            State::Dead => found.detail.error = row.get(9)?,
            State::Running => self.add_run(&mut found, row)?,
            _ => {}
        }
        Ok(Some(found))
    }

    /// Returns the fields that a list contains.
    fn info(
        &self,
        state: State,
        at: Option<i64>,
        row: &Row<'_>,
    ) -> Result<TaskInfo, rusqlite::Error> {
        let at = at.unwrap_or_default();
        let mut info = info(status(state), self.id, row, 0)?;
        match state {
            State::Waiting => {
                let ready_at: Option<i64> = row.get(7)?;
                info.ready_for = ready_at.map(|at| self.now.since(at));
            }
            State::Delayed => info.due_in = Some(left(at, self.now.wall)),
            State::Running => {}
            State::Done | State::Cancelled => {
                (info.queue, info.group, info.failures, info.crashes) = (None, None, None, None);
                info.kept_for = Some(left(at, self.expiry.store_time));
                info.age = Some(self.expiry.age_of_end(at, row.get(15)?));
                info.took = run_time(row.get(16)?);
            }
            State::Dead => {
                info.kept_for = Some(self.expiry.left_of_dead(at));
                info.age = Some(self.expiry.age_of_dead(at));
                info.reason = Some(reason(row.get(8)?));
                info.error = Some(shortened(row.get(9)?, MAX_LISTED_ERROR_BYTES));
                info.took = run_time(row.get(16)?);
            }
        }
        Ok(info)
    }

    /// Adds the fields that are kept until a task has succeeded or was cancelled.
    fn add_unfinished(&self, found: &mut FoundTask, row: &Row<'_>) -> Result<(), rusqlite::Error> {
        let priority: i64 = row.get(10)?;
        let key: Option<[u8; 16]> = row.get(11)?;
        let detail = &mut found.detail;
        found.payload = self.data(row, 13, &mut detail.damage)?;
        let priority = usize::try_from(priority).ok();
        detail.priority = priority.and_then(|it| Priority::ALL.get(it).copied());
        detail.key = match key {
            Some(key) => Some(self.key_state(KeyHash(key))?),
            None => None,
        };
        detail.errors = errors_of(self.db, self.id, self.now.wall)?;
        detail.progress = self.progress()?;
        self.add_workflow(found)
    }

    /// Returns the payload or the output, from a column or from where it is stored separately.
    fn data(
        &self,
        row: &Row<'_>,
        column: usize,
        damage: &mut Option<String>,
    ) -> Result<Option<Beginning>, rusqlite::Error> {
        let data = match row.get(column)? {
            Some(inline) => Ok(inline),
            None => payload::read_or_lost(self.db, self.id)?,
        };
        // If a dead letter has this reason, its damage was recorded when it was found.
        let reason: Option<i64> = row.get(8)?;
        let is_known = reason.map(self::reason) == Some(DeadReason::Damaged);
        Ok(match data {
            Ok(bytes) => Some(Beginning::of(bytes)),
            Err(error) => {
                if !is_known {
                    let damage = &self.reader.shared.damage;
                    damage.record_lost_data(self.id, &error);
                }
                *damage = Some(error);
                None
            }
        })
    }

    fn key_state(&self, key: KeyHash) -> Result<KeyState, rusqlite::Error> {
        let holder = holder(self.db, key, self.now.wall, self.expiry)?;
        Ok(match holder == Some(self.id) {
            true => KeyState::Held,
            false => KeyState::Released,
        })
    }

    fn progress(&self) -> Result<Option<Excerpt>, rusqlite::Error> {
        let sql = "SELECT bytes FROM throng_progress WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let bytes = statement.query_row([self.id.to_bytes()], |row| row.get::<_, Vec<u8>>(0));
        let bytes = bytes.optional()?;
        Ok(bytes.map(|bytes| Excerpt::new(&bytes, bytes.len())))
    }

    /// Adds the parent, and what the task waits for. A file that only processes of an earlier version have written to has neither.
    fn add_workflow(&self, found: &mut FoundTask) -> Result<(), rusqlite::Error> {
        let has_steps =
            "SELECT 1 FROM pragma_table_info('throng_workflow') WHERE name = 'waits_for'";
        let mut statement = self.db.prepare_cached(has_steps)?;
        if !statement.exists([])? {
            return Ok(());
        }
        let sql = "SELECT parent FROM throng_task WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let parent: Option<[u8; 16]> =
            statement.query_row([self.id.to_bytes()], |row| row.get(0))?;
        found.detail.parent = parent.map(TaskId::from_bytes);
        if found.detail.task.status == Status::Delayed {
            found.waits_for = self.waits_for()?;
        }
        Ok(())
    }

    /// Returns the description of the steps until which the task is suspended, if it is.
    fn waits_for(&self) -> Result<Option<String>, rusqlite::Error> {
        let sql = "SELECT coalesce(waits_for, '') FROM throng_workflow
             WHERE id = ?1 AND until IS NOT NULL";
        let mut statement = self.db.prepare_cached(sql)?;
        let text = statement.query_row([self.id.to_bytes()], |row| row.get(0));
        text.optional()
    }

    /// Adds the fields of a running task.
    fn add_run(&self, found: &mut FoundTask, row: &Row<'_>) -> Result<(), rusqlite::Error> {
        found.detail.is_cancel_requested = row.get(12)?;
        let mut statement = self.db.prepare_cached(CLAIM)?;
        let mut rows = statement.query(params![self.id.to_bytes()])?;
        while let Some(claim) = rows.next()? {
            let held: ClaimedTasks = claim.get(1)?;
            if !held.contains(self.id) {
                continue;
            }
            let epoch: i64 = claim.get(0)?;
            let process: Option<i64> = claim.get(5)?;
            found.detail.task.fencing_token = Some(epoch as u64);
            found.detail.task.running_for = Some(self.now.since(claim.get(6)?));
            found.detail.lease_left = Some(left(claim.get(3)?, self.now.boot));
            found.detail.runner = Some(Runner {
                session: claim.get::<_, i64>(2)? as SessionId,
                process: process.map(|id| format!("process {id}")),
                is_suspect: claim.get::<_, i64>(4)? != 0,
            });
        }
        Ok(())
    }
}

fn status(state: State) -> Status {
    match state {
        State::Waiting => Status::Waiting,
        State::Delayed => Status::Delayed,
        State::Running => Status::Running,
        State::Done => Status::Done,
        State::Dead => Status::Dead,
        State::Cancelled => Status::Cancelled,
    }
}
