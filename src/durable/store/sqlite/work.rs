//! [`Work`]: a transaction for writing, and the steps of a task.

use rusqlite::{Connection, OptionalExtension, params};

use super::endpoint::{Endpoint, EndpointId};
use super::error::Fault;
use super::line::Line;
use super::meta::Meta;
use super::schema::INLINE;
use super::state::{State, reason_number};
use crate::durable::TaskId;
use crate::durable::clock::{Clock, millis};
use crate::durable::store::{DeadReason, SessionId};

/// What time it is, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since 1970.
    pub(super) wall: i64,
    /// Since the machine was started.
    pub(super) boot: i64,
    micros: i64,
}

impl Now {
    pub(super) fn read(clock: &Clock) -> Self {
        let wall = clock.wall();
        Self {
            wall: millis(wall) as i64,
            boot: millis(clock.boot()) as i64,
            micros: wall.as_micros() as i64,
        }
    }
}

/// What others are told when the transaction is over.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// How many more tasks wait than before.
    ready: i64,
    /// Whether one has come to wait: what was claimed before it takes nothing from that.
    came: bool,
    /// Whether some wait, or are due earlier than any before: one worker is to look.
    pub(super) look: bool,
    /// Whether a process has come: those who rest are to know, since it may die.
    pub(super) newcomer: bool,
    /// Sessions that have ended: they rest no longer.
    pub(super) closed: Vec<SessionId>,
    ended: Vec<(EndpointId, TaskId)>,
    pub(super) cancel: Vec<(EndpointId, TaskId)>,
}

impl Notes {
    /// How many endpoints are woken at most for tasks that came together; those wake others.
    const WAKES: i64 = 4;

    /// Wakes those who are to do something. Whoever has its answer may exit at once, so this comes before.
    pub(super) fn wake(&mut self, endpoint: &Endpoint) {
        let wakes = self.ready.clamp(self.look.into(), Self::WAKES);
        for session in self.closed.drain(..) {
            endpoint.unpark(session);
        }
        endpoint.tell_cancel(&self.cancel);
        endpoint.wake(wakes as usize);
        if self.newcomer {
            endpoint.wake_others(usize::MAX);
        }
    }

    /// Tells those who await tasks. They ask by themselves, too.
    pub(super) fn tell_ended(&self, endpoint: &Endpoint) {
        endpoint.tell_ended(&self.ended);
    }
}

/// What a step needs to know of a task.
pub(super) struct Task {
    pub(super) state: State,
    place: Option<i64>,
    pub(super) at: Option<i64>,
    pub(super) cancel: bool,
    retention: i64,
    owner: EndpointId,
    /// Whether it may have a body.
    body: bool,
    pub(super) crashes: i64,
    pub(super) max_crashes: i64,
}

/// A transaction for writing.
pub(super) struct Work<'a> {
    pub(super) db: &'a Connection,
    pub(super) endpoint: &'a Endpoint,
    pub(super) now: Now,
    pub(super) meta: Meta,
    pub(super) notes: Notes,
    pub(super) line: Option<Line>,
    loaded: Meta,
}

impl<'a> Work<'a> {
    /// What a transaction that has begun starts with.
    pub(super) fn new(
        db: &'a Connection,
        endpoint: &'a Endpoint,
        clock: &Clock,
    ) -> Result<Self, Fault> {
        let meta = Meta::load(db)?;
        Ok(Self {
            db,
            endpoint,
            now: Now::read(clock),
            loaded: meta.clone(),
            meta,
            notes: Notes::default(),
            line: None,
        })
    }

    /// Writes what is written once; the transaction can be committed then.
    pub(super) fn finish(self) -> Result<Notes, rusqlite::Error> {
        if self.meta != self.loaded {
            self.meta.save(self.db)?;
        }
        let mut notes = self.notes;
        notes.look |= notes.came && self.meta.counts.waiting != 0;
        Ok(notes)
    }

    /// Above all epochs so far; and, if the file was put back from a copy, above those that the copy
    /// does not know.
    pub(super) fn new_epoch(&mut self) -> i64 {
        self.meta.epoch = self.now.micros.max(self.meta.epoch + 1);
        self.meta.epoch
    }

    /// Executes a statement, prepared once; how many rows it has changed.
    pub(super) fn execute(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<usize, rusqlite::Error> {
        self.db.prepare_cached(sql)?.execute(params)
    }

    /// The one number that a statement finds, prepared once.
    pub(super) fn number(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Option<i64>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(sql)?;
        statement.query_row(params, |row| row.get(0)).optional()
    }

    /// The ids that a statement finds, prepared once.
    pub(super) fn ids(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<TaskId>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(sql)?;
        let ids = statement.query_map(params, |row| row.get(0).map(TaskId::from_bytes))?;
        ids.collect()
    }

    pub(super) fn task(&self, id: TaskId) -> Result<Option<Task>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(
            "SELECT now, place, at, cancel, retention, endpoint,
                 payload IS NULL, crashes, max_crashes
             FROM throng_now WHERE id = ?1",
        )?;
        let task = statement.query_row([id.to_bytes()], |row| {
            Ok(Task {
                state: State::of(row.get(0)?)?,
                place: row.get(1)?,
                at: row.get(2)?,
                cancel: row.get(3)?,
                retention: row.get(4)?,
                owner: row.get(5)?,
                body: row.get(6)?,
                crashes: row.get(7)?,
                max_crashes: row.get(8)?,
            })
        });
        task.optional()
    }

