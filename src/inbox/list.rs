//! Intrusive lists: [`Batch`], [`LifoList`] and [`FifoList`].
//!
//! A list links the nodes of an [`Inbox`](super::Inbox) that one thread owns. It is linked by address, with exposed
//! provenance: the head of the module says why.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::sync::UnsafeCell;

/// The first word of a node, by which an inbox links it.
///
/// Its alignment leaves the lower bits of an address free for the tags of an inbox.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Link {
    /// The address of the next older node in an inbox, or of the next younger one in a [`FifoList`], or 0. Only the
    /// owner of the node uses it: the thread that pushes it until the push succeeds, and then the thread that takes it.
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
/// `into_link` gives up ownership and returns a link that stays valid, at the same address, until `from_link` is called
/// with it. The pointer may be used to reach the whole node.
pub(crate) unsafe trait Linked: Sized {
    /// Gives up ownership to a list.
    fn into_link(self) -> NonNull<Link>;

    /// Takes ownership back.
    ///
    /// # Safety
    ///
    /// `link` came from `into_link` of the same type, and is used for this once.
    unsafe fn from_link(link: NonNull<Link>) -> Self;
}

/// Nodes that are linked for one push, newest first, as an inbox has them.
pub(crate) struct Batch<T: Linked> {
    ends: Option<Ends>,
    nodes: PhantomData<T>,
}

/// The first and the last node of a list.
type Ends = (NonNull<Link>, NonNull<Link>);

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

    /// Adds `value` as the newest node.
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

    /// Returns the newest and the oldest node.
    #[inline]
    pub(super) fn ends(&self) -> Option<Ends> {
        self.ends
    }

    /// Gives the nodes up to an inbox that has linked them.
    #[inline]
    pub(super) fn forget(mut self) {
        self.ends = None;
    }

    pub(crate) fn into_fifo(mut self) -> FifoList<T> {
        self.take()
    }

    fn take(&mut self) -> FifoList<T> {
        let Some((newest, oldest)) = self.ends.take() else {
            return FifoList::new();
        };
        // A push that was refused may have linked the oldest node to the inbox's.
        set_next(oldest, 0);
        LifoList::new(expose(newest)).into_fifo()
    }
}

impl<T: Linked> Drop for Batch<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Nodes taken from an inbox, newest first.
pub(crate) struct LifoList<T: Linked> {
    /// The address of the newest node, or 0.
    newest: usize,
    nodes: PhantomData<T>,
}

impl<T: Linked> LifoList<T> {
    /// The list that begins at an address that was exposed, or at 0: the empty list. The caller gives the nodes up.
    #[inline]
    pub(super) fn new(newest: usize) -> Self {
        Self {
            newest,
            nodes: PhantomData,
        }
    }

    pub(crate) fn into_fifo(mut self) -> FifoList<T> {
        self.take_newest(usize::MAX).0
    }

    /// Removes up to `limit` of the newest nodes, and returns them with their number.
    #[inline]
    pub(crate) fn take_newest(&mut self, limit: usize) -> (FifoList<T>, usize) {
        let Some(youngest) = link(self.newest) else {
            return (FifoList::new(), 0);
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
        (FifoList::between((current, youngest)), count)
    }
}

impl<T: Linked> Drop for LifoList<T> {
    fn drop(&mut self) {
        drop(self.take_newest(usize::MAX));
    }
}

/// Nodes in the order in which they were pushed, oldest first.
#[derive(Debug)]
pub(crate) struct FifoList<T: Linked> {
    /// The oldest and the youngest node.
    ends: Option<Ends>,
    nodes: PhantomData<T>,
}

// SAFETY: a list owns its nodes.
unsafe impl<T: Linked + Send> Send for FifoList<T> {}
// SAFETY: a shared list only answers whether it is empty.
unsafe impl<T: Linked + Send> Sync for FifoList<T> {}

impl<T: Linked> FifoList<T> {
    pub(crate) fn new() -> Self {
        Self {
            ends: None,
            nodes: PhantomData,
        }
    }

    /// The list from the oldest node to the youngest, which are linked. The caller gives the nodes up.
    #[inline]
    pub(super) fn between(ends: Ends) -> Self {
        Self {
            ends: Some(ends),
            nodes: PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    pub(crate) fn push_back(&mut self, value: T) {
        let link = value.into_link();
        set_next(link, 0);
        self.link_back((link, link));
    }

    /// Moves all nodes of `other` to the end of this list.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if let Some(ends) = other.ends.take() {
            self.link_back(ends);
        }
    }

    fn link_back(&mut self, (first, last): Ends) {
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
        // SAFETY: the list owns its nodes, each of which came from `into_link`; this one has just left it.
        Some(unsafe { T::from_link(oldest) })
    }

    /// Gives the nodes up, and returns the oldest one.
    #[inline]
    pub(super) fn into_oldest(mut self) -> Option<NonNull<Link>> {
        self.ends.take().map(|(oldest, _)| oldest)
    }
}

impl<T: Linked> From<T> for FifoList<T> {
    fn from(value: T) -> Self {
        let mut list = Self::new();
        list.push_back(value);
        list
    }
}

impl<T: Linked> Drop for FifoList<T> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}

/// The address of a node, from which [`link`] makes a pointer again.
#[inline]
pub(super) fn expose(link: NonNull<Link>) -> usize {
    link.as_ptr().expose_provenance()
}

/// The node at an address, which was exposed when it was linked.
#[inline]
pub(super) fn link(address: usize) -> Option<NonNull<Link>> {
    NonNull::new(ptr::with_exposed_provenance_mut(address))
}

/// The address of the next node. The caller owns the node of `link`.
#[inline]
pub(super) fn next(link: NonNull<Link>) -> usize {
    // SAFETY: links are valid while they are in a list (contract of `Linked`), and only the owner of a node, which
    // every caller is, reads or writes its `next`.
    unsafe { link.as_ref() }.next.with(|next| unsafe { *next })
}

/// Sets the address of the next node. The caller owns the node of `link`.
#[inline]
pub(super) fn set_next(link: NonNull<Link>, to: usize) {
    // SAFETY: as in `next`.
    unsafe { link.as_ref() }
        .next
        .with_mut(|next| unsafe { *next = to });
}
