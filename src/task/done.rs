//! [`Done`]: a cell whose outcome is written, on its way to its [`Destination`].

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;

use super::abort::Abort;
use super::fault::Outcome;
use super::header::{Header, Prefix, release, release_two, take_outcome};
use super::resume::Resumed;
use super::state::Completion;
use crate::unwind::contain;

/// Determines where a finished cell goes.
pub(crate) trait Destination<T>: Sized + Send + Sync + 'static {
    /// `true` if jobs with this destination can be suspended. The destination then passes them to a runner when they
    /// are woken.
    const RESUMES: bool = false;

    /// Takes a cell whose outcome is written. Must not unwind.
    fn deliver(done: Done<T, Self>);

    /// Passes a job that was suspended, and has been woken, to a runner. Must not unwind, and must not drop a job: the
    /// party that wakes it may hold a lock that the drop acquires, or may be such a drop itself.
    fn resume(&self, _: Resumed) {
        unreachable!("this destination resumes no jobs");
    }
}

/// A reference to a cell whose outcome is written.
///
/// Dropping it drops the outcome, unless the outcome was taken before.
#[must_use]
pub(crate) struct Done<T, D> {
    header: NonNull<Header>,
    types: PhantomData<(T, D)>,
}

// SAFETY: a `Done` passes an outcome and a destination on, both of which are Send (rule 5).
unsafe impl<T: Send, D: Send> Send for Done<T, D> {}

impl<T, D> Done<T, D> {
    /// # Safety
    ///
    /// The cell is live; its destination is a `D`; its outcome is a `T`'s, written, and the caller's (rule 5); so is the
    /// reference, which the caller gives away.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self {
            header,
            types: PhantomData,
        }
    }

    pub(crate) fn destination(&self) -> &D {
        // SAFETY: this reference keeps the cell alive, which begins as its prefix does (rules 1 and 2).
        unsafe { &self.header.cast::<Prefix<D>>().as_ref().destination }
    }

    /// Takes the outcome out. The cell stays until the second value is released.
    pub(crate) fn take_outcome(self) -> (Outcome<T>, Spent<D>) {
        let header = ManuallyDrop::new(self).header;
        let destination = PhantomData;
        // SAFETY: the outcome is this value's (rule 5).
        let outcome = unsafe { take_outcome(header) };
        (
            outcome,
            Spent {
                header,
                destination,
            },
        )
    }

    /// Makes the outcome visible to parties that read the state word.
    pub(crate) fn complete(&self) -> Completion {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { self.header.as_ref() }.state.complete()
    }

    /// Gives the reference back, and leaves the outcome to the handle.
    pub(super) fn release(self) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the reference is this function's (rule 2).
        unsafe { release(header) };
    }

    /// Returns the address of the destination, from which `from_destination` finds the cell again.
    pub(crate) fn into_destination(self) -> NonNull<D> {
        let prefix = ManuallyDrop::new(self).header.cast::<Prefix<D>>();
        // SAFETY: the cell is live and begins with its prefix (rule 1).
        unsafe { NonNull::new_unchecked(&raw mut (*prefix.as_ptr()).destination) }
    }

    /// Takes the reference back.
    ///
    /// # Safety
    ///
    /// `destination` came from `into_destination` of the same type, and is used for this once.
    pub(crate) unsafe fn from_destination(destination: NonNull<D>) -> Self {
        // SAFETY: the destination lies this far into its cell (rule 1).
        let header = unsafe { destination.byte_sub(mem::offset_of!(Prefix<D>, destination)) };
        Self {
            header: header.cast(),
            types: PhantomData,
        }
    }
}

/// A reference to a cell whose outcome was taken.
#[must_use]
pub(crate) struct Spent<D> {
    header: NonNull<Header>,
    destination: PhantomData<D>,
}

// SAFETY: a `Spent` passes a destination on, which is Send.
unsafe impl<D: Send> Send for Spent<D> {}
// SAFETY: a shared `Spent` gives shared access to the destination (rule 2).
unsafe impl<D: Sync> Sync for Spent<D> {}

impl<D> Spent<D> {
    pub(crate) fn destination(&self) -> &D {
        // SAFETY: this reference keeps the cell alive, which begins as its prefix does (rules 1 and 2).
        unsafe { &self.header.cast::<Prefix<D>>().as_ref().destination }
    }

    /// Gives this reference back together with that of an abort of the same job, which costs less than one by one.
    pub(crate) fn release_with(self, abort: Abort) {
        let header = ManuallyDrop::new(self).header;
        debug_assert_eq!(header, abort.header_ptr(), "they are of the same job");
        mem::forget(abort);
        // SAFETY: both references are this function's (rule 2), and of the same cell.
        unsafe { release_two(header) };
    }
}

impl<D> Drop for Spent<D> {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's (rule 2).
        unsafe { release(self.header) };
    }
}

impl<T, D> Drop for Done<T, D> {
    fn drop(&mut self) {
        // SAFETY: the outcome is this value's, and dropped here (rule 5); so is the reference (rule 2).
        unsafe {
            contain(|| drop(take_outcome::<T>(self.header)));
            release(self.header);
        }
    }
}
