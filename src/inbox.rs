//! The inbox: a lock-free list that anyone pushes to and one taker empties at once.
//!
//! It is a Treiber stack whose head word also carries [`Tags`]. A push is one compare-and-swap, and
//! it learns which tags it replaced: whether the inbox was sealed, owned or parked is decided by the
//! same operation that links the node, so there is no window between the two to reason about. The
//! taker detaches everything with one compare-and-swap and reverses it into a first-in-first-out
//! [`Chain`], which it then walks without touching shared memory.
//!
//! A stack that is only ever emptied as a whole has no ABA problem: a push that compares equal to a
//! node that was taken, freed and pushed again links to exactly that node, which is the head. But
//! the pointer that it loaded before is one to the node that was freed, and Rust tells the two apart
//! although they compare equal. So lists are linked by address: a node's provenance is exposed when
//! it is linked, and taken up from its address when it is taken.
//!
//! ```text
//! head word:   [ address of the newest node, or 0 | tags (3 bits) ]
//!                      |
//!                      v
//!                   newest -> ... -> oldest -> null
//! ```
//!
//! R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986. The tag in the
//! head that tells a producer to wake the consumer is known from Linux's `llist`, libunifex's
//! `atomic_intrusive_queue` and the C++ Actor Framework's `lifo_inbox`.

mod hand;

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

pub(crate) use self::hand::Hand;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};

/// What an inbox links: the first word of a node, and its place in the list.
///
/// Aligned so that the lower bits of its address are free for [`Tags`].
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Link {
    /// The address of the next older node in an inbox, of the next younger in a [`Chain`], or 0.
    /// Used only by whoever owns the node: its pusher until the push succeeds, its taker from the
    /// take on.
    next: UnsafeCell<usize>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            next: UnsafeCell::new(0),
        }
    }
}

/// An owned value that can be turned into its [`Link`] and back.
///
/// # Safety
///
/// `into_link` gives up ownership and returns a link that stays valid, at the same address, until
/// `from_link` is called with it; the pointer may be used to reach the whole node.
pub(crate) unsafe trait Linked: Sized {
    /// Gives up ownership to the list.
    fn into_link(self) -> NonNull<Link>;

    /// Takes ownership back.
    ///
    /// # Safety
    ///
    /// `link` came from `into_link` of the same type, and is used for this once.
    unsafe fn from_link(link: NonNull<Link>) -> Self;
}

/// A set of flags in the head word of an inbox. What they mean is its owner's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tags(usize);

impl Tags {
    pub(crate) const NONE: Self = Self(0);
    const MASK: usize = align_of::<Link>() - 1;

    /// The tag number `bit`, of three.
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

    /// Whether any tag of `other` is in `self`.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a head word said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// No node was in the inbox.
    pub(crate) empty: bool,
    pub(crate) tags: Tags,
}

/// A lock-free list with any number of pushers, emptied as a whole: see the module.
#[derive(Debug)]
pub(crate) struct Inbox<T: Linked> {
    head: AtomicUsize,
    nodes: PhantomData<T>,
}

