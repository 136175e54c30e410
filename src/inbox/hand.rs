//! What a taker has in hand: a chain that it works off while others may take the rest.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::{Chain, Linked, expose, link, next};
use crate::sync::{AtomicUsize, Ordering};

/// A chain that its owner works off, and that anybody may take away as a whole.
///
/// The owner takes it away too, each time: it pops a node and puts the rest back. So whoever takes
/// has the nodes for itself: no node is ever looked at that is somebody else's. While one of its nodes is being worked on, the rest can be had by others.
#[derive(Debug)]
pub(crate) struct Hand<T: Linked> {
    /// The address of the oldest node, or 0. Only the owner sets it to anything else than 0, and only
    /// when it is 0.
    oldest: AtomicUsize,
    nodes: PhantomData<T>,
}

// SAFETY: as for an inbox.
unsafe impl<T: Linked + Send> Send for Hand<T> {}
// SAFETY: as for an inbox.
unsafe impl<T: Linked + Send> Sync for Hand<T> {}

impl<T: Linked> Hand<T> {
    pub(crate) fn new() -> Self {
        Self {
            oldest: AtomicUsize::new(0),
            nodes: PhantomData,
        }
    }

    /// Takes the oldest node. For the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        // A look first: only the owner puts something there.
        // Ordering: Acquire, here and in the swap, pairs with the Release in `seize`: what the owner puts
        // there next comes after what was taken.
        if self.oldest.load(Ordering::Acquire) == 0 {
            return None;
        }
        let oldest = link(self.oldest.swap(0, Ordering::Acquire))?;
        let rest = next(oldest);
        if rest != 0 {
            self.put_back(rest);
        }
        // SAFETY: the node came from `into_link`, and was taken from the list by the swap.
        Some(unsafe { T::from_link(oldest) })
    }

    /// Fills an empty hand. For the owner.
    #[inline]
    pub(crate) fn fill(&self, chain: Chain<T>) {
        let chain = ManuallyDrop::new(chain);
        if let Some((oldest, _)) = chain.ends {
            self.put_back(expose(oldest));
        }
    }

    /// Takes everything, and says how much it is. For anybody.
    pub(crate) fn seize(&self) -> (Chain<T>, usize) {
        let mut head = self.oldest.load(Ordering::Relaxed);
        let oldest = loop {
            if head == 0 {
                return (Chain::new(), 0);
            }
            // Not a swap: who finds nothing must change nothing, since the owner may be about to put
            // something back.
            // Ordering: Acquire pairs with the Release in `put_back`, Release with the Acquire in `pop`.
            match self
                .oldest
                .compare_exchange_weak(head, 0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break link(head),
                Err(actual) => head = actual,
            }
        };
        let Some(oldest) = oldest else {
            return (Chain::new(), 0);
        };
        let (mut youngest, mut count) = (oldest, 1);
        while let Some(younger) = link(next(youngest)) {
            (youngest, count) = (younger, count + 1);
        }
        let chain = Chain {
            ends: Some((oldest, youngest)),
            nodes: PhantomData,
        };
        (chain, count)
    }

    /// Whether there is nothing to take. A hint, but for the owner.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn put_back(&self, oldest: usize) {
        debug_assert!(self.is_empty(), "two owners");
        // Ordering: Release publishes the nodes to the Acquire of `seize`.
        self.oldest.store(oldest, Ordering::Release);
    }
}

impl<T: Linked> Drop for Hand<T> {
    fn drop(&mut self) {
        drop(self.seize());
    }
}
