//! [`Partitions`]: the partitions of a store.

use std::ops::Range;

use crate::durable::TaskId;
use crate::durable::key::KeyHash;
use crate::durable::queue::name::QueueName;
use crate::durable::store::Epoch;

/// The partitions of a store. Each has its own keys and shares nothing with the others, so they can be on different
/// nodes of a cluster. The id of a task determines its partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partitions(usize);

/// The maximum number of partitions. The epoch of a claim is its epoch within the partition, times this, plus the number
/// of the partition.
pub(super) const MAX_PARTITIONS: usize = 64;

impl Partitions {
    /// The number must be at least one and at most [`MAX_PARTITIONS`].
    pub(super) fn new(count: usize) -> Self {
        debug_assert!((1..=MAX_PARTITIONS).contains(&count));
        Self(count)
    }

    pub(super) fn count(self) -> usize {
        self.0
    }

    pub(super) fn all(self) -> Range<usize> {
        0..self.0
    }

    /// Returns the partition of a task: the FNV-1a hash of its id, in every version of this crate.
    pub(super) fn of_task(self, id: TaskId) -> usize {
        self.of_bytes(&id.to_bytes())
    }

    /// Returns the partition of a named queue, in which all of its tasks are: so a script can compare its limits with all of
    /// them. The tasks of the default queue are in all partitions.
    pub(super) fn of_queue(self, queue: &QueueName) -> Option<usize> {
        let name = queue.as_str().as_bytes();
        (!queue.is_default()).then(|| self.of_bytes(name))
    }

    /// Returns the partition that a named queue or, in the default queue, the key determines for a task. Tasks with one key are in one
    /// partition, so one script sees both the new task and the task that holds the key. `None`: the id determines the partition.
    pub(super) fn of_queue_or_key(self, queue: &QueueName, key: Option<KeyHash>) -> Option<usize> {
        let of_key = key.map(|KeyHash(hash)| self.of_bytes(&hash));
        self.of_queue(queue).or(of_key)
    }

    fn of_bytes(self, bytes: &[u8]) -> usize {
        const OFFSET: u32 = 0x811c_9dc5;
        const PRIME: u32 = 0x0100_0193;
        let hash = bytes.iter().fold(OFFSET, |hash, &byte| {
            (hash ^ u32::from(byte)).wrapping_mul(PRIME)
        });
        hash as usize % self.0
    }

    /// Returns the partition of a claim.
    pub(super) fn of_claim(self, epoch: Epoch) -> usize {
        (epoch % MAX_PARTITIONS as Epoch) as usize % self.0
    }

    /// Groups values by the partitions of their tasks, and leaves out partitions without any.
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

/// Returns the epoch of a claim in the whole store, given the one in its partition.
pub(super) fn whole(epoch: Epoch, partition: usize) -> Epoch {
    epoch * MAX_PARTITIONS as Epoch + partition as Epoch
}

/// Returns the epoch of a claim in its partition, given the one in the whole store.
pub(super) fn own(epoch: Epoch) -> Epoch {
    epoch / MAX_PARTITIONS as Epoch
}
