//! Completions without their cells: nobody has read them for long, or it is not their turn.

use std::collections::VecDeque;
use std::vec;

use super::Id;
use crate::task::Outcome;
use crate::unwind::contain;

/// A completion that was moved out of its cell.
pub(crate) struct Moved<T, K> {
    pub(crate) id: Id,
    /// Its place in the order of submission.
    pub(crate) turn: u64,
    pub(crate) attempts: u32,
    /// `None`: taken.
    parts: Option<(K, Outcome<T>)>,
}

impl<T, K> Moved<T, K> {
    pub(super) fn new(id: Id, turn: u64, attempts: u32, tag: K, outcome: Outcome<T>) -> Self {
        let parts = Some((tag, outcome));
        Self {
            id,
            turn,
            attempts,
            parts,
        }
    }

    pub(crate) fn into_parts(mut self) -> (K, Outcome<T>) {
        self.parts.take().expect("they are taken once")
    }
}

impl<T, K> Drop for Moved<T, K> {
    fn drop(&mut self) {
        if let Some((tag, outcome)) = self.parts.take() {
            contain(|| drop(tag));
            contain(|| drop(outcome));
        }
    }
}

/// Completions that were moved out of their cells, oldest first, as many at a time as there were: none
/// takes more than itself.
pub(crate) struct Backlog<T, K>(VecDeque<vec::IntoIter<Moved<T, K>>>);

impl<T, K> Backlog<T, K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push_back(&mut self, moved: Vec<Moved<T, K>>) {
        if !moved.is_empty() {
            self.0.push_back(moved.into_iter());
        }
    }

    #[cold]
    pub(crate) fn pop_front(&mut self) -> Option<Moved<T, K>> {
        let oldest = self.0.front_mut()?;
        let moved = oldest.next();
        if oldest.len() == 0 {
            self.0.pop_front();
        }
        moved
    }

    pub(super) fn turns(&mut self) -> impl Iterator<Item = &mut u64> {
        let all = self.0.iter_mut().flat_map(|moved| moved.as_mut_slice());
        all.map(|moved| &mut moved.turn)
    }
}

impl<T, K> Default for Backlog<T, K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}
