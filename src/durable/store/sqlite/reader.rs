//! The thread that reads. Its requests take no lock, and do not wait for a write to the disk.

use std::sync::{Arc, mpsc};

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::{oneshot, watch};

use super::admin;
use super::endpoint::Endpoint;
use super::error::{Fault, io_failure, is_damaged_page, no_answer};
use super::files::Files;
use super::meta::{Meta, read_store_time};
use super::schema;
use super::state::{State, reason};
use super::turn::readable_body;
use super::unserved;
use super::work::Now;
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::{Answer, DeadReason, TaskState};
use crate::durable::{AttemptError, Counts, DeadFilter, DeadLetter, TaskId};
use crate::sync::{Mutex, lock, thread};
use crate::unwind::contain;

type Question = Box<dyn FnOnce(&mut Desk) + Send>;

/// The handle of the reading thread, which ends when this is closed or dropped.
pub(super) struct Reader {
    questions: Mutex<Option<mpsc::Sender<Question>>>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

/// What the thread reads with.
pub(super) struct Desk {
    files: Files,
    db: Connection,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) clock: Clock,
}

impl Reader {
    pub(super) fn start(
        files: &Files,
        endpoint: Arc<Endpoint>,
        clock: Clock,
    ) -> Result<Self, Failure> {
        let (db, files) = schema::read(files).map_err(Fault::without_effect)?;
        let mut desk = Desk {
            files,
            db,
            endpoint,
            clock,
        };
        // Another may have found damage before. If that cannot be read, the first question says so.
        desk.endpoint
            .damage
            .learn(&desk.db, Now::read(&desk.clock))
            .ok();
        let (questions, asked) = mpsc::channel::<Question>();
        let (end, ended) = watch::channel(());
        let thread = thread::Builder::new().name(String::from("throng-sqlite-reader"));
        let started = thread.spawn(move || {
            for question in asked {
                contain(|| question(&mut desk));
            }
            drop(desk);
            drop(end);
        });
        started.map_err(io_failure)?;
        let questions = Mutex::new(Some(questions));
        Ok(Self { questions, ended })
    }

    /// Ends the thread when it has answered what it was asked, and waits until it has closed the database.
    pub(super) async fn close(&self) {
        drop(lock(&self.questions).take());
        let mut ended = self.ended.clone();
        // Nothing is ever sent: this is an error when the thread has ended.
        ended.changed().await.ok();
    }

    /// Has the thread answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Desk) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        let question: Question = Box::new(move |desk| {
            let answer = desk.find().and_then(|()| question(desk));
            let answer = answer.map_err(Fault::explained);
            if matches!(answer, Err(Fault::Sqlite(_))) {
                desk.reconnect().ok();
            }
            reply.send(answer.map_err(Fault::without_effect)).ok();
        });
        let questions = lock(&self.questions);
        let is_sent = questions
            .as_ref()
            .is_some_and(|it| it.send(question).is_ok());
        drop(questions);
        Box::pin(async move {
            match is_sent {
                true => answer.await.unwrap_or_else(|_| Err(no_answer())),
                false => Err(Failure::new(Effect::None, Cause::Unavailable)),
            }
        })
    }
}

impl Desk {
    /// Reads one state of the database.
    pub(super) fn snapshot<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.db.prepare_cached("BEGIN")?.execute([])?;
        let found = schema::check_layout(&self.db).and_then(|()| read(&self.db));
        match self.db.prepare_cached("COMMIT")?.execute([]) {
            Ok(_) => {}
            // SQLite reports again that a page could not be read. The rows that it has read are sound.
            Err(error) if is_damaged_page(&error) && self.db.is_autocommit() => {}
            Err(error) => return Err(error.into()),
        }
        found
    }

    /// Makes sure that the database is still where it was, or a copy of it.
    fn find(&mut self) -> Result<(), Fault> {
        self.files.check().or_else(|_| self.reconnect())
    }

    /// Replaces a connection that may be of no more use.
    fn reconnect(&mut self) -> Result<(), Fault> {
        (self.db, self.files) = schema::read(&self.files)?;
        Ok(())
    }
}

// ===== What it is asked =====

pub(super) fn status(desk: &Desk, ids: &[TaskId]) -> Result<Vec<TaskState>, Fault> {
    let (seen, others) = look_once(desk, ids)?;
    // The end of a task is told to who has stored it; for those of others, this endpoint has to ask,
    // and to look again then: in between they may have ended.
    if others && desk.endpoint.watch() {
        return Ok(look_once(desk, ids)?.0);
    }
    Ok(seen)
}

