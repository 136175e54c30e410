//! The memory of a cell: its layout, and what a type-erased one can do.

use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::job::Signal;
use super::slab::{self, Place};
use super::state::State;
use super::{Done, Fault, Job, JobContext, Outcome, Ran};
use crate::inbox::Link;
use crate::sync::UnsafeCell;
use crate::unwind::contain;

/// What all cells begin with.
#[repr(C)]
pub(super) struct Header {
    link: Link,
    pub(super) vtable: &'static Vtable,
    pub(super) state: State,
    /// Where the cell's memory comes from.
    pub(super) place: Place,
}

impl Header {
    pub(super) fn new(vtable: &'static Vtable, state: State, place: Place) -> Self {
        Self {
            link: Link::new(),
            vtable,
            state,
            place,
        }
    }
}

/// What a type-erased cell can do. Each function needs a live cell of the type that it was made for.
pub(super) struct Vtable {
    /// Runs a claimed job. `Ready`: the job has ended, and the reference that was used is gone.
    pub(super) poll: unsafe fn(NonNull<Header>, *mut (), &mut Context<'_>) -> Poll<Ran>,
    /// Drops a claimed job instead, and takes the reference.
    pub(super) cancel: unsafe fn(NonNull<Header>, Fault),
    /// Tells a job that has been started that it was aborted.
    pub(super) notify: unsafe fn(NonNull<Header>),
    /// Where the outcome is.
    pub(super) outcome: unsafe fn(NonNull<Header>) -> NonNull<()>,
    /// Gives the memory back. Job and outcome are gone.
    pub(super) free: unsafe fn(NonNull<Header>),
    /// See [`Job::BLOCKING`].
    pub(super) blocking: bool,
    /// Whether others than the runner may hold a reference.
    pub(super) shared: bool,
}

/// The cell, as its maker sees it.
#[repr(C)]
pub(super) struct Cell<J, T, D, N> {
    header: Header,
    destination: D,
    pub(super) signal: N,
    pub(super) stage: UnsafeCell<Stage<J, T>>,
}

/// The cell, as those see it who know only where it goes.
#[repr(C)]
pub(super) struct Prefix<D> {
    pub(super) header: Header,
    pub(super) destination: D,
}

/// Which of the two it is, the state word tells: the outcome from `COMPLETE` on.
pub(super) union Stage<J, T> {
    pub(super) job: ManuallyDrop<J>,
    outcome: ManuallyDrop<Outcome<T>>,
}
/// Where a finished cell goes.
pub(crate) trait Destination<T>: Sized + Send + Sync + 'static {
    /// Takes a cell whose outcome is written. Must not unwind.
    fn deliver(done: Done<T, Self>);
}

