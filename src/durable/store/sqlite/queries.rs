//! The queries of clients: the status of tasks, dead letters, errors and counts.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::admin;
use super::error::Fault;
use super::list_sizes;
use super::meta::{Meta, read_expiry};
use super::outbox;
use super::payload;
use super::queues::{self, QueueRow};
use super::reader::ReadConnection;
use super::state::State;
use super::time::Now;
use super::unserved;
use crate::durable::queue::QueueInfo;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kept::Expiry;
use crate::durable::store::key_answer::cancelled_state;
use crate::durable::store::reason_numbers::reason;
use crate::durable::store::{DeadPayload, DeadReason, TaskState};
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, TaskId};

/// Returns the status of tasks, in the order of the ids.
pub(super) fn status(reader: &ReadConnection, ids: &[TaskId]) -> Result<Vec<TaskState>, Fault> {
    let (found, has_others) = status_once(reader, ids)?;
    // Only the endpoint that has stored a task is notified of its end. To be notified of the ends of other tasks, this
    // endpoint must register, and then read again: they may have ended in between.
    if has_others && reader.shared.endpoint.watch() {
        return Ok(status_once(reader, ids)?.0);
    }
    Ok(found)
}

pub(super) fn dead_letters(
    reader: &ReadConnection,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let expiry = read_expiry(db, now)?;
        let ids = admin::dead_letters(db, expiry, filter)?;
        let dead_letters = ids.iter().take(limit);
        let dead_letters = dead_letters.map(|&id| dead_letter(db, id, now.wall, expiry.store_time));
        Ok(dead_letters.collect::<Result<_, _>>()?)
    })
}

/// Returns the payload of a dead letter.
pub(super) fn dead_letter_payload(
    reader: &ReadConnection,
    id: TaskId,
) -> Result<Option<DeadPayload>, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let expiry = read_expiry(db, now)?;
        let mut statement = db.prepare_cached(
            "SELECT name, payload, reason FROM throng_task WHERE id = ?1 AND state = 4 AND at > ?2",
        )?;
        let params = params![id.to_bytes(), expiry.dead_until];
        let found = statement.query_row(params, |row| {
            let payload = match row.get(1)? {
                Some(payload) => Ok(payload),
                None => payload::read_or_lost(db, id)?,
            };
            // The damage of a letter that has this reason was recorded when it was found.
            let is_known = reason(row.get(2)?) == DeadReason::Damaged;
            let lost = payload.as_ref().err().filter(|_| !is_known);
            lost.inspect(|error| reader.shared.damage.record_lost_data(id, error));
            let name: String = row.get(0)?;
            Ok(DeadPayload {
                name: name.into(),
                payload,
            })
        });
        Ok(found.optional()?)
    })
}

pub(super) fn counts(reader: &ReadConnection) -> Result<Counts, Fault> {
    reader.snapshot(|db| {
        let damage = &reader.shared.damage;
        damage.load(db, Now::read(&reader.clock))?;
        let unserved = unserved::count(db, &reader.shared)?;
        let counts = Meta::load(db, reader.shared.layouts)?.counts;
        Ok(Counts { unserved, ..counts })
    })
}

/// Returns the names of the paused types, in order.
pub(super) fn paused_types(reader: &ReadConnection) -> Result<Vec<String>, Fault> {
    reader.snapshot(|db| {
        let routes = reader.shared.routes.load(db)?;
        Ok(routes.paused().map(str::to_owned).collect())
    })
}

/// Returns the state of a queue.
pub(super) fn queue(reader: &ReadConnection, queue: &QueueName) -> Result<QueueInfo, Fault> {
    reader.snapshot(|db| {
        let row = QueueRow::load(db, queue)?;
        Ok(QueueInfo {
            settings: row.settings,
            is_paused: row.is_paused,
            waiting: list_sizes::count_in_queue(db, queue)?,
            running: queues::running(db, queue)?,
        })
    })
}

/// Returns the errors of a task, the oldest first.
pub(super) fn errors(reader: &ReadConnection, id: TaskId) -> Result<Vec<AttemptError>, Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let expiry = read_expiry(db, now)?;
        match status_of(reader, db, id, expiry)?.0 {
            TaskState::Absent => Ok(Vec::new()),
            _ => Ok(errors_of(db, id, now.wall)?),
        }
    })
}

