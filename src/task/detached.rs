//! Cells of closures that nobody waits for and nobody can abort: their one reference is the runner's.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::cell::{Header, Vtable};
use super::state::State;
use super::{Fault, JobContext, Ran, slab};
use crate::unwind::contain;

/// The cell: a header, whose state word nobody needs, and the closure.
#[repr(C)]
struct Alone<F> {
    header: Header,
    f: ManuallyDrop<F>,
}

/// Makes a cell.
#[inline]
pub(super) fn allocate<S: JobContext, F>(f: F) -> NonNull<Header>
where
    F: FnOnce() + Send + 'static,
{
    let (cell, place) = slab::allocate::<Alone<F>>();
    let value = Alone {
        header: Header::new(Alone::<F>::vtable::<S>(), State::detached(), place),
        f: ManuallyDrop::new(f),
    };
    // SAFETY: the memory is new, and made for this type.
    unsafe { cell.write(value) };
    cell.cast()
}

impl<F: FnOnce() + Send + 'static> Alone<F> {
    const fn vtable<S: JobContext>() -> &'static Vtable {
        &Vtable {
            poll: Self::run::<S>,
            cancel: Self::cancel,
            notify: |_| unreachable!("nobody can abort it"),
            outcome: |_| unreachable!("nobody waits for it"),
            free: |_| unreachable!("nobody counts its references"),
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
        // SAFETY: the caller lends the state, which is an `S`.
        let state = unsafe { &mut *state.cast::<S>() };
        // SAFETY: the caller gives its reference away, the only one.
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
        // SAFETY: the caller gives its reference away, the only one.
        contain(|| drop(unsafe { take::<F>(header) }));
    }
}

/// Moves the closure out of its cell, whose memory it no longer needs.
///
/// # Safety
///
/// The cell was made by `allocate`, of an `F`; the caller gives the only reference away.
#[inline]
pub(super) unsafe fn take<F>(header: NonNull<Header>) -> F {
    let this = header.cast::<Alone<F>>();
    // SAFETY: as the caller says.
    unsafe {
        let f = (&raw const (*this.as_ptr()).f).cast::<F>().read();
        slab::free(this, header.as_ref().place);
        f
    }
}
