//! [`Work`]: a transaction for writing, and the steps of a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::endpoint::{Endpoint, EndpointId};
use super::error::{Fault, is_damaged_page};
use super::line::Line;
use super::meta::Meta;
use super::schema::INLINE;
use super::state::{State, reason_number};
use super::turn::{body, readable, readable_body};
use crate::durable::TaskId;
use crate::durable::clock::{Clock, millis};
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::{ListId, Routes};
use crate::durable::store::{DeadReason, Epoch, MAX_ERRORS, SessionId, is_dead_letter};

/// What time it is, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The time since 1970, by which delayed tasks become due.
    pub(super) wall: i64,
    /// Since the machine was started.
    pub(super) boot: i64,
    micros: i64,
    boot_micros: i64,
}

impl Now {
    pub(super) fn read(clock: &Clock) -> Self {
        let (wall, boot) = (clock.wall(), clock.boot());
        Self {
            wall: millis(wall) as i64,
            boot: millis(boot) as i64,
            micros: wall.as_micros() as i64,
            boot_micros: boot.as_micros() as i64,
        }
    }

    /// Microseconds since 1970: above all numbers that were issued, unless the clock was set back.
    pub(super) fn micros(self) -> i64 {
        self.micros
    }

    /// Microseconds since the machine was started.
    pub(super) fn boot_micros(self) -> i64 {
        self.boot_micros
    }
}

/// What others are told when the transaction is over.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// For each list that has gained tasks, or in which tasks are left, the number of tasks gained.
    lists: BTreeMap<ListId, i64>,
    /// The numbers of sessions that are to look at those lists, and the sets from which they may be chosen.
    wakes: Vec<(usize, Vec<SetId>)>,
    /// Whether a task is due earlier than any before. If so, one worker is to look.
    pub(super) look: bool,
    /// Whether a process has come: those who rest are to know, since it may die.
    pub(super) newcomer: bool,
    /// Sessions that have ended: they rest no longer.
    pub(super) closed: Vec<SessionId>,
    /// `true` if epochs were recalled.
    pub(super) has_recalled: bool,
    ended: Vec<(EndpointId, TaskId)>,
    pub(super) cancel: Vec<(EndpointId, TaskId)>,
}

impl Notes {
    /// How many endpoints are woken at most for tasks that came together; those wake others.
    const WAKES: i64 = 4;

    /// Records that `more` further tasks wait in a list, or with 0, that tasks are left there.
    pub(super) fn come(&mut self, list: ListId, more: i64) {
        *self.lists.entry(list).or_default() += more;
    }

    /// The lists to be looked at, each with a number of sessions.
    pub(super) fn lists(&self) -> impl Iterator<Item = (ListId, usize)> {
        let lists = self.lists.iter();
        lists.map(|(&list, &more)| (list, more.clamp(1, Self::WAKES) as usize))
    }

    /// Wakes the sessions that have work. This comes before the answer, since a process may exit as soon as it
    /// has its answer.
    pub(super) fn wake(&mut self, endpoint: &Endpoint) {
        for session in self.closed.drain(..) {
            endpoint.unpark(session);
        }
        endpoint.tell_cancel(&self.cancel);
        for (most, sets) in &self.wakes {
            endpoint.wake(*most, |set| sets.contains(&set));
        }
        if self.look {
            endpoint.wake(1, |_| true);
        }
        if self.newcomer {
            endpoint.wake_others(usize::MAX, |_| true);
        }
    }

    /// Sends events to the processes that await tasks. They also poll.
    pub(super) fn tell_ended(&self, endpoint: &Endpoint) {
        endpoint.tell_ended(&self.ended);
    }
}

/// What a step needs to know of a task.
pub(super) struct Task {
    pub(super) state: State,
    list: Option<i64>,
    place: Option<i64>,
    pub(super) at: Option<i64>,
    pub(super) cancel: bool,
    retention: i64,
    owner: EndpointId,
    /// Whether it may have a body.
    body: bool,
    pub(super) crashes: i64,
    pub(super) max_crashes: i64,
    pub(super) lost: i64,
    failures: i64,
}

impl Task {
    /// Returns whether it is a dead letter, if it has just crashed or was lost.
    pub(super) fn is_dead_letter(&self) -> bool {
        let count = |it: i64| u32::try_from(it).unwrap_or(u32::MAX);
        is_dead_letter(
            count(self.crashes),
            count(self.lost),
            count(self.max_crashes),
        )
    }
}

/// A transaction for writing.
pub(super) struct Work<'a> {
    pub(super) db: &'a Connection,
    pub(super) endpoint: &'a Endpoint,
    pub(super) now: Now,
    pub(super) routes: Arc<Routes>,
    pub(super) meta: Meta,
    pub(super) notes: Notes,
    pub(super) line: Option<Line>,
    /// Reads what may be damaged, if damage was found: SQLite writes no more in a transaction that has met such a
    /// page.
    pub(super) probe: Option<Connection>,
    /// `true` if this connection has recalled epochs.
    has_recalled: bool,
    loaded: Meta,
}

