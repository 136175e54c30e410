//! The records of a stream's jobs.
//!
//! A job has a record from when it is accepted until it is *released*, which is shortly after its completion was
//! read. The record's *key* is unique among the jobs of its stream that are not released.

use std::collections::HashMap;

use slab::Slab;

use super::spill::{Spill, Spilled};
use crate::join::Id;
use crate::task::{Abort, Resumed};

/// The jobs of a stream that were accepted and are not released.
pub(super) struct Jobs<T, K> {
    /// Those whose completions are in their cells, or will be.
    in_cells: Slab<Record>,
    /// The keys of `in_cells` by id. `None` until the first job is aborted by its id: a stream that aborts no single
    /// job does not pay for it.
    keys: Option<HashMap<Id, usize>>,
    /// Completions that were spilled and that the reader has not taken.
    spill: Spill<T, K>,
    /// The number of jobs whose completions were spilled.
    spilled: usize,
    /// The `seq` of the next job.
    next_seq: u64,
    /// The number of jobs accepted so far.
    accepted: u64,
    /// The number of jobs released so far.
    released: u64,
    /// No other job is accepted.
    closed: bool,
}

struct Record {
    id: Id,
    /// The job's position in the order of submission, without gaps.
    seq: u64,
    abort: Abort,
}

impl<T, K> Jobs<T, K> {
    pub(super) fn new() -> Self {
        Self {
            in_cells: Slab::new(),
            keys: None,
            spill: Spill::default(),
            spilled: 0,
            next_seq: 0,
            accepted: 0,
            released: 0,
            closed: false,
        }
    }

    /// The number of jobs that are not released.
    pub(super) fn len(&self) -> usize {
        self.in_cells.len() + self.spilled
    }

    /// The number of jobs accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The number of jobs released so far, without those that were never read.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Accepts a job. `make` makes it for a key, and returns it with its id and the means to abort it.
    pub(super) fn accept<R>(&mut self, make: impl FnOnce(usize) -> (R, Id, Abort)) -> R {
        let vacant = self.in_cells.vacant_entry();
        let key = vacant.key();
        let seq = self.next_seq;
        let (made, id, abort) = make(key);
        vacant.insert(Record { id, seq, abort });
        if let Some(keys) = &mut self.keys {
            keys.insert(id, key);
        }
        self.next_seq += 1;
        self.accepted += 1;
        made
    }

    /// The means to abort a job, in constant time but for the first call. `None`: it has been released or spilled.
    pub(super) fn abort_of(&mut self, id: Id) -> Option<Abort> {
        let all = self.in_cells.iter();
        let keys = self
            .keys
            .get_or_insert_with(|| all.map(|(key, record)| (record.id, key)).collect());
        let key = *keys.get(&id)?;
        Some(self.in_cells[key].abort.clone())
    }

    pub(super) fn aborts(&self) -> impl Iterator<Item = Abort> {
        self.in_cells.iter().map(|(_, record)| record.abort.clone())
    }

    /// Takes the suspended jobs from their cells.
    pub(super) fn take_suspended(&self) -> impl Iterator<Item = Resumed> {
        let all = self.in_cells.iter();
        all.filter_map(|(_, record)| record.abort.take_suspended())
    }

    /// Releases a job whose completion was read. Returns the means to abort it, which keeps its cell.
    pub(super) fn release(&mut self, key: usize) -> Abort {
        self.released += 1;
        self.remove(key).abort
    }

    /// Releases a number of jobs whose completions were spilled and read.
    pub(super) fn release_spilled(&mut self, spilled: usize) {
        self.spilled -= spilled;
        self.released += spilled as u64;
    }

    /// Numbers the jobs that are not released from zero, in their order. `taken` are spilled completions that the
    /// reader has.
    pub(super) fn renumber(&mut self, taken: &mut Spill<T, K>) {
        let in_cells = self.in_cells.iter_mut().map(|(_, record)| &mut record.seq);
        let all = in_cells
            .chain(self.spill.seqs_mut())
            .chain(taken.seqs_mut());
        let mut seqs: Vec<_> = all.collect();
        seqs.sort_unstable();
        for (new, seq) in (0..).zip(&mut seqs) {
            **seq = new;
        }
        self.next_seq = seqs.len() as u64;
    }

    /// Removes all records. Returns the means to abort the jobs, and the spilled completions.
    pub(super) fn take_all(&mut self) -> (impl Iterator<Item = Abort> + use<T, K>, Spill<T, K>) {
        self.spilled = 0;
        self.keys = None;
        let records = std::mem::take(&mut self.in_cells);
        let aborts = records.into_iter().map(|(_, record)| record.abort);
        (aborts, self.take_spill())
    }

    /// The number of jobs whose completions are in their cells, or will be.
    pub(super) fn in_cells(&self) -> usize {
        self.in_cells.len()
    }

    /// Records that a completion leaves its cell. Returns its `seq`, and the means to abort the job, which keeps the cell.
    pub(super) fn spill(&mut self, key: usize) -> (u64, Abort) {
        self.spilled += 1;
        let record = self.remove(key);
        (record.seq, record.abort)
    }

    /// Keeps spilled completions for the reader, behind those that were spilled before.
    pub(super) fn keep(&mut self, batch: Vec<Spilled<T, K>>) {
        self.spill.push_back(batch);
    }

    pub(super) fn take_spill(&mut self) -> Spill<T, K> {
        std::mem::take(&mut self.spill)
    }

    fn remove(&mut self, key: usize) -> Record {
        let record = self.in_cells.remove(key);
        if let Some(keys) = &mut self.keys {
            keys.remove(&record.id);
        }
        record
    }
}