pub(super) fn dead_letters(
    desk: &Desk,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Fault> {
    let now = Now::read(&desk.clock);
    desk.snapshot(|db| {
        let time = read_store_time(db, now)?;
        let ids = admin::dead_letters(db, time, filter)?;
        let letters = ids.iter().take(limit);
        let letters = letters.map(|&id| letter(db, id, now.wall, time));
        Ok(letters.collect::<Result<_, _>>()?)
    })
}

pub(super) fn counts(desk: &Desk) -> Result<Counts, Fault> {
    desk.snapshot(|db| {
        desk.endpoint.damage.learn(db, Now::read(&desk.clock))?;
        let unserved = unserved::count(db, &desk.endpoint)?;
        let counts = Meta::load(db)?.counts;
        Ok(Counts { unserved, ..counts })
    })
}

/// What has become of tasks; whether others have stored some that are alive.
fn look_once(desk: &Desk, ids: &[TaskId]) -> Result<(Vec<TaskState>, bool), Fault> {
    let now = Now::read(&desk.clock);
    desk.snapshot(|db| {
        let time = read_store_time(db, now)?;
        let mut others = false;
        let mut all = Vec::with_capacity(ids.len());
        for &id in ids {
            let (seen, owner) = see(desk, db, id, time)?;
            let is_alive = matches!(
                seen,
                TaskState::Waiting | TaskState::Delayed | TaskState::Running
            );
            others |= is_alive && owner != desk.endpoint.id;
            all.push(seen);
        }
        Ok((all, others))
    })
}

/// What has become of a task, and who has stored it.
fn see(
    desk: &Desk,
    db: &Connection,
    id: TaskId,
    time: i64,
) -> Result<(TaskState, i64), rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT now, at, output, error, reason, endpoint FROM throng_now WHERE id = ?1",
    )?;
    let seen = statement.query_row([id.to_bytes()], |row| {
        let state = State::of(row.get(0)?)?;
        if state.is_over(row.get(1)?, time) {
            return Ok((TaskState::Absent, 0));
        }
        let seen = match state {
            State::Waiting => TaskState::Waiting,
            State::Delayed => TaskState::Delayed,
            State::Running => TaskState::Running,
            State::Done => match row.get(2)? {
                Some(output) => TaskState::Done(output),
                None => done(desk, readable_body(db, id)?),
            },
            State::Dead => TaskState::Dead {
                reason: reason(row.get(4)?),
                error: row.get(3)?,
            },
            State::Cancelled => TaskState::Cancelled,
        };
        Ok((seen, row.get(5)?))
    });
    Ok(seen.optional()?.unwrap_or((TaskState::Absent, 0)))
}

pub(super) fn errors(desk: &Desk, id: TaskId) -> Result<Vec<AttemptError>, Fault> {
    let now = Now::read(&desk.clock);
    desk.snapshot(|db| {
        let time = read_store_time(db, now)?;
        match see(desk, db, id, time)?.0 {
            TaskState::Absent => Ok(Vec::new()),
            _ => Ok(errors_of(db, id, now.wall)?),
        }
    })
}

fn errors_of(db: &Connection, id: TaskId, now: i64) -> Result<Vec<AttemptError>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT attempt, error, at FROM throng_error WHERE id = ?1 ORDER BY attempt",
    )?;
    let errors = statement.query_map([id.to_bytes()], |row| {
        let age = now.saturating_sub(row.get(2)?);
        Ok(AttemptError {
            attempt: row.get(0)?,
            error: row.get(1)?,
            age: std::time::Duration::from_millis(u64::try_from(age).unwrap_or_default()),
        })
    })?;
    errors.collect()
}

/// How a task has ended whose output cannot be in its row.
fn done(desk: &Desk, output: Result<Vec<u8>, String>) -> TaskState {
    match output {
        Ok(output) => TaskState::Done(output),
        Err(error) => {
            desk.endpoint.damage.met(&error);
            let reason = DeadReason::Damaged;
            TaskState::Dead { reason, error }
        }
    }
}

fn letter(db: &Connection, id: TaskId, now: i64, time: i64) -> Result<DeadLetter, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT name, reason, error, failures, crashes, at FROM throng_task WHERE id = ?1",
    )?;
    statement.query_row([id.to_bytes()], |row| {
        let age = time.saturating_sub(row.get(5)?);
        Ok(DeadLetter {
            id,
            name: row.get(0)?,
            reason: reason(row.get(1)?),
            error: row.get(2)?,
            errors: errors_of(db, id, now)?,
            failures: row.get(3)?,
            crashes: row.get(4)?,
            age: std::time::Duration::from_millis(u64::try_from(age).unwrap_or_default()),
        })
    })
}
