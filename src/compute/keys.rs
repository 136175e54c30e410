//! [`Keys`]: the inboxes of keyed tasks.

use std::hash::{BuildHasher, Hash, RandomState};

use crate::inbox::{FifoList, Inbox, Tags};
use crate::join::RunContext;
use crate::task::Task;

/// The number of inboxes for each thread.
const PER_THREAD: usize = if cfg!(all(test, throng_loom)) { 1 } else { 64 };

/// The inboxes of keyed tasks. A key falls on one of them, which it may share with others.
pub(super) struct Keys {
    inboxes: Box<[Inbox<Task<RunContext>>]>,
    hasher: RandomState,
}

impl Keys {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            inboxes: (0..threads * PER_THREAD).map(|_| Inbox::new()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the number of a key's inbox.
    pub(super) fn find(&self, key: &(impl Hash + ?Sized)) -> usize {
        (self.hasher.hash_one(key) % self.inboxes.len() as u64) as usize
    }

    pub(super) fn inbox(&self, number: usize) -> &Inbox<Task<RunContext>> {
        &self.inboxes[number]
    }

    /// Returns `true` if no key has a task, and no drain of one is on its way to a lane.
    pub(super) fn are_idle(&self) -> bool {
        // An inbox that nobody owns is empty.
        self.inboxes
            .iter()
            .all(|inbox| inbox.peek().tags == Tags::NONE)
    }

    /// Takes all queued tasks.
    pub(super) fn take_all(&self) -> impl Iterator<Item = FifoList<Task<RunContext>>> {
        self.inboxes.iter().map(Inbox::take)
    }
}
