//! [`Cell`]: the memory of a job and its outcome, and the operations of its type.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::done::{Destination, Done};
use super::fault::{Fault, Outcome};
use super::header::{Header, Vtable};
use super::job::{Job, JobContext, Ran, Signal};
use super::resume::{self, Resumed};
use super::slab;
use super::state::State;
use crate::sync::UnsafeCell;
use crate::unwind::contain;

/// A cell, as its maker knows it.
#[repr(C)]
pub(super) struct Cell<J, T, D, N> {
    header: Header,
    destination: D,
    pub(super) signal: N,
    pub(super) stage: UnsafeCell<Stage<J, T>>,
}

/// The job, or its outcome once the state word is `COMPLETE`.
pub(super) union Stage<J, T> {
    pub(super) job: ManuallyDrop<J>,
    outcome: ManuallyDrop<Outcome<T>>,
}

impl<J, T, D, N> Cell<J, T, D, N>
where
    T: Send + 'static,
    D: Destination<T>,
    N: Signal,
{
    const RESUME: Option<unsafe fn(NonNull<Header>)> = match D::RESUMES {
        true => Some(Self::resume),
        false => None,
    };

    const fn vtable<S: JobContext>() -> &'static Vtable
    where
        J: Job<S, Output = T, Signal = N>,
    {
        &Vtable {
            poll: Self::poll::<S>,
            cancel: Self::cancel,
            notify: Self::notify,
            resume: Self::RESUME,
            outcome: Self::outcome,
            free: Self::free,
            blocking: J::BLOCKING,
            shared: true,
        }
    }

    unsafe fn poll<S: JobContext>(
        header: NonNull<Header>,
        state: *mut (),
        cx: &mut Context<'_>,
    ) -> Poll<Ran>
    where
        J: Job<S, Output = T, Signal = N>,
    {
        let this = header.cast::<Self>();
        // SAFETY: the caller holds a reference (rules 1 and 2).
        let cell = unsafe { this.as_ref() };
        if !J::BLOCKING && cell.header.state.is_aborted() {
            // SAFETY: the caller has claimed the job, and gives its reference away.
            unsafe { Self::cancel(header, Fault::cancelled()) };
            return Poll::Ready(Ran::Cancelled);
        }
        // SAFETY: the caller lends the state, which is an `S` (rule 8).
        let state = unsafe { &mut *state.cast::<S>() };
        // SAFETY: the caller has claimed the job, which stays where it is (rules 3 and 4).
        let polled = panic::catch_unwind(AssertUnwindSafe(|| unsafe {
            cell.stage
                .with_mut(|stage| J::poll(&mut (*stage).job, state, cx))
        }));
        let (outcome, ran) = match polled {
            Ok(Poll::Ready(output)) => (Ok(output), Ran::Returned),
            Err(payload) => (Err(Fault::panicked(payload)), Ran::Panicked),
            // SAFETY: the job is still the claimant's (rule 3).
            Ok(Poll::Pending) => return unsafe { Self::wait(header, cx.waker()) },
        };
        state.ended(ran);
        // SAFETY: the job is gone (rule 4), and the claim and the reference are the caller's.
        unsafe { Self::deliver(this, outcome) };
        Poll::Ready(ran)
    }

    /// Registers a waker for an abort, and checks again: an earlier abort found none.
    unsafe fn wait(header: NonNull<Header>, waker: &Waker) -> Poll<Ran> {
        // SAFETY: the caller holds a reference (rules 1 and 2).
        let cell = unsafe { header.cast::<Self>().as_ref() };
        // An abort wakes this job directly: see `notify`. If the cell held its own waker, it would keep itself alive.
        if resume::is_waker_of(waker, header) {
            return Poll::Pending;
        }
        let register = || cell.signal.register(waker);
        let fault = match panic::catch_unwind(AssertUnwindSafe(register)) {
            Ok(()) if !cell.header.state.is_aborted() => return Poll::Pending,
            Ok(()) => Fault::cancelled(),
            // An abort could not end the job any more.
            Err(payload) => Fault::panicked(payload),
        };
        // SAFETY: the caller has claimed the job.
        unsafe { Self::cancel(header, fault) };
        Poll::Ready(Ran::Cancelled)
    }

    unsafe fn cancel(header: NonNull<Header>, fault: Fault) {
        let this = header.cast::<Self>();
        // SAFETY: the caller has claimed the job, and drops it where it is (rules 3 and 4).
        contain(|| unsafe {
            this.as_ref()
                .stage
                .with_mut(|stage| ManuallyDrop::drop(&mut (*stage).job));
        });
        // SAFETY: the job is gone (rule 4), and the claim and the reference are the caller's.
        unsafe { Self::deliver(this, Err(fault)) };
    }

    /// Writes the outcome in place of the job and sends the cell, with the reference, to its destination.
    pub(super) unsafe fn deliver(this: NonNull<Self>, outcome: Outcome<T>) {
        // SAFETY: the caller has claimed the job, which is gone, so the stage is the caller's (rules 4 and 5).
        unsafe {
            let cell = this.as_ref();
            cell.signal.clear();
            cell.stage
                .with_mut(|stage| (*stage).outcome = ManuallyDrop::new(outcome));
        }
        // SAFETY: the outcome is written and the claimant's (rule 5); so is the reference, which is given away.
        D::deliver(unsafe { Done::new(this.cast()) });
    }

    unsafe fn notify(header: NonNull<Header>) {
        // SAFETY: the caller holds a reference (rules 1 and 2).
        let cell = unsafe { header.cast::<Self>().as_ref() };
        contain(|| cell.signal.notify());
        // SAFETY: as above.
        unsafe { resume::wake(header) };
    }

    unsafe fn resume(header: NonNull<Header>) {
        // SAFETY: the caller keeps the cell alive (rules 1 and 2).
        let cell = unsafe { header.cast::<Self>().as_ref() };
        // SAFETY: the runner's reference is the caller's to give away.
        cell.destination.resume(unsafe { Resumed::new(header) });
    }

    unsafe fn outcome(header: NonNull<Header>) -> NonNull<()> {
        // SAFETY: the caller holds a reference, and the outcome is the caller's (rules 2 and 5).
        let cell = unsafe { header.cast::<Self>().as_ref() };
        // SAFETY: a pointer into a live cell is not null.
        cell.stage
            .with_mut(|stage| unsafe { NonNull::new_unchecked(stage.cast()) })
    }

    unsafe fn free(header: NonNull<Header>) {
        let this = header.cast::<Self>();
        // SAFETY: the last reference is gone, and so are job and outcome (rules 7 and 9).
        unsafe {
            let offset = header.as_ref().offset;
            contain(|| this.drop_in_place());
            slab::free(this, offset);
        }
    }
}

/// Makes a cell.
#[inline]
pub(super) fn allocate<S: JobContext, J, D>(state: State, destination: D, job: J) -> NonNull<Header>
where
    J: Job<S>,
    D: Destination<J::Output>,
{
    let vtable = Cell::<J, J::Output, D, J::Signal>::vtable::<S>();
    let (cell, offset) = slab::allocate::<Cell<J, J::Output, D, J::Signal>>();
    let value = Cell {
        header: Header::new(vtable, state, offset),
        destination,
        signal: J::Signal::default(),
        stage: UnsafeCell::new(Stage {
            job: ManuallyDrop::new(job),
        }),
    };
    // SAFETY: the memory is new, and for this type (rule 9).
    unsafe { cell.write(value) };
    cell.cast()
}
