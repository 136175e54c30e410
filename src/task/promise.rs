//! [`Promise`]: a cell without a job, whose outcome comes from outside.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

use super::abort::Abort;
use super::cell::{Cell, allocate};
use super::done::Destination;
use super::fault::{Fault, Outcome};
use super::header::Header;
use super::job::Promised;
use super::state::State;
use crate::waker::WakerCell;

/// The cell of a promise.
type PromisedCell<T, D> = Cell<Promised<T>, T, D, WakerCell>;

/// A cell without a job, whose outcome comes from outside.
///
/// Dropping it ends the promise as lost, or, if it was aborted, as cancelled.
pub(crate) struct Promise<T, D> {
    header: NonNull<Header>,
    types: PhantomData<(T, D)>,
}

// SAFETY: a `Promise` passes an outcome and a destination on, both of which are Send (rule 5).
unsafe impl<T: Send, D: Send> Send for Promise<T, D> {}
// SAFETY: a shared `Promise` gives shared access to the destination, and to a signal that is Sync (rule 2).
unsafe impl<T: Send, D: Sync> Sync for Promise<T, D> {}

impl<T: Send + 'static, D: Destination<T>> Promise<T, D> {
    /// Makes a promise, and a reference that tells it that nobody wants the outcome any more.
    pub(crate) fn new(destination: D) -> (Self, Abort) {
        // The cell has two references, one for each.
        let header = allocate::<(), _, D>(State::promised(), destination, Promised::new());
        let types = PhantomData;
        (Self { header, types }, Abort::from_header(header))
    }

    /// Writes the outcome, and sends the cell to its destination.
    pub(crate) fn complete(self, outcome: Outcome<T>) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the cell has this type (rule 1), a job that needs no drop, and this claimant (rule 3); the reference
        // is this function's to give away.
        unsafe { PromisedCell::<T, D>::deliver(header.cast(), outcome) };
    }

    /// Registers a waker for an abort. A caller that checks `is_aborted` afterwards misses none. One task at a time may
    /// wait.
    pub(crate) fn watch_abort(&self, waker: &Waker) {
        // SAFETY: this reference keeps the cell alive, which has this type (rules 1 and 2).
        let cell = unsafe { self.header.cast::<PromisedCell<T, D>>().as_ref() };
        cell.signal.register(waker);
    }
}

impl<T, D> Promise<T, D> {
    /// Ends the promise without an output.
    pub(crate) fn fail(self, fault: Fault) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: a promise is the claimant (rule 3), and the reference is this function's to give away.
        unsafe { (header.as_ref().vtable.cancel)(header, fault) };
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // SAFETY: this reference keeps the cell alive (rule 2).
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