impl<'a> Work<'a> {
    /// What a transaction that has begun starts with.
    pub(super) fn new(
        db: &'a Connection,
        endpoint: &'a Endpoint,
        clock: &Clock,
        has_recalled: bool,
    ) -> Result<Self, Fault> {
        let meta = Meta::load(db)?;
        let routes = endpoint.routes.load(db)?;
        Ok(Self {
            db,
            endpoint,
            now: Now::read(clock),
            routes,
            loaded: meta.clone(),
            meta,
            notes: Notes::default(),
            line: None,
            probe: None,
            has_recalled,
        })
    }

    /// Writes what is written once; the transaction can be committed then.
    pub(super) fn finish(self) -> Result<Notes, rusqlite::Error> {
        if self.meta != self.loaded {
            self.meta.save(self.db)?;
        }
        let wakes = self.wakes()?;
        Ok(Notes {
            wakes,
            ..self.notes
        })
    }

    /// Issues an epoch above all others, and above `floor`.
    pub(super) fn new_epoch(&mut self, floor: Epoch) -> i64 {
        self.recall();
        self.meta.next_epoch(self.now, floor)
    }

    /// Recalls the epochs that the file may lack, unless this connection has done so: the file may be an older copy that
    /// has replaced another one.
    pub(super) fn recall(&mut self) {
        if !self.has_recalled {
            self.meta.recall(self.now);
        }
        (self.has_recalled, self.notes.has_recalled) = (true, true);
    }

    /// The time that decides how long ends are kept.
    pub(super) fn store_time(&self) -> i64 {
        self.meta.store_time(self.now)
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
                 payload IS NULL, crashes, max_crashes, lost, list, failures
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
                lost: row.get(9)?,
                list: row.get(10)?,
                failures: row.get(11)?,
            })
        });
        task.optional()
    }

    // ===== Steps =====

    /// A running task waits until `due`; this is added to what counts against it.
    pub(super) fn delay(&mut self, id: TaskId, due: i64, failures: i64) -> Result<(), Fault> {
        self.execute(
            "UPDATE throng_task SET state = 1, at = ?2, failures = failures + ?3 WHERE id = ?1",
            params![id.to_bytes(), due, failures],
        )?;
        self.leave(State::Running);
        self.enter(State::Delayed);
        Ok(())
    }

    /// The end of most running tasks, in one statement: of those that have never failed, whose payload and
    /// output are in their row, and whose end is kept. `false`: it is none of those, and nothing has happened.
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
             WHERE id = ?1 AND retention > 0 AND payload IS NOT NULL AND failures = 0",
            params![id.to_bytes(), self.store_time(), output],
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
                self.store_time(),
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
        self.remove_errors(id, task.failures)?;
        self.leave(task.state);
        Ok(())
    }

    /// Keeps the error of the attempt that has failed, and of the earlier ones the last.
    pub(super) fn keep_error(&self, id: TaskId, task: &Task, error: &str) -> Result<(), Fault> {
        let attempt = task.failures + 1;
        self.execute(
            "INSERT OR REPLACE INTO throng_error (id, attempt, at, error) VALUES (?1, ?2, ?3, ?4)",
            params![id.to_bytes(), attempt, self.now.wall, error],
        )?;
        self.execute(
            "DELETE FROM throng_error WHERE id = ?1 AND attempt <= ?2",
            params![id.to_bytes(), attempt - MAX_ERRORS as i64],
        )?;
        Ok(())
    }

    /// Removes the errors of a task that has failed so often.
    pub(super) fn remove_errors(&self, id: TaskId, failures: i64) -> Result<(), rusqlite::Error> {
        if failures > 0 {
            self.execute("DELETE FROM throng_error WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }

    pub(super) fn store_body(&self, id: TaskId, bytes: &[u8]) -> Result<(), Fault> {
        self.execute(
            "INSERT OR REPLACE INTO throng_payload (id, bytes) VALUES (?1, ?2)",
            params![id.to_bytes(), bytes],
        )?;
        Ok(())
    }

    /// There is one more of that state.
    pub(super) fn enter(&mut self, state: State) {
        if state.is_end() && !self.meta.keeps_ends() {
            self.meta.age(self.now);
        }
        *self.count(state) += 1;
    }

    /// There is one less of that state.
    pub(super) fn leave(&mut self, state: State) {
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
            self.step_out(task.list, place)?;
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
                self.store_time().saturating_add(task.retention),
                output,
            ],
        )?;
        self.remove_body(id, task)?;
        self.remove_errors(id, task.failures)?;
        self.leave(task.state);
        self.enter(end);
        Ok(true)
    }

    fn remove_body(&self, id: TaskId, task: &Task) -> Result<(), rusqlite::Error> {
        // An unreadable page cannot be removed.
        let is_lost = match &self.probe {
            Some(probe) if task.body => readable_body(probe, id)?.is_err(),
            _ => false,
        };
        if task.body && !is_lost {
            self.execute("DELETE FROM throng_payload WHERE id = ?1", [id.to_bytes()])?;
        }
        Ok(())
    }

    /// The payload or the output of a task, which is too large for its row, or what is wrong with it.
    pub(super) fn body(&self, id: TaskId) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
        let body = match &self.probe {
            Some(probe) => readable_body(probe, id),
            None => match body(self.db, id) {
                Err(error) if is_damaged_page(&error) => Err(error),
                body => readable(body),
            },
        };
        if let Ok(Err(what)) = &body {
            self.endpoint.damage.met(what);
        }
        body
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
