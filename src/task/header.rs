//! The beginning of a cell, and the operations of a type-erased one.

use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::fault::{Fault, Outcome};
use super::job::Ran;
use super::slab::Offset;
use super::state::State;
use crate::inbox::Link;

/// The beginning of every cell.
#[repr(C)]
pub(super) struct Header {
    link: Link,
    pub(super) vtable: &'static Vtable,
    pub(super) state: State,
    /// Where the cell lies in its page.
    pub(super) offset: Offset,
}

impl Header {
    pub(super) fn new(vtable: &'static Vtable, state: State, offset: Offset) -> Self {
        Self {
            link: Link::new(),
            vtable,
            state,
            offset,
        }
    }
}

/// The beginning of a cell whose destination is known.
#[repr(C)]
pub(super) struct Prefix<D> {
    pub(super) header: Header,
    pub(super) destination: D,
}

/// The operations of a type-erased cell. Each function needs a live cell of the type that the table was made for.
pub(super) struct Vtable {
    /// Runs a claimed job. If it returns `Ready`, the job has ended, and the reference that was used is gone.
    pub(super) poll: unsafe fn(NonNull<Header>, *mut (), &mut Context<'_>) -> Poll<Ran>,
    /// Drops a claimed job instead of running it, and takes the reference.
    pub(super) cancel: unsafe fn(NonNull<Header>, Fault),
    /// Tells a job that has started that it was aborted.
    pub(super) notify: unsafe fn(NonNull<Header>),
    /// Passes the runner's reference to a job that was suspended and has been woken to its destination. `None` if the
    /// destination resumes no jobs.
    pub(super) resume: Option<unsafe fn(NonNull<Header>)>,
    /// Returns the address of the outcome.
    pub(super) outcome: unsafe fn(NonNull<Header>) -> NonNull<()>,
    /// Frees the memory. Job and outcome are gone.
    pub(super) free: unsafe fn(NonNull<Header>),
    /// See [`Job::BLOCKING`](super::job::Job::BLOCKING).
    pub(super) blocking: bool,
    /// Parties other than the runner may hold a reference.
    pub(super) shared: bool,
}

/// Moves the outcome out of a cell.
///
/// # Safety
///
/// The cell is live; its outcome is a `T`'s, written, the caller's, and not taken yet (rule 5).
pub(super) unsafe fn take_outcome<T>(header: NonNull<Header>) -> Outcome<T> {
    // SAFETY: as the caller says.
    unsafe {
        let outcome = (header.as_ref().vtable.outcome)(header);
        outcome.cast::<Outcome<T>>().read()
    }
}

/// Writes the outcome of a cell.
///
/// # Safety
///
/// The cell is live and the caller's alone. Its output is a `T`, its job needs no drop, and it has no outcome yet.
pub(super) unsafe fn put_outcome<T>(header: NonNull<Header>, outcome: Outcome<T>) {
    // SAFETY: as the caller says (rule 5).
    unsafe {
        let target = (header.as_ref().vtable.outcome)(header);
        target.cast::<Outcome<T>>().write(outcome);
    }
}

/// Gives two references back, and frees the cell if they were the last.
///
/// # Safety
///
/// The references are the caller's (rule 2).
#[inline]
pub(super) unsafe fn release_two(header: NonNull<Header>) {
    // SAFETY: as in `release`.
    unsafe {
        let vtable = header.as_ref().vtable;
        if header.as_ref().state.release_two() {
            (vtable.free)(header);
        }
    }
}

/// Gives a reference back, and frees the cell if it was the last one.
///
/// # Safety
///
/// The reference is the caller's (rule 2).
#[inline]
pub(super) unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the reference keeps the cell alive until it is given back; nothing follows the last one (rule 7).
    unsafe {
        let vtable = header.as_ref().vtable;
        if header.as_ref().state.release() {
            (vtable.free)(header);
        }
    }
}
