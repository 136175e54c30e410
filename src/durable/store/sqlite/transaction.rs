//! [`Transaction`]: a transaction for writing, in which the writer runs requests.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::error::Fault;
use super::meta::Meta;
use super::notices::Notices;
use super::ready_queue::ReadyQueue;
use super::shared::Shared;
use super::state::State;
use super::time::Now;
use crate::durable::TaskId;
use crate::durable::clock::Clock;
use crate::durable::store::Epoch;
use crate::durable::store::kept::Expiry;
use crate::durable::store::kind::SetId;
use crate::durable::store::routes::Routes;

/// A transaction for writing.
pub(super) struct Transaction<'a> {
    pub(super) db: &'a Connection,
    pub(super) shared: &'a Shared,
    pub(super) now: Now,
    pub(super) routes: Arc<Routes>,
    pub(super) meta: Meta,
    pub(super) notices: Notices,
    pub(super) queue: ReadyQueue,
    /// The turn of the groups of which a task may start because of the current request.
    pub(super) next_turn: Option<i64>,
    /// The lists and sublists from which replacements of the current request have removed tasks. Later tasks of the request may wait
    /// there.
    pub(super) emptied: Vec<(i64, i64)>,
    /// If damage was found, a second connection that reads what may be damaged: SQLite no longer writes in a transaction
    /// that has read a damaged page.
    pub(super) probe: Option<Connection>,
    /// `true` if any task may have steps, if that is known.
    pub(super) has_workflows: Cell<Option<bool>>,
    /// `true` if this connection has skipped the epochs that the file may lack.
    pub(super) has_skipped_epochs: bool,
    /// The row `throng_meta` as it was read.
    loaded: Meta,
}

impl<'a> Transaction<'a> {
    /// Reads what every request needs, in a transaction that has begun.
    pub(super) fn new(
        db: &'a Connection,
        shared: &'a Shared,
        clock: &Clock,
        has_skipped_epochs: bool,
    ) -> Result<Self, Fault> {
        let meta = Meta::load(db, shared.layouts)?;
        let routes = shared.routes.load(db)?;
        Ok(Self {
            db,
            shared,
            now: Now::read(clock),
            routes,
            loaded: meta.clone(),
            meta,
            notices: Notices::default(),
            queue: ReadyQueue::default(),
            next_turn: None,
            emptied: Vec::new(),
            probe: None,
            has_workflows: Cell::new(None),
            has_skipped_epochs,
        })
    }

    /// Writes what is written once per transaction. After this, the transaction can be committed.
    pub(super) fn finish(&mut self) -> Result<(), rusqlite::Error> {
        self.remove_progress_of_ended()?;
        if self.meta != self.loaded {
            self.meta.save(self.db)?;
        }
        self.notices.choose_wakes(self.db, &self.routes)
    }

    /// Issues an epoch above all others, and above `floor`.
    pub(super) fn new_epoch(&mut self, floor: Epoch) -> i64 {
        self.skip_lost_epochs();
        self.meta.next_epoch(self.now, floor)
    }

    /// Skips the epochs that the file may lack, unless this connection has done so: the file may be an older copy that
    /// has replaced another one.
    pub(super) fn skip_lost_epochs(&mut self) {
        if !self.has_skipped_epochs {
            self.meta.skip_lost_epochs(self.now);
        }
        self.has_skipped_epochs = true;
    }

    /// Returns the time by which the retention of ended tasks is measured.
    pub(super) fn store_time(&self) -> i64 {
        self.meta.store_time(self.now)
    }

    /// Returns the times up to which ended tasks have expired.
    pub(super) fn expiry(&self) -> Expiry {
        self.meta.limits.expiry(self.store_time())
    }

    /// Has the lists of a set checked by a session, since tasks may be left there.
    pub(super) fn recheck_lists_of(&mut self, set: Option<SetId>) {
        for list in set.map(|set| self.routes.reads(set)).unwrap_or_default() {
            self.notices.add_ready(list, 0);
        }
    }

    // ===== Counts =====

    /// Counts one task more in a state.
    pub(super) fn increment(&mut self, state: State) {
        if state.is_final() && !self.meta.has_ended_tasks() {
            self.meta.record_store_time(self.now);
        }
        *self.count(state) += 1;
    }

    /// Counts one task less in a state.
    pub(super) fn decrement(&mut self, state: State) {
        let count = self.count(state);
        *count = count.saturating_sub(1);
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

    // ===== Statements =====

    /// Executes a statement, which is prepared once. Returns the number of rows that it has changed.
    pub(super) fn execute(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<usize, rusqlite::Error> {
        self.db.prepare_cached(sql)?.execute(params)
    }

    /// Returns the one number that a statement selects. The statement is prepared once.
    pub(super) fn number(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Option<i64>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(sql)?;
        statement.query_row(params, |row| row.get(0)).optional()
    }

    /// Returns the ids that a statement selects. The statement is prepared once.
    pub(super) fn ids(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<TaskId>, rusqlite::Error> {
        let mut statement = self.db.prepare_cached(sql)?;
        let ids = statement.query_map(params, |row| row.get(0).map(TaskId::from_bytes))?;
        ids.collect()
    }
}
