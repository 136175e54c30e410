//! Lists of tasks, a page at a time. A page begins after the last task of the previous page, which an index finds.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::claimed_tasks::ClaimedTasks;
use super::error::Fault;
use super::meta::read_expiry;
use super::queries::run_time;
use super::reader::ReadConnection;
use super::state::StoredState;
use super::time::Now;
use crate::durable::admin::page::MAX_LISTED_ERROR_BYTES;
use crate::durable::store::kept::Expiry;
use crate::durable::store::reason_numbers::reason;
use crate::durable::store::{ListTasks, shortened};
use crate::durable::{Cursor, Status, TaskId, TaskInfo, TaskPage};

pub(super) const WAITING: &str = "
    SELECT ready.list, ready.sublist, ready.place, ready.id, name, queue, group_name, failures, crashes, ready_at
    FROM throng_ready AS ready CROSS JOIN throng_task AS task ON task.id = ready.id
    WHERE (ready.list, ready.sublist, ready.place) < (?1, ?2, ?3)
    ORDER BY ready.list DESC, ready.sublist DESC, ready.place DESC";

pub(super) const RUNNING: &str =
    "SELECT epoch, held, claimed_at FROM throng_claim WHERE epoch >= ?1 ORDER BY epoch";

pub(super) const RUNNING_IN_SESSION: &str = "
    SELECT epoch, held, claimed_at FROM throng_claim WHERE epoch >= ?1 AND session = ?2 ORDER BY epoch";

/// There is only one lower bound: of two, SQLite would look up the simpler one in the index, and read all rows up to the other.
pub(super) const BY_TIME: &str = "
    SELECT at, id, name, queue, group_name, failures, crashes, retention, took FROM throng_task
    WHERE state = ?1 AND at IS NOT NULL AND (at, id) > (?2, ?3) ORDER BY at, id";

pub(super) const DEAD: &str = "
    SELECT at, id, name, queue, group_name, failures, crashes, reason, error, took FROM throng_task
    WHERE state = 4 AND at > ?1 AND (at, id) < (?2, ?3) ORDER BY at DESC, id DESC";

/// The position of a task: the columns of an index, which are three numbers, or a number and an id.
type Position = [u8; 24];

/// Returns a page of tasks, or `None` if the position is not valid in this store.
pub(super) fn list(
    reader: &ReadConnection,
    request: &ListTasks,
) -> Result<Option<TaskPage>, Fault> {
    let after = request.after.as_deref().map(Position::try_from);
    let Ok(after) = after.transpose() else {
        return Ok(None);
    };
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let mut reading = Reading {
            db,
            now: now.wall,
            expiry: read_expiry(db, now)?,
            request,
            page: TaskPage::at(now.wall.max(0) as u64),
        };
        let is_full = match request.filter.status {
            Status::Waiting => reading.waiting(after)?,
            Status::Running => reading.running(after)?,
            Status::Dead => reading.dead(after)?,
            Status::Delayed => reading.by_time(StoredState::Delayed, i64::MIN, after)?,
            Status::Done => reading.by_time(StoredState::Done, reading.expiry.store_time, after)?,
            Status::Cancelled => {
                reading.by_time(StoredState::Cancelled, reading.expiry.store_time, after)?
            }
            Status::Absent => false,
        };
        let TaskPage { next, .. } = &mut reading.page;
        *next = next.take().filter(|_| is_full);
        Ok(Some(reading.page))
    })
}

/// A page that is being read. The methods that add tasks return `true` if the page is full and more tasks follow.
struct Reading<'a> {
    db: &'a Connection,
    now: i64,
    expiry: Expiry,
    request: &'a ListTasks,
    page: TaskPage,
}