// SAFETY: an inbox hands values from the threads that push to the threads that take, and never
// lends a reference to one.
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

    /// Links a batch in, unless `edit` refuses.
    ///
    /// `edit` sees the head word and says which tags the new one has; `None` refuses. It may be
    /// called several times. The word that was replaced is returned, or, with the batch, the word
    /// that was refused.
    ///
    /// | head before | `edit` | head after | returns |
    /// |---|---|---|---|
    /// | `(list, tags)` | `Some(new)` | `(batch + list, new)` | `Ok((list, tags))` |
    /// | `(list, tags)` | `None` | unchanged | `Err` |
    pub(crate) fn push(
        &self,
        mut batch: Batch<T>,
        mut edit: impl FnMut(Seen) -> Option<Tags>,
    ) -> Result<Seen, Refused<T>> {
        let Some((newest, oldest)) = batch.ends else {
            return Ok(self.peek());
        };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let seen = decode(head);
            let Some(tags) = edit(seen) else {
                return Err(Refused { batch, seen });
            };
            set_next(oldest, node(head));
            // Ordering: Release publishes the batch to the Acquire of `take`; Acquire pairs with the
            // Release of `exchange_empty`, for a push whose `edit` takes ownership.
            match self.head.compare_exchange_weak(
                head,
                expose(newest) | tags.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    batch.ends = None;
                    return Ok(seen);
                }
                Err(actual) => head = actual,
            }
        }
    }

    /// Detaches everything and leaves the tags: `(list, tags)` becomes `(empty, tags)`.
    pub(crate) fn take(&self) -> Chain<T> {
        self.detach().into_chain()
    }

    /// As `take`, unless the word has one of these tags.
    pub(crate) fn take_unless(&self, tags: Tags) -> Option<Chain<T>> {
        self.detach_unless(tags).map(Pile::into_chain)
    }

    /// As `take`, and leaves the reversing to the caller.
    pub(crate) fn detach(&self) -> Pile<T> {
        self.detach_unless(Tags::NONE)
            .unwrap_or_else(|| Pile::new(0))
    }

    #[inline]
    fn detach_unless(&self, tags: Tags) -> Option<Pile<T>> {
        let mut head = self.head.load(Ordering::Relaxed);
        while node(head) != 0 && !decode(head).tags.has(tags) {
            // Ordering: Acquire pairs with the Release of every `push` since the list was last empty
            // (each is a read-modify-write, so the last one carries the others' releases).
            match self.head.compare_exchange_weak(
                head,
                head & Tags::MASK,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Pile::new(node(head))),
                Err(actual) => head = actual,
            }
        }
        (!decode(head).tags.has(tags)).then(|| Pile::new(0))
    }

    /// Changes the tags, if the inbox is empty and has exactly the tags `from`.
    ///
    /// | head before | head after | returns |
    /// |---|---|---|
    /// | `(empty, from)` | `(empty, to)` | `Ok` |
    /// | anything else | unchanged | `Err` of it |
    #[inline]
    pub(crate) fn exchange_empty(&self, from: Tags, to: Tags) -> Result<(), Seen> {
        // Ordering: Release publishes what the owner did to the next one; Acquire pairs with that
        // Release (of this function or, through it, of a `push` in between).
        self.head
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
            .map_err(decode)
    }

    /// Adds and removes tags whatever else the word says, and returns what it said.
    pub(crate) fn retag(&self, add: Tags, remove: Tags) -> Seen {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Ordering: AcqRel, each change of the tags with the next (here, in `exchange_empty` or in
            // `push`): of two parties that each change them, and then look at something else, one sees
            // what the other did before.
            match self.head.compare_exchange_weak(
                head,
                (head | add.0) & !remove.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return decode(head),
                Err(actual) => head = actual,
            }
        }
    }

    /// What the word says now. A hint: it may be different by the time it is used.
    #[inline]
    pub(crate) fn peek(&self) -> Seen {
        decode(self.head.load(Ordering::Relaxed))
    }
}

impl<T: Linked> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A batch that an inbox did not take, and why.
pub(crate) struct Refused<T: Linked> {
    pub(crate) batch: Batch<T>,
    pub(crate) seen: Seen,
}

/// Nodes linked for one push, newest first, as an inbox has them.
pub(crate) struct Batch<T: Linked> {
    /// The newest and the oldest node.
    ends: Option<(NonNull<Link>, NonNull<Link>)>,
    nodes: PhantomData<T>,
}

impl<T: Linked> Batch<T> {
    pub(crate) fn new() -> Self {
        Self {
            ends: None,
            nodes: PhantomData,
        }
    }

    /// A batch of one.
    #[inline]
    pub(crate) fn of(value: T) -> Self {
        let mut batch = Self::new();
        batch.push(value);
        batch
    }

    /// Adds `value` behind what is in the batch.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        let link = value.into_link();
        let oldest = match self.ends {
            Some((newest, oldest)) => {
                set_next(link, expose(newest));
                oldest
            }
            None => {
                set_next(link, 0);
                link
            }
        };
        self.ends = Some((link, oldest));
    }

    /// What is in the batch, oldest first.
    pub(crate) fn into_chain(mut self) -> Chain<T> {
        self.detach()
    }

    fn detach(&mut self) -> Chain<T> {
        let Some((newest, oldest)) = self.ends.take() else {
            return Chain::new();
        };
        // A push that was refused may have linked the oldest node to the inbox's.
        set_next(oldest, 0);
        Pile::new(expose(newest)).into_chain()
    }
}

impl<T: Linked> Drop for Batch<T> {
    fn drop(&mut self) {
        drop(self.detach());
    }
}