    // ===== Steps =====

    /// A running task waits until `due`; this is added to what counts against it, and if its worker
    /// did not know it, since when.
    pub(super) fn delay(
        &mut self,
        id: TaskId,
        due: i64,
        failures: i64,
        unknown: Option<i64>,
    ) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task
             SET state = 1, at = ?2, failures = failures + ?3,
                 unknown = iif(?4 IS NULL, NULL, coalesce(unknown, ?4))
             WHERE id = ?1",
            params![id.to_bytes(), due, failures, unknown],
        )?;
        self.leave(State::Running);
        self.enter(State::Delayed);
        Ok(())
    }

    /// The end of most running tasks, in one statement: of those whose payload and output are in their
    /// row, and whose end is kept. `false`: it is none of those, and nothing has happened.
    pub(super) fn end_done_plainly(
        &mut self,
        id: TaskId,
        owner: EndpointId,
        output: &[u8],
    ) -> Result<bool, Fault> {
        if output.len() > INLINE {
            return Ok(false);
        }
        let ended = self.execute(
            "UPDATE throng_task SET state = 3, at = ?2 + retention, payload = NULL, output = ?3
             WHERE id = ?1 AND retention > 0 AND payload IS NOT NULL",
            params![id.to_bytes(), self.now.wall, output],
        )?;
        if ended == 0 {
            return Ok(false);
        }
        self.meta.counts.done += 1;
        self.notes.ended.push((owner, id));
        self.leave(State::Running);
        self.enter(State::Done);
        Ok(true)
    }

    pub(super) fn end_done(&mut self, id: TaskId, task: &Task, output: &[u8]) -> Result<(), Fault> {
        self.meta.counts.done += 1;
        let inline = (output.len() <= INLINE).then_some(output);
        if self.end(id, task, State::Done, inline)? && inline.is_none() {
            self.store_body(id, output)?;
        }
        Ok(())
    }

    pub(super) fn end_cancelled(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        if task.state == State::Running {
            self.meta.counts.cancelled += 1;
        }
        self.end(id, task, State::Cancelled, None)?;
        Ok(())
    }

    /// A task ends for good, and keeps its payload.
    pub(super) fn die(
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
                self.now.wall,
                reason_number(reason),
                error,
                task.crashes,
                reason.is_failure(),
            ],
        )?;
        self.leave(task.state);
        self.enter(State::Dead);
        self.notes.ended.push((task.owner, id));
        Ok(())
    }

    /// A task is there no longer.
    pub(super) fn remove(&mut self, id: TaskId, task: &Task) -> Result<(), Fault> {
        self.execute("DELETE FROM throng_task WHERE id = ?1", [id.to_bytes()])?;
        self.remove_body(id, task)?;
        self.leave(task.state);
        Ok(())
    }

    pub(super) fn store_body(&self, id: TaskId, bytes: &[u8]) -> Result<(), Fault> {
        self.execute(
            "INSERT OR REPLACE INTO throng_body (id, bytes) VALUES (?1, ?2)",
            params![id.to_bytes(), bytes],
        )?;
        Ok(())
    }

    /// There is one more of that state.
    pub(super) fn enter(&mut self, state: State) {
        self.notes.ready += i64::from(state == State::Waiting);
        self.notes.came |= state == State::Waiting;
        *self.count(state) += 1;
    }

    /// There is one less of that state.
    pub(super) fn leave(&mut self, state: State) {
        self.notes.ready -= i64::from(state == State::Waiting);
        let count = self.count(state);
        *count = count.saturating_sub(1);
    }

    /// A task ends, and its payload goes; whether its row is kept.
    fn end(
        &mut self,
        id: TaskId,
        task: &Task,
        end: State,
        output: Option<&[u8]>,
    ) -> Result<bool, Fault> {
        self.notes.ended.push((task.owner, id));
        if let (State::Waiting, Some(place)) = (task.state, task.place) {
            self.step_out(place)?;
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
                end as i64,
                self.now.wall.saturating_add(task.retention),
                output,
            ],
        )?;
        self.remove_body(id, task)?;
        self.leave(task.state);
        self.enter(end);
        Ok(true)
    }

    fn remove_body(&self, id: TaskId, task: &Task) -> Result<(), rusqlite::Error> {
        if task.body {
            self.execute("DELETE FROM throng_body WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }

    fn count(&mut self, state: State) -> &mut u64 {
        let counts = &mut self.meta.counts;
        match state {
            State::Waiting => &mut counts.waiting,
            State::Delayed => &mut counts.delayed,
            State::Running => &mut counts.running,
            State::Done | State::Cancelled => &mut counts.kept,
            State::Dead => &mut counts.dead,
        }
    }
}
