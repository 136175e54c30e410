//! What a stream knows of its jobs, from when they are accepted until they are settled.

use std::collections::BTreeMap;

use slab::Slab;

use super::backlog::{Backlog, Moved};
use super::slot::{Entry, Finished};
use super::{Id, Outlet};
use crate::sync::Arc;
use crate::task::Abort;

/// The jobs of a stream that were accepted and are not settled: have not been read, or only just.
pub(crate) struct Jobs<T, K> {
    /// Those whose completions are in their cells, or will be.
    outstanding: Slab<Outstanding>,
    /// How often those were tried that were tried more than once, by their keys.
    attempts: BTreeMap<usize, u32>,
    /// What was moved out of cells and has not been taken by the reader.
    backlog: Backlog<T, K>,
    /// How many completions were moved out of their cells and are not settled.
    moved: usize,
    /// The turn of the next.
    next_turn: u64,
    /// No other is accepted.
    closed: bool,
}

struct Outstanding {
    id: Id,
    /// Its place in the order of submission. Turns are given without gaps.
    turn: u64,
    abort: Abort,
}

impl<T, K> Jobs<T, K> {
    pub(super) fn new() -> Self {
        Self {
            outstanding: Slab::new(),
            attempts: BTreeMap::new(),
            backlog: Backlog::default(),
            moved: 0,
            next_turn: 0,
            closed: false,
        }
    }

    /// How many are not settled.
    pub(crate) fn len(&self) -> usize {
        self.outstanding.len() + self.moved
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Accepts a job, which `make` makes, with the means to abort it.
    pub(crate) fn accept<R>(
        &mut self,
        outlet: &Arc<Outlet<T, K>>,
        tag: K,
        make: impl FnOnce(Entry<T, K>) -> (R, Abort),
    ) -> R
    where
        T: Send + 'static,
        K: Send + 'static,
    {
        let vacant = self.outstanding.vacant_entry();
        let entry = Entry::new(Arc::clone(outlet), tag, vacant.key());
        let id = entry.id();
        let turn = self.next_turn;
        let (made, abort) = make(entry);
        vacant.insert(Outstanding { id, turn, abort });
        self.next_turn += 1;
        made
    }

    pub(crate) fn abort_of(&self, id: Id) -> Option<Abort> {
        let mut found = self.outstanding.iter().filter(|(_, job)| job.id == id);
        found.next().map(|(_, job)| job.abort.clone())
    }

    pub(crate) fn aborts(&self) -> impl Iterator<Item = Abort> {
        self.outstanding.iter().map(|(_, job)| job.abort.clone())
    }

    /// A job is tried for the `attempts`th time; `true`: for the second.
    pub(crate) fn note_attempts(&mut self, key: usize, attempts: u32) -> bool {
        self.attempts.insert(key, attempts).is_none()
    }

    /// How often a job was tried, if more than once; that is forgotten.
    pub(crate) fn take_attempts(&mut self, key: usize) -> Option<u32> {
        self.attempts.remove(&key)
    }

    /// Forgets jobs that were read: some in their cells, and so many that were moved out of theirs.
    pub(crate) fn settle(&mut self, keys: impl Iterator<Item = usize>, moved: usize) {
        // They may have the last references to the cells, in which nothing is left but memory.
        keys.for_each(|key| drop(self.outstanding.remove(key)));
        self.moved -= moved;
    }

    /// The turns of those that are not settled begin with zero, and have no gaps, from now on. Some may
    /// be in the hands of the reader.
    pub(crate) fn count_turns_anew(&mut self, taken: &mut Backlog<T, K>) {
        let here = self.outstanding.iter_mut().map(|(_, job)| &mut job.turn);
        let all = here.chain(self.backlog.turns()).chain(taken.turns());
        let mut order: Vec<_> = all.collect();
        order.sort_unstable();
        for (new, turn) in (0..).zip(&mut order) {
            **turn = new;
        }
        self.next_turn = order.len() as u64;
    }

    /// Forgets everything: the means to abort what is outstanding, and what nobody will read.
    pub(crate) fn forsake(&mut self) -> (impl Iterator<Item = Abort> + use<T, K>, Backlog<T, K>) {
        self.attempts.clear();
        self.moved = 0;
        let outstanding = std::mem::take(&mut self.outstanding);
        let aborts = outstanding.into_iter().map(|(_, job)| job.abort);
        (aborts, self.take_backlog())
    }

    /// How many completions are in their cells, or will be.
    pub(super) fn in_cells(&self) -> usize {
        self.outstanding.len()
    }

    /// Moves completions out of their cells, behind those that were moved before.
    pub(super) fn exit_pool(&mut self, len: usize, all: impl Iterator<Item = Finished<T, K>>) {
        let mut moved = Vec::with_capacity(len);
        moved.extend(all.map(|finished| self.moved(finished)));
        self.backlog.push_back(moved);
    }

    /// Moves a completion out of its cell, for the caller.
    pub(crate) fn moved(&mut self, finished: Finished<T, K>) -> Moved<T, K> {
        let job = self.outstanding.remove(finished.key());
        self.moved += 1;
        let attempts = self.attempts.remove(&finished.key()).unwrap_or(1);
        let (id, tag, outcome) = finished.into_parts();
        Moved::new(id, job.turn, attempts, tag, outcome)
    }

    pub(super) fn take_backlog(&mut self) -> Backlog<T, K> {
        std::mem::take(&mut self.backlog)
    }
}