impl<J, T, D, N> Cell<J, T, D, N>
where
    T: Send + 'static,
    D: Destination<T>,
    N: Signal,
{
    const fn vtable<S: JobContext>() -> &'static Vtable
    where
        J: Job<S, Output = T, Signal = N>,
    {
        &Vtable {
            poll: Self::poll::<S>,
            cancel: Self::cancel,
            notify: Self::notify,
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
        // SAFETY: the caller holds a reference.
        let cell = unsafe { this.as_ref() };
        if !J::BLOCKING && cell.header.state.is_aborted() {
            // SAFETY: the caller has claimed the job.
            unsafe { Self::cancel(header, Fault::cancelled()) };
            return Poll::Ready(Ran::Cancelled);
        }
        // SAFETY: the caller lends the state, which is an `S`.
        let state = unsafe { &mut *state.cast::<S>() };
        // SAFETY: the caller has claimed the job.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| unsafe {
            cell.stage
                .with_mut(|stage| J::poll(&mut (*stage).job, state, cx))
        }));
        let (outcome, ran) = match polled {
            Ok(Poll::Ready(output)) => (Ok(output), Ran::Returned),
            Err(payload) => (Err(Fault::panicked(payload)), Ran::Panicked),
            // SAFETY: the job is still the caller's.
            Ok(Poll::Pending) => return unsafe { Self::wait(header, cx.waker()) },
        };
        state.ended(ran);
        // SAFETY: the job is gone, and the claim the caller's.
        unsafe { Self::deliver(this, outcome) };
        Poll::Ready(ran)
    }

    /// Leaves a waker for who aborts, and looks again: an abort before that found none.
    unsafe fn wait(header: NonNull<Header>, waker: &Waker) -> Poll<Ran> {
        // SAFETY: the caller holds a reference.
        let cell = unsafe { header.cast::<Self>().as_ref() };
        let register = || cell.signal.register(waker);
        let fault = match panic::catch_unwind(AssertUnwindSafe(register)) {
            Ok(()) if !cell.header.state.is_aborted() => return Poll::Pending,
            Ok(()) => Fault::cancelled(),
            // Nobody could end it any more.
            Err(payload) => Fault::panicked(payload),
        };
        // SAFETY: the caller has claimed the job.
        unsafe { Self::cancel(header, fault) };
        Poll::Ready(Ran::Cancelled)
    }

    unsafe fn cancel(header: NonNull<Header>, fault: Fault) {
        let this = header.cast::<Self>();
        // SAFETY: the caller has claimed the job, and so may drop it where it is.
        contain(|| unsafe {
            this.as_ref()
                .stage
                .with_mut(|stage| ManuallyDrop::drop(&mut (*stage).job));
        });
        // SAFETY: the job is gone, and the claim the caller's.
        unsafe { Self::deliver(this, Err(fault)) };
    }

    /// Writes the outcome in the job's place and sends the cell where it goes, with the reference.
    pub(super) unsafe fn deliver(this: NonNull<Self>, outcome: Outcome<T>) {
        // SAFETY: the caller has claimed the job, which is gone.
        unsafe {
            let cell = this.as_ref();
            cell.signal.clear();
            cell.stage
                .with_mut(|stage| (*stage).outcome = ManuallyDrop::new(outcome));
        }
        // SAFETY: the outcome is written; the reference is the caller's, who gives it away.
        D::deliver(unsafe { Done::new(this.cast()) });
    }

    unsafe fn notify(header: NonNull<Header>) {
        // SAFETY: the caller holds a reference.
        let cell = unsafe { header.cast::<Self>().as_ref() };
        contain(|| cell.signal.notify());
    }

    unsafe fn outcome(header: NonNull<Header>) -> NonNull<()> {
        // SAFETY: the caller holds a reference, and the right to the outcome.
        let cell = unsafe { header.cast::<Self>().as_ref() };
        // SAFETY: a pointer into a live cell is not null.
        cell.stage
            .with_mut(|stage| unsafe { NonNull::new_unchecked(stage.cast()) })
    }

    unsafe fn free(header: NonNull<Header>) {
        let this = header.cast::<Self>();
        // SAFETY: the caller gave the last reference back; job and outcome are gone.
        unsafe {
            let place = header.as_ref().place;
            contain(|| this.drop_in_place());
            slab::free(this, place);
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
    let (cell, place) = slab::allocate::<Cell<J, J::Output, D, J::Signal>>();
    let value = Cell {
        header: Header::new(vtable, state, place),
        destination,
        signal: J::Signal::default(),
        stage: UnsafeCell::new(Stage {
            job: ManuallyDrop::new(job),
        }),
    };
    // SAFETY: the memory is new, and made for this type.
    unsafe { cell.write(value) };
    cell.cast()
}

/// Moves the outcome out of a cell.
///
/// # Safety
///
/// The cell is live, its outcome is written, a `T`'s, nobody else's, and not taken yet.
pub(super) unsafe fn take_outcome<T>(header: NonNull<Header>) -> Outcome<T> {
    // SAFETY: as the caller says.
    unsafe {
        let outcome = (header.as_ref().vtable.outcome)(header);
        outcome.cast::<Outcome<T>>().read()
    }
}

/// Gives a reference back, and the memory if it was the last.
///
/// # Safety
///
/// The reference is the caller's.
#[inline]
pub(super) unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the reference keeps the cell alive until it is given back, and the last one is
    // followed by nobody's.
    unsafe {
        let vtable = header.as_ref().vtable;
        if header.as_ref().state.release() {
            (vtable.free)(header);
        }
    }
}
