//! [`DetachedCell`]: a closure that no handle waits for and no handle can abort.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::fault::Fault;
use super::header::{Header, Vtable};
use super::job::{JobContext, Ran};
use super::slab;
use super::state::State;
use crate::unwind::contain;

/// A header, whose state word is not used, and the closure (rule 10).
#[repr(C)]
struct DetachedCell<F> {
    header: Header,
    f: ManuallyDrop<F>,
}

/// Makes a cell.
#[inline]
pub(super) fn allocate<S: JobContext, F>(f: F) -> NonNull<Header>
where
    F: FnOnce() + Send + 'static,
{
    let (cell, offset) = slab::allocate::<DetachedCell<F>>();
    let value = DetachedCell {
        header: Header::new(DetachedCell::<F>::vtable::<S>(), State::detached(), offset),
        f: ManuallyDrop::new(f),
    };
    // SAFETY: the memory is new, and for this type (rule 9).
    unsafe { cell.write(value) };
    cell.cast()
}

impl<F: FnOnce() + Send + 'static> DetachedCell<F> {
    const fn vtable<S: JobContext>() -> &'static Vtable {
        &Vtable {
            poll: Self::run::<S>,
            cancel: Self::cancel,
            notify: |_| unreachable!("no handle can abort it"),
            resume: None,
            outcome: |_| unreachable!("no handle waits for it"),
            free: |_| unreachable!("its one reference is not counted"),
            blocking: true,
            shared: false,
        }
    }

    #[inline]
    unsafe fn run<S: JobContext>(
        header: NonNull<Header>,
        state: *mut (),
        _: &mut Context<'_>,
    ) -> Poll<Ran> {
        // SAFETY: the caller lends the state, which is an `S` (rule 8).
        let state = unsafe { &mut *state.cast::<S>() };
        // SAFETY: the caller gives the only reference away (rule 10).
        let ended = panic::catch_unwind(AssertUnwindSafe(|| unsafe { take::<F>(header)() }));
        match ended {
            Ok(()) => {
                state.ended(Ran::Returned);
                Poll::Ready(Ran::Returned)
            }
            Err(payload) => {
                state.ended(Ran::Panicked);
                state.unobserved_panic(payload);
                Poll::Ready(Ran::Panicked)
            }
        }
    }

    unsafe fn cancel(header: NonNull<Header>, _: Fault) {
        // SAFETY: the caller gives the only reference away (rule 10).
        contain(|| drop(unsafe { take::<F>(header) }));
    }
}

/// Moves the closure out of its cell, and frees the cell.
///
/// # Safety
///
/// The cell was made by `allocate`, of an `F`; the caller gives the only reference away.
#[inline]
pub(super) unsafe fn take<F>(header: NonNull<Header>) -> F {
    let this = header.cast::<DetachedCell<F>>();
    // SAFETY: as the caller says; the closure and the memory are used for this once (rules 9 and 10).
    unsafe {
        let f = (&raw const (*this.as_ptr()).f).cast::<F>().read();
        slab::free(this, header.as_ref().offset);
        f
    }
}
