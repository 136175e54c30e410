//! [`LocalQueue`]: tasks that one thread runs in order, and that others may steal.

use std::marker::PhantomData;

use super::list::{FifoList, Linked, expose, link, next};
use crate::sync::{AtomicUsize, Ordering};

/// A list that its owner pops from, and that any thread may steal as a whole.
///
/// The owner steals the list too, for each pop: it removes one node and puts the rest back. So a thread owns every node
/// that it reads, and others can steal the rest while the owner works on one.
#[derive(Debug)]
pub(crate) struct LocalQueue<T: Linked> {
    /// The address of the oldest node, or 0. Only the owner sets it to anything but 0, and only when it is 0.
    oldest: AtomicUsize,
    nodes: PhantomData<T>,
}

// SAFETY: as for an inbox.
unsafe impl<T: Linked + Send> Send for LocalQueue<T> {}
// SAFETY: as for an inbox.
unsafe impl<T: Linked + Send> Sync for LocalQueue<T> {}

impl<T: Linked> LocalQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            oldest: AtomicUsize::new(0),
            nodes: PhantomData,
        }
    }

    /// Removes the oldest node. For the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        // A load first, which is cheaper: only the owner adds nodes.
        // Ordering: Acquire, here and in the swap, pairs with the Release in `detach`: what the owner puts there
        // next comes after the theft.
        if self.oldest.load(Ordering::Acquire) == 0 {
            return None;
        }
        let oldest = link(self.oldest.swap(0, Ordering::Acquire))?;
        let rest = next(oldest);
        if rest != 0 {
            self.publish(rest);
        }
        // SAFETY: the node came from `into_link`, and was taken from the list by the swap.
        Some(unsafe { T::from_link(oldest) })
    }

    /// Fills the queue, which is empty. For the owner.
    #[inline]
    pub(crate) fn fill(&self, tasks: FifoList<T>) {
        if let Some(oldest) = tasks.into_oldest() {
            self.publish(expose(oldest));
        }
    }

    /// Takes everything, and returns it with the number of nodes. For any thread.
    pub(crate) fn steal_all(&self) -> (FifoList<T>, usize) {
        let Some(oldest) = link(self.detach()) else {
            return (FifoList::new(), 0);
        };
        let (mut youngest, mut count) = (oldest, 1);
        while let Some(younger) = link(next(youngest)) {
            (youngest, count) = (younger, count + 1);
        }
        (FifoList::between((oldest, youngest)), count)
    }

    fn detach(&self) -> usize {
        let mut head = self.oldest.load(Ordering::Relaxed);
        // Not a swap: a thief that finds nothing must change nothing, since the owner may be about to put nodes back.
        while head != 0 {
            // Ordering: Acquire pairs with the Release in `publish`, Release with the Acquire in `pop`.
            match self
                .oldest
                .compare_exchange_weak(head, 0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(actual) => head = actual,
            }
        }
        head
    }

    /// Returns `true` if there is nothing to take. A hint, except for the owner.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn publish(&self, oldest: usize) {
        debug_assert!(self.is_empty(), "two owners");
        // Ordering: Release publishes the nodes to the Acquire in `detach`.
        self.oldest.store(oldest, Ordering::Release);
    }
}

impl<T: Linked> Drop for LocalQueue<T> {
    fn drop(&mut self) {
        drop(self.steal_all());
    }
}
