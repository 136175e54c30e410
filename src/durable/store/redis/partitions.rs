//! [`Partitions`]: the parts of a store.

use std::ops::Range;

use crate::durable::TaskId;
use crate::durable::store::Epoch;

/// The parts of a store, each with keys of its own, and nothing in common: what is in one may be on
/// another server than the rest. Where a task is, its id says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partitions(usize);

/// The most there can be. A claim has the epoch of its partition, times this, plus its number.
pub(super) const MOST: usize = 64;

impl Partitions {
    /// At least one, and not more than there can be.
    pub(super) fn new(count: usize) -> Self {
        Self(count.clamp(1, MOST))
    }

    pub(super) fn count(self) -> usize {
        self.0
    }

    pub(super) fn all(self) -> Range<usize> {
        0..self.0
    }

    /// Where a task is: the FNV-1a hash of its id says so, as it did in every version of this crate.
    pub(super) fn of_task(self, id: TaskId) -> usize {
        const OFFSET: u32 = 0x811c_9dc5;
        const PRIME: u32 = 0x0100_0193;
        let hash = id.to_bytes().into_iter().fold(OFFSET, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(PRIME)
        });
        hash as usize % self.0
    }

    /// Where a claim is.
    pub(super) fn of_claim(self, epoch: Epoch) -> usize {
        (epoch % MOST as Epoch) as usize % self.0
    }

    /// What belongs to tasks, by their partitions: those that have any.
    pub(super) fn split<T>(self, all: Vec<T>, id: impl Fn(&T) -> TaskId) -> Vec<(usize, Vec<T>)> {
        self.split_by(all, |it| self.of_task(id(it)))
    }

    pub(super) fn split_claims(self, claims: Vec<Epoch>) -> Vec<(usize, Vec<Epoch>)> {
        self.split_by(claims, |&epoch| self.of_claim(epoch))
    }

    fn split_by<T>(self, all: Vec<T>, of: impl Fn(&T) -> usize) -> Vec<(usize, Vec<T>)> {
        let mut parts: Vec<_> = self
            .all()
            .map(|partition| (partition, Vec::new()))
            .collect();
        for it in all {
            parts[of(&it)].1.push(it);
        }
        parts.retain(|(_, part)| !part.is_empty());
        parts
    }
}

/// The epoch of a claim in the whole store.
pub(super) fn whole(epoch: Epoch, partition: usize) -> Epoch {
    epoch * MOST as Epoch + partition as Epoch
}

/// The epoch of a claim in its partition.
pub(super) fn own(epoch: Epoch) -> Epoch {
    epoch / MOST as Epoch
}