/// Detached nodes, newest first, as the inbox had them.
pub(crate) struct Pile<T: Linked> {
    /// The address of the newest node, or 0.
    newest: usize,
    nodes: PhantomData<T>,
}

impl<T: Linked> Pile<T> {
    fn new(newest: usize) -> Self {
        Self {
            newest,
            nodes: PhantomData,
        }
    }

    pub(crate) fn into_chain(mut self) -> Chain<T> {
        self.cut(usize::MAX).0
    }

    /// Takes up to `limit` nodes off, the newest ones, and says how many they are.
    #[inline]
    pub(crate) fn cut(&mut self, limit: usize) -> (Chain<T>, usize) {
        let Some(youngest) = link(self.newest) else {
            return (Chain::new(), 0);
        };
        let (mut younger, mut current, mut count) = (0, youngest, 1);
        loop {
            let older = next(current);
            set_next(current, younger);
            self.newest = older;
            match link(older) {
                Some(older) if count < limit => (younger, current) = (current.addr().get(), older),
                _ => break,
            }
            count += 1;
        }
        let chain = Chain {
            ends: Some((current, youngest)),
            nodes: PhantomData,
        };
        (chain, count)
    }
}

impl<T: Linked> Drop for Pile<T> {
    fn drop(&mut self) {
        drop(self.cut(usize::MAX));
    }
}

/// Taken nodes, oldest first, owned by whoever holds the chain.
#[derive(Debug)]
pub(crate) struct Chain<T: Linked> {
    /// The oldest and the youngest node.
    ends: Option<(NonNull<Link>, NonNull<Link>)>,
    nodes: PhantomData<T>,
}

// SAFETY: a chain owns its nodes.
unsafe impl<T: Linked + Send> Send for Chain<T> {}
// SAFETY: a shared chain only says whether it is empty.
unsafe impl<T: Linked + Send> Sync for Chain<T> {}

impl<T: Linked> Chain<T> {
    pub(crate) fn new() -> Self {
        Self {
            ends: None,
            nodes: PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    pub(crate) fn push_back(&mut self, value: T) {
        let link = value.into_link();
        set_next(link, 0);
        let oldest = match self.ends {
            Some((oldest, youngest)) => {
                set_next(youngest, expose(link));
                oldest
            }
            None => link,
        };
        self.ends = Some((oldest, link));
    }

    /// Moves all of another to the end of this one.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some((first, last)) = other.ends.take() else {
            return;
        };
        let oldest = match self.ends {
            Some((oldest, youngest)) => {
                set_next(youngest, expose(first));
                oldest
            }
            None => first,
        };
        self.ends = Some((oldest, last));
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let (oldest, youngest) = self.ends?;
        self.ends = link(next(oldest)).map(|next| (next, youngest));
        // SAFETY: the chain owns its nodes, each of which came from `into_link`; this one has just
        // left it.
        Some(unsafe { T::from_link(oldest) })
    }
}

impl<T: Linked> From<T> for Chain<T> {
    fn from(value: T) -> Self {
        let mut chain = Self::new();
        chain.push_back(value);
        chain
    }
}

impl<T: Linked> Drop for Chain<T> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}

/// The address of a node, from which [`link`] makes a pointer again.
#[inline]
fn expose(link: NonNull<Link>) -> usize {
    link.as_ptr().expose_provenance()
}

/// The node at an address, which was exposed when it was linked.
#[inline]
fn link(address: usize) -> Option<NonNull<Link>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// The address of the next node. The caller owns `link`'s node.
#[inline]
fn next(link: NonNull<Link>) -> usize {
    // SAFETY: links are valid while they are in a list (contract of `Linked`), and only the owner of
    // a node, which every caller is, reads or writes its `next`.
    unsafe { link.as_ref() }.next.with(|next| unsafe { *next })
}

/// Sets the address of the next node. The caller owns `link`'s node.
#[inline]
fn set_next(link: NonNull<Link>, to: usize) {
    // SAFETY: as in `next`.
    unsafe { link.as_ref() }
        .next
        .with_mut(|next| unsafe { *next = to });
}

/// The address in a head word.
#[inline]
fn node(head: usize) -> usize {
    head & !Tags::MASK
}

#[inline]
fn decode(head: usize) -> Seen {
    Seen {
        empty: node(head) == 0,
        tags: Tags(head & Tags::MASK),
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
