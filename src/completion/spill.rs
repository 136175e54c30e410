//! Spilled completions: those that were moved out of their cells.
//!
//! A cell is several times as large as what most jobs return. Completions that have been unread for long, or that
//! finished before their turn in an [ordered](super::CompletionStream::ordered) stream, leave their cells, which are
//! then recycled.

use std::collections::VecDeque;
use std::vec;

use crate::join::Id;
use crate::task::Outcome;
use crate::unwind::contain;

/// A completion that was moved out of its cell.
pub(super) struct Spilled<T, K> {
    pub(super) id: Id,
    /// The job's position in the order of submission.
    pub(super) seq: u64,
    /// `None` once taken.
    parts: Option<(K, Outcome<T>)>,
}

impl<T, K> Spilled<T, K> {
    pub(super) fn new(id: Id, seq: u64, tag: K, outcome: Outcome<T>) -> Self {
        let parts = Some((tag, outcome));
        Self { id, seq, parts }
    }

    pub(super) fn into_parts(mut self) -> (Id, K, Outcome<T>) {
        let (tag, outcome) = self.parts.take().expect("the parts are taken only once");
        (self.id, tag, outcome)
    }
}

impl<T, K> Drop for Spilled<T, K> {
    fn drop(&mut self) {
        if let Some((tag, outcome)) = self.parts.take() {
            contain(|| drop(tag));
            contain(|| drop(outcome));
        }
    }
}

/// Spilled completions, oldest first, in the batches in which they were spilled. A batch is exactly as large as its
/// completions.
pub(super) struct Spill<T, K>(VecDeque<vec::IntoIter<Spilled<T, K>>>);

impl<T, K> Spill<T, K> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push_back(&mut self, batch: Vec<Spilled<T, K>>) {
        if !batch.is_empty() {
            self.0.push_back(batch.into_iter());
        }
    }

    #[cold]
    pub(super) fn pop_front(&mut self) -> Option<Spilled<T, K>> {
        let batch = self.0.front_mut()?;
        let oldest = batch.next();
        if batch.len() == 0 {
            self.0.pop_front();
        }
        oldest
    }

    pub(super) fn seqs_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let all = self.0.iter_mut().flat_map(|batch| batch.as_mut_slice());
        all.map(|spilled| &mut spilled.seq)
    }
}

impl<T, K> Default for Spill<T, K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}