/// Returns the status of tasks, and `true` if other endpoints have stored some that have not ended.
fn status_once(reader: &ReadConnection, ids: &[TaskId]) -> Result<(Vec<TaskState>, bool), Fault> {
    let now = Now::read(&reader.clock);
    reader.snapshot(|db| {
        let expiry = read_expiry(db, now)?;
        let mut has_others = false;
        let mut found = Vec::with_capacity(ids.len());
        for &id in ids {
            let (status, producer) = status_of(reader, db, id, expiry)?;
            let is_alive = matches!(
                status,
                TaskState::Waiting | TaskState::Delayed | TaskState::Running
            );
            has_others |= is_alive && producer != reader.shared.endpoint.id;
            found.push(status);
        }
        Ok((found, has_others))
    })
}

/// Returns the status of a task, and the endpoint that has stored it.
fn status_of(
    reader: &ReadConnection,
    db: &Connection,
    id: TaskId,
    expiry: Expiry,
) -> Result<(TaskState, i64), rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT now, at, output, error, reason, endpoint FROM throng_now WHERE id = ?1",
    )?;
    let status = statement.query_row([id.to_bytes()], |row| {
        let state = State::of(row.get(0)?)?;
        if state.is_expired(row.get(1)?, expiry) {
            return Ok((TaskState::Absent, 0));
        }
        let status = match state {
            State::Waiting => TaskState::Waiting,
            State::Delayed => TaskState::Delayed,
            State::Running => TaskState::Running,
            State::Done => match row.get(2)? {
                Some(output) => TaskState::Done(output),
                None => done(reader, id, payload::read_or_lost(db, id)?),
            },
            State::Dead => TaskState::Dead {
                reason: reason(row.get(4)?),
                error: row.get(3)?,
            },
            State::Cancelled => cancelled_state(row.get::<_, Option<Vec<u8>>>(2)?.as_deref()),
        };
        Ok((status, row.get(5)?))
    });
    match status.optional()? {
        None | Some((TaskState::Absent, _)) if outbox::contains(db, id)? => {
            // It is not known which endpoint will store it.
            Ok((TaskState::Waiting, 0))
        }
        status => Ok(status.unwrap_or((TaskState::Absent, 0))),
    }
}

/// Returns the status of a task that has succeeded with a large output, which may be lost.
fn done(reader: &ReadConnection, id: TaskId, output: Result<Vec<u8>, String>) -> TaskState {
    match output {
        Ok(output) => TaskState::Done(output),
        Err(error) => {
            reader.shared.damage.record_lost_data(id, &error);
            let reason = DeadReason::Damaged;
            TaskState::Dead { reason, error }
        }
    }
}

/// Returns the errors of the attempts after which a task was tried again.
pub(super) fn errors_of(
    db: &Connection,
    id: TaskId,
    now: i64,
) -> Result<Vec<AttemptError>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT attempt, error, at, took FROM throng_error WHERE id = ?1 ORDER BY attempt",
    )?;
    let errors = statement.query_map([id.to_bytes()], |row| {
        Ok(AttemptError {
            attempt: row.get(0)?,
            error: row.get(1)?,
            age: age(now, row.get(2)?),
            took: run_time(row.get(3)?),
        })
    })?;
    errors.collect()
}

fn dead_letter(
    db: &Connection,
    id: TaskId,
    now: i64,
    store_time: i64,
) -> Result<DeadLetter, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT name, reason, error, failures, crashes, at FROM throng_task WHERE id = ?1",
    )?;
    statement.query_row([id.to_bytes()], |row| {
        Ok(DeadLetter {
            id,
            name: row.get(0)?,
            reason: reason(row.get(1)?),
            error: row.get(2)?,
            errors: errors_of(db, id, now)?,
            failures: row.get(3)?,
            crashes: row.get(4)?,
            age: age(store_time, row.get(5)?),
        })
    })
}

/// Returns the duration of a run, as it is stored.
pub(super) fn run_time(took: Option<i64>) -> Option<Duration> {
    took.and_then(|took| u64::try_from(took).ok())
        .map(Duration::from_millis)
}

/// Returns the time that has passed since `at`, or zero if `at` is in the future.
fn age(now: i64, at: i64) -> Duration {
    let age = u64::try_from(now.saturating_sub(at));
    Duration::from_millis(age.unwrap_or_default())
}