impl Reading<'_> {
    /// Adds waiting tasks from the end of the index on. Their positions change only if they move to other lists.
    fn waiting(&mut self, after: Option<Position>) -> Result<bool, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(WAITING)?;
        let after = after.map_or([i64::MAX; 3], |after| numbers_in(&after));
        let mut rows = statement.query(after)?;
        while let Some(row) = rows.next()? {
            if self.is_full() {
                return Ok(true);
            }
            let position = position_of([row.get(0)?, row.get(1)?, row.get(2)?]);
            let id = TaskId::from_bytes(row.get(3)?);
            let ready_at: Option<i64> = row.get(9)?;
            let info = TaskInfo {
                ready_for: ready_at.map(|at| left(self.now, at)),
                ..info(Status::Waiting, id, row, 4)?
            };
            self.examine(position, info);
        }
        Ok(false)
    }

    /// Adds running tasks, claim by claim.
    fn running(&mut self, after: Option<Position>) -> Result<bool, rusqlite::Error> {
        let after = after.map(|after| number_and_id_in(&after));
        let first = after.map_or(0, |(epoch, _)| epoch);
        let (sql, values) = match self.request.filter.session {
            None => (RUNNING, vec![first]),
            Some(session) => (RUNNING_IN_SESSION, vec![first, session as i64]),
        };
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let (epoch, held): (_, ClaimedTasks) = (row.get(0)?, row.get(1)?);
            let running_for = left(self.now, row.get(2)?);
            for id in held
                .ids()
                .filter(|&id| after.is_none_or(|after| (epoch, id) > after))
            {
                if self.is_full() {
                    return Ok(true);
                }
                if let Some(info) = self.running_task(epoch, id)? {
                    let running_for = Some(running_for);
                    let info = TaskInfo {
                        running_for,
                        ..info
                    };
                    self.examine(position_with(epoch, id), info);
                }
            }
        }
        Ok(false)
    }

    fn running_task(&self, epoch: i64, id: TaskId) -> Result<Option<TaskInfo>, rusqlite::Error> {
        let sql =
            "SELECT name, queue, group_name, failures, crashes FROM throng_task WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let found = statement.query_row([id.to_bytes()], |row| {
            Ok(TaskInfo {
                fencing_token: Some(epoch as u64),
                ..info(Status::Running, id, row, 0)?
            })
        });
        found.optional()
    }

    /// Adds the tasks of a state whose times are later than `since`, in the order of their times.
    fn by_time(
        &mut self,
        state: StoredState,
        since: i64,
        after: Option<Position>,
    ) -> Result<bool, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(BY_TIME)?;
        let before_first = (since, TaskId::from_bytes([255; 16]));
        let (at, id) = after.map_or(before_first, |it| number_and_id_in(&it).max(before_first));
        let mut rows = statement.query(params![state as i64, at, id.to_bytes()])?;
        while let Some(row) = rows.next()? {
            if self.is_full() {
                return Ok(true);
            }
            let (at, id) = (row.get(0)?, TaskId::from_bytes(row.get(1)?));
            let info = match state {
                StoredState::Delayed => TaskInfo {
                    due_in: Some(left(at, self.now)),
                    ..info(Status::Delayed, id, row, 2)?
                },
                _ => self.ended(id, at, row)?,
            };
            self.examine(position_with(at, id), info);
        }
        Ok(false)
    }

    /// Returns a task that has succeeded or was cancelled.
    fn ended(&self, id: TaskId, at: i64, row: &Row<'_>) -> Result<TaskInfo, rusqlite::Error> {
        Ok(TaskInfo {
            queue: None,
            group: None,
            failures: None,
            crashes: None,
            kept_for: Some(left(at, self.expiry.store_time)),
            age: Some(self.expiry.age_of_end(at, row.get(7)?)),
            took: run_time(row.get(8)?),
            ..info(self.request.filter.status, id, row, 2)?
        })
    }

    /// Adds dead letters, the newest one first.
    fn dead(&mut self, after: Option<Position>) -> Result<bool, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(DEAD)?;
        let (at, id) = after.map_or((i64::MAX, TaskId::from_bytes([255; 16])), |it| {
            number_and_id_in(&it)
        });
        let mut rows = statement.query(params![self.expiry.dead_until, at, id.to_bytes()])?;
        while let Some(row) = rows.next()? {
            if self.is_full() {
                return Ok(true);
            }
            let (at, id) = (row.get(0)?, TaskId::from_bytes(row.get(1)?));
            let info = TaskInfo {
                kept_for: Some(self.expiry.left_of_dead(at)),
                age: Some(self.expiry.age_of_dead(at)),
                reason: Some(reason(row.get(7)?)),
                error: Some(shortened(row.get(8)?, MAX_LISTED_ERROR_BYTES)),
                took: run_time(row.get(9)?),
                ..info(Status::Dead, id, row, 2)?
            };
            self.examine(position_with(at, id), info);
        }
        Ok(false)
    }

    fn is_full(&self) -> bool {
        let request = self.request;
        self.page.tasks.len() == request.limit || self.page.examined == request.max_examined()
    }

    /// Adds a task to the page if it matches.
    fn examine(&mut self, position: Position, info: TaskInfo) {
        let filter = &self.request.filter;
        self.page.examined += 1;
        self.page.next = Some(Cursor::new(filter.status, position.to_vec()));
        if filter.matches(&info) {
            self.page.tasks.push(info);
        }
    }
}

/// Returns a task, given the column of its name. Its queue, its group, and its numbers of failures and crashes are in the next columns.
pub(super) fn info(
    status: Status,
    id: TaskId,
    row: &Row<'_>,
    first: usize,
) -> Result<TaskInfo, rusqlite::Error> {
    Ok(TaskInfo {
        id,
        status,
        name: Some(row.get(first)?),
        queue: row.get(first + 1)?,
        group: row.get(first + 2)?,
        failures: Some(row.get(first + 3)?),
        crashes: Some(row.get(first + 4)?),
        ready_for: None,
        due_in: None,
        fencing_token: None,
        kept_for: None,
        running_for: None,
        took: None,
        age: None,
        reason: None,
        error: None,
    })
}

/// Returns the time until `at`, or zero if it is over.
pub(super) fn left(at: i64, now: i64) -> Duration {
    let left = u64::try_from(at.saturating_sub(now));
    Duration::from_millis(left.unwrap_or_default())
}

fn position_of(numbers: [i64; 3]) -> Position {
    let mut position = [0; 24];
    let (chunks, _) = position.as_chunks_mut();
    for (chunk, number) in chunks.iter_mut().zip(numbers) {
        *chunk = number.to_be_bytes();
    }
    position
}

fn numbers_in(position: &Position) -> [i64; 3] {
    std::array::from_fn(|i| i64::from_be_bytes(std::array::from_fn(|byte| position[8 * i + byte])))
}

fn position_with(number: i64, id: TaskId) -> Position {
    let mut position = [0; 24];
    position[..8].copy_from_slice(&number.to_be_bytes());
    position[8..].copy_from_slice(&id.to_bytes());
    position
}

fn number_and_id_in(position: &Position) -> (i64, TaskId) {
    let [number, ..] = numbers_in(position);
    (
        number,
        TaskId::from_bytes(std::array::from_fn(|i| position[8 + i])),
    )
}
