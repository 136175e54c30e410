//! Cells whose outcome is written, and cells whose outcome comes from outside.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::Waker;

use super::cell::{Cell, Destination, Header, Prefix, allocate, release, take_outcome};
use super::state::{Completion, State};
use super::{Abort, Fault, Outcome, Promised};
use crate::unwind::contain;
use crate::waker::WakerCell;

/// A cell whose outcome is written, and a reference to it.
///
/// The outcome is dropped with it, unless it is taken before.
#[must_use]
pub(crate) struct Done<T, D> {
    header: NonNull<Header>,
    types: PhantomData<(T, D)>,
}

// SAFETY: a `Done` hands an outcome and a destination over, both of which are Send.
unsafe impl<T: Send, D: Send> Send for Done<T, D> {}

impl<T, D> Done<T, D> {
    /// # Safety
    ///
    /// The cell is live, its destination is a `D`, its outcome written, a `T`'s, and nobody else's;
    /// the reference is the caller's, who gives it away.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self {
            header,
            types: PhantomData,
        }
    }

    pub(crate) fn destination(&self) -> &D {
        // SAFETY: this reference keeps the cell alive; a cell begins as its prefix does.
        unsafe { &self.header.cast::<Prefix<D>>().as_ref().destination }
    }

    /// The outcome.
    pub(crate) fn into_outcome(self) -> Outcome<T> {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: it is written, and nobody else's; the reference is this function's.
        unsafe {
            let outcome = take_outcome(header);
            release(header);
            outcome
        }
    }

    /// Makes the outcome visible to those who ask the state word.
    pub(crate) fn complete(&self) -> Completion {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }.state.complete()
    }

    /// Gives the reference back, and leaves the outcome to somebody else.
    pub(super) fn leave(self) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the reference is this function's.
        unsafe { release(header) };
    }

    /// The address of the destination, with which `from_destination` finds the cell again.
    pub(crate) fn into_destination(self) -> NonNull<D> {
        let prefix = ManuallyDrop::new(self).header.cast::<Prefix<D>>();
        // SAFETY: the cell is live.
        unsafe { NonNull::new_unchecked(&raw mut (*prefix.as_ptr()).destination) }
    }

    /// Takes the reference back.
    ///
    /// # Safety
    ///
    /// `destination` came from `into_destination` of the same type, and is used for this once.
    pub(crate) unsafe fn from_destination(destination: NonNull<D>) -> Self {
        // SAFETY: the destination lies this far into its cell.
        let header = unsafe { destination.byte_sub(mem::offset_of!(Prefix<D>, destination)) };
        Self {
            header: header.cast(),
            types: PhantomData,
        }
    }
}

impl<T, D> Drop for Done<T, D> {
    fn drop(&mut self) {
        // SAFETY: the outcome is written, nobody else's, and dropped here; so is the reference.
        unsafe {
            contain(|| drop(take_outcome::<T>(self.header)));
            release(self.header);
        }
    }
}

/// The cell of a promise.
type PromisedCell<T, D> = Cell<Promised<T>, T, D, WakerCell>;

/// A cell without a job, whose outcome comes from outside.
///
/// Dropping it ends the promise as lost, or, if it was aborted, as cancelled.
pub(crate) struct Promise<T, D> {
    header: NonNull<Header>,
    types: PhantomData<(T, D)>,
}

// SAFETY: a `Promise` hands an outcome and a destination over, both of which are Send.
unsafe impl<T: Send, D: Send> Send for Promise<T, D> {}
// SAFETY: a shared `Promise` gives shared access to the destination, and to a signal that is Sync.
unsafe impl<T: Send, D: Sync> Sync for Promise<T, D> {}

impl<T: Send + 'static, D: Destination<T>> Promise<T, D> {
    /// A promise, and the means to tell it that nobody wants it any more.
    pub(crate) fn new(destination: D) -> (Self, Abort) {
        // The cell has two references, one for each.
        let header = allocate::<(), _, D>(State::promised(), destination, Promised::new());
        let types = PhantomData;
        (Self { header, types }, Abort(header))
    }

    /// Writes the outcome, and sends the cell where it goes.
    pub(crate) fn complete(self, outcome: Outcome<T>) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the cell has this type, a job that needs no drop, and no other claimant; the
        // reference is this function's, to pass on.
        unsafe { PromisedCell::<T, D>::deliver(header.cast(), outcome) };
    }

    /// Has `waker` woken when the promise is aborted; who asks after that whether it was misses nothing. Only
    /// one at a time may wait.
    pub(crate) fn watch_abort(&self, waker: &Waker) {
        // SAFETY: this reference keeps the cell alive, which has this type.
        let cell = unsafe { self.header.cast::<PromisedCell<T, D>>().as_ref() };
        cell.signal.register(waker);
    }
}

impl<T, D> Promise<T, D> {
    /// Ends it without an outcome.
    pub(crate) fn fail(self, fault: Fault) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: there is no other claimant, and the reference is this function's, to pass on.
        unsafe { (header.as_ref().vtable.cancel)(header, fault) };
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }.state.is_aborted()
    }
}

impl<T, D> Drop for Promise<T, D> {
    fn drop(&mut self) {
        let fault = match self.is_aborted() {
            true => Fault::cancelled(),
            false => Fault::lost(),
        };
        let types = PhantomData;
        let header = self.header;
        Self { header, types }.fail(fault);
    }
}
