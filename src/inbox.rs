//! The inbox: a lock-free list that any thread pushes to and one taker empties at once.
//!
//! It is a Treiber stack whose head word also carries [`Tags`]. A push is one compare-and-swap, and it returns the tags
//! that it replaced: the operation that links the node also determines whether the inbox was sealed, owned or parked, so
//! there is no window between the two to reason about. The taker detaches everything with one compare-and-swap and
//! reverses it into a [`FifoList`], which it then walks without touching shared memory.
//!
//! ```text
//! head word:   [ address of the newest node, or 0 | tags (3 bits) ]
//!                      |
//!                      v
//!                   newest -> ... -> oldest -> null
//! ```
//!
//! **ABA.** A stack that is only ever emptied as a whole has no ABA problem: a push that compares equal to a node that
//! was taken, freed and pushed again links to exactly that node, which is the head. But the pointer that it loaded before
//! is one to the freed node, and Rust tells the two apart although they compare equal. So lists are linked by address: a
//! node's provenance is exposed when it is linked, and recovered from its address when it is taken.
//!
//! R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986. The tag in the head that tells a
//! producer to wake the consumer is known from Linux's `llist`, libunifex's `atomic_intrusive_queue` and the C++ Actor
//! Framework's `lifo_inbox`.

mod list;
mod local;

use std::marker::PhantomData;

pub(crate) use self::list::{Batch, FifoList, LifoList, Link, Linked};
use self::list::{expose, set_next};
pub(crate) use self::local::LocalQueue;
use crate::sync::{AtomicUsize, Ordering};

/// A set of flags in the head word of an inbox. The owner of the inbox defines their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tags(usize);

impl Tags {
    pub(crate) const NONE: Self = Self(0);
    const MASK: usize = align_of::<Link>() - 1;

    /// The tag with number `bit`, from 0 to 2.
    pub(crate) const fn bit(bit: u32) -> Self {
        let tag = 1 << bit;
        assert!(tag & Self::MASK != 0);
        Self(tag)
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns `true` if `self` has any tag of `other`.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A decoded head word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The inbox had no node.
    pub(crate) empty: bool,
    pub(crate) tags: Tags,
}

/// A lock-free list with any number of pushers, emptied as a whole: see the module.
#[derive(Debug)]
pub(crate) struct Inbox<T: Linked> {
    head: AtomicUsize,
    nodes: PhantomData<T>,
}

// SAFETY: an inbox hands values from the threads that push to the threads that take, and never lends a reference to one.
unsafe impl<T: Linked + Send> Send for Inbox<T> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send> Sync for Inbox<T> {}

impl<T: Linked> Inbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicUsize::new(0),
            nodes: PhantomData,
        }
    }

    /// Pushes a batch, unless `edit` refuses.
    ///
    /// `edit` receives the head and returns the tags of the new one, or `None` to refuse. It may be called several
    /// times. Returns the head that was replaced.
    ///
    /// Once the batch is in the inbox, the call does not access the inbox again. So the thread that takes the batch may
    /// free the inbox.
    ///
    /// | head before | `edit` | head after | returns |
    /// |---|---|---|---|
    /// | `(list, tags)` | `Some(new)` | `(batch + list, new)` | `Ok((list, tags))` |
    /// | `(list, tags)` | `None` | unchanged | `Err` |
    pub(crate) fn push(
        &self,
        batch: Batch<T>,
        mut edit: impl FnMut(Head) -> Option<Tags>,
    ) -> Result<Head, Refused<T>> {
        let Some((newest, oldest)) = batch.ends() else {
            return Ok(self.peek());
        };
        let mut word = self.head.load(Ordering::Relaxed);
        loop {
            let head = decode(word);
            let Some(tags) = edit(head) else {
                return Err(Refused { batch, head });
            };
            set_next(oldest, node(word));
            // Ordering: Release publishes the batch to the Acquire of `take`; Acquire pairs with the Release of
            // `exchange_empty`, for a push whose `edit` takes ownership.
            match self.head.compare_exchange_weak(
                word,
                expose(newest) | tags.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    batch.forget();
                    return Ok(head);
                }
                Err(actual) => word = actual,
            }
        }
    }

    /// Detaches everything and leaves the tags: `(list, tags)` becomes `(empty, tags)`.
    pub(crate) fn take(&self) -> FifoList<T> {
        self.detach().into_fifo()
    }

    /// As `take`, unless the head has one of these tags.
    pub(crate) fn take_unless(&self, tags: Tags) -> Option<FifoList<T>> {
        self.detach_unless(tags).map(LifoList::into_fifo)
    }

    /// As `take`, and leaves it to the caller to reverse the list.
    pub(crate) fn detach(&self) -> LifoList<T> {
        self.detach_unless(Tags::NONE)
            .unwrap_or_else(|| LifoList::new(0))
    }

    #[inline]
    fn detach_unless(&self, tags: Tags) -> Option<LifoList<T>> {
        let mut word = self.head.load(Ordering::Relaxed);
        while node(word) != 0 && !decode(word).tags.has(tags) {
            // Ordering: Acquire pairs with the Release of every `push` since the list was last empty (each is a
            // read-modify-write, so the last one carries the others' releases).
            match self.head.compare_exchange_weak(
                word,
                word & Tags::MASK,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(LifoList::new(node(word))),
                Err(actual) => word = actual,
            }
        }
        (!decode(word).tags.has(tags)).then(|| LifoList::new(0))
    }

    /// Changes the tags, if the inbox is empty and has exactly the tags `from`.
    ///
    /// | head before | head after | returns |
    /// |---|---|---|
    /// | `(empty, from)` | `(empty, to)` | `Ok` |
    /// | anything else | unchanged | `Err` with the head |
    #[inline]
    pub(crate) fn exchange_empty(&self, from: Tags, to: Tags) -> Result<(), Head> {
        // Ordering: Release publishes what the owner did to the next one; Acquire pairs with that Release (of this
        // function or, through it, of a `push` in between).
        self.head
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(decode)
    }

    /// Adds and removes tags, whatever the head is, and returns the head that was replaced.
    pub(crate) fn retag(&self, add: Tags, remove: Tags) -> Head {
        let mut word = self.head.load(Ordering::Relaxed);
        loop {
            // Ordering: AcqRel, each change of the tags with the next (here, in `exchange_empty` or in `push`): of two
            // threads that each change them, and then read something else, one sees what the other did before.
            match self.head.compare_exchange_weak(
                word,
                (word | add.0) & !remove.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return decode(word),
                Err(actual) => word = actual,
            }
        }
    }

    /// Returns the present head. A hint: it may be out of date before it is used.
    #[inline]
    pub(crate) fn peek(&self) -> Head {
        decode(self.head.load(Ordering::Relaxed))
    }
}

impl<T: Linked> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A batch that an inbox refused, and the head at that time.
pub(crate) struct Refused<T: Linked> {
    pub(crate) batch: Batch<T>,
    pub(crate) head: Head,
}

/// The address in a head word.
#[inline]
fn node(word: usize) -> usize {
    word & !Tags::MASK
}

#[inline]
fn decode(word: usize) -> Head {
    Head {
        empty: node(word) == 0,
        tags: Tags(word & Tags::MASK),
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
