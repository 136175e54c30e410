//! The task cell: one piece of memory for a job, its outcome and whoever waits for it.
//!
//! ```text
//! Cell    [ Header: link | vtable | state ][ destination ][ signal ][ job, later its outcome ]
//! ```
//!
//! A cell is held through four kinds of reference, each of which counts in the [state] word:
//! a [`Task`] (the runner's, it may run the job), a [`JoinRef`] (the handle's, it gets the outcome), an
//! [`Abort`] (it may end the job), and a [`Done`] (a finished cell on its way to its destination).
//! Where a finished cell goes is its [`Destination`]: to a waker that is kept in the cell
//! ([`Join`](join_ref::Join)), or somewhere else.

mod cell;
mod detached;
mod done;
mod fault;
mod job;
mod join_ref;
mod slab;
mod state;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

pub(crate) use self::cell::Destination;
use self::cell::{Cell, Header, allocate, release};
pub(crate) use self::done::{Done, Promise};
pub(crate) use self::fault::{Fault, Held, Kind, Outcome};
pub(crate) use self::job::{Call, Job, JobContext, Polled, Promised, Thunk};
pub(crate) use self::join_ref::JoinRef;
pub(crate) use self::slab::flush;
use self::state::State;
use crate::inbox::{Link, Linked};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Returned,
    Panicked,
    /// It had been aborted before, or while it waited.
    Cancelled,
}

/// The runner's reference: the right to run a job on an `S`, if nobody aborted it before.
///
/// Dropping it cancels the job.
pub(crate) struct Task<S = ()> {
    header: NonNull<Header>,
    state: PhantomData<fn(&mut S)>,
}

// SAFETY: jobs, outcomes, destinations and signals are all Send, and what of a cell is shared
// between threads is accessed as the state word says.
unsafe impl<S> Send for Task<S> {}
// SAFETY: a shared `Task` can do nothing but compare, since `run` takes it by value.
unsafe impl<S> Sync for Task<S> {}

impl<S: JobContext> Task<S> {
    /// A job, and the handle that gets its outcome.
    pub(crate) fn joinable<J: Job<S>>(job: J) -> (Self, JoinRef<J::Output>) {
        Self::joinable_in(State::joinable(), job)
    }

    /// As `joinable`, with a mark of two bits for who runs the job.
    pub(crate) fn joinable_with_bits<J: Job<S>>(bits: u8, job: J) -> (Self, JoinRef<J::Output>) {
        Self::joinable_in(State::joinable_with_bits(bits), job)
    }

    #[inline]
    fn joinable_in<J: Job<S>>(state: State, job: J) -> (Self, JoinRef<J::Output>) {
        let header = allocate::<S, J, _>(state, join_ref::Join::new(), job);
        // SAFETY: a joinable cell has two references, one for each; its destination is a `Join`, and
        // its output a `J::Output`.
        (Self::from_header(header), unsafe { JoinRef::new(header) })
    }

    /// A job that nobody waits for.
    pub(crate) fn detached<J: Job<S>>(job: J) -> Self {
        Self::from_header(allocate::<S, J, _>(
            State::detached(),
            join_ref::Join::new(),
            job,
        ))
    }

    /// A closure that nobody waits for, and nobody can abort: the cheapest task there is.
    #[inline]
    pub(crate) fn detached_closure<F: FnOnce() + Send + 'static>(f: F) -> Self {
        Self::from_header(detached::allocate::<S, F>(f))
    }

    /// Whether a job that is bound for a `D` has a cell that is used again, and not memory of its own.
    pub(crate) fn is_recycled<J, D>() -> bool
    where
        J: Job<S>,
        D: Destination<J::Output>,
    {
        slab::is_recycled::<Cell<J, J::Output, D, J::Signal>>()
    }

    /// A job whose finished cell goes to `destination`, and the means to abort it.
    pub(crate) fn bound_for<J, D>(job: J, destination: D) -> (Self, Abort)
    where
        J: Job<S>,
        D: Destination<J::Output>,
    {
        // The cell has two references, one for each.
        let header = allocate::<S, J, D>(State::destined(), destination, job);
        (Self::from_header(header), Abort(header))
    }
}

impl<S> Task<S> {
    fn from_header(header: NonNull<Header>) -> Self {
        Self {
            header,
            state: PhantomData,
        }
    }

    /// Runs a job that does not yield, unless it was aborted.
    #[inline]
    pub(crate) fn run(self, state: &mut S) -> Ran {
        debug_assert!(self.is_blocking());
        if !self.claim() {
            return Ran::Cancelled;
        }
        let mut cx = Context::from_waker(Waker::noop());
        // SAFETY: claimed above.
        match unsafe { self.poll_claimed(state, &mut cx) } {
            Poll::Ready(ran) => ran,
            Poll::Pending => unreachable!("a job that blocks does not yield"),
        }
    }

    /// Claims the job, which then only `poll_claimed` may touch.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        let header = self.header();
        !header.vtable.shared || header.state.claim()
    }

    /// The mark that the job was made with.
    pub(crate) fn user_bits(&self) -> u8 {
        self.header().state.user_bits()
    }

    /// Whether somebody has claimed the job: it runs, has ended, or was aborted.
    pub(crate) fn is_claimed(&self) -> bool {
        self.header().state.is_claimed()
    }

    /// Runs a claimed job as far as it goes; hands the reference back if it is not done.
    ///
    /// # Safety
    ///
    /// `claim` of this task returned `true`.
    pub(crate) unsafe fn poll_claimed_or_return(
        self,
        state: &mut S,
        cx: &mut Context<'_>,
    ) -> Result<Ran, Self> {
        let header = self.header;
        // SAFETY: as the caller says.
        match unsafe { self.poll_claimed(state, cx) } {
            Poll::Ready(ran) => Ok(ran),
            Poll::Pending => Err(Self::from_header(header)),
        }
    }

    /// As above; when it is `Pending` the reference is leaked, for the caller to keep.
    #[inline]
    unsafe fn poll_claimed(self, state: &mut S, cx: &mut Context<'_>) -> Poll<Ran> {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the cell is live, its job claimed by the caller, and made for an `S`.
        unsafe { (header.as_ref().vtable.poll)(header, (&raw mut *state).cast(), cx) }
    }

    /// Ends the job without running it, if nobody did before (`true`): its captures are dropped now.
    pub(crate) fn fail(self, fault: Fault) -> bool {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the reference is this function's, to pass on or to release.
        unsafe {
            let claimed = !header.as_ref().vtable.shared || header.as_ref().state.claim_to_drop();
            if claimed {
                (header.as_ref().vtable.cancel)(header, fault);
            } else {
                release(header);
            }
            claimed
        }
    }

    /// Takes the job back out of its cell; `None`: it was aborted.
    ///
    /// # Safety
    ///
    /// The task was made by `joinable`, of a `J`.
    pub(crate) unsafe fn take_back<J: Job<S>>(self) -> Option<J> {
        if !self.claim() {
            return None;
        }
        let cell = ManuallyDrop::new(self)
            .header
            .cast::<Cell<J, J::Output, join_ref::Join, J::Signal>>();
        // SAFETY: the cell has this type, the job is claimed, and read once; the reference is this
        // function's, to pass on.
        unsafe {
            let job = cell
                .as_ref()
                .stage
                .with_mut(|stage| ManuallyDrop::take(&mut (*stage).job));
            Cell::<J, J::Output, join_ref::Join, J::Signal>::deliver(cell, Err(Fault::cancelled()));
            Some(job)
        }
    }

    /// Takes the closure back out of a cell that was made by `alone`.
    ///
    /// # Safety
    ///
    /// The task was made by `alone`, of an `F`.
    pub(crate) unsafe fn take_back_closure<F>(self) -> F {
        // SAFETY: as the caller says; the reference is this function's.
        unsafe { detached::take(ManuallyDrop::new(self).header) }
    }

    /// Ends a claimed job that waits, as `fail` does.
    ///
    /// # Safety
    ///
    /// `claim` of this task returned `true`.
    pub(crate) unsafe fn fail_claimed(self, fault: Fault) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the job is the caller's, and the reference this function's to pass on.
        unsafe { (header.as_ref().vtable.cancel)(header, fault) };
    }

    /// Whether the job may block its thread, and never yields.
    pub(crate) fn is_blocking(&self) -> bool {
        self.header().vtable.blocking
    }

    fn header(&self) -> &Header {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }
    }
}

impl<S> Drop for Task<S> {
    fn drop(&mut self) {
        Self::from_header(self.header).fail(Fault::cancelled());
    }
}

// SAFETY: the link is the first field of the cell; a `Task` is its one runner's reference, which
// keeps the cell at its address.
unsafe impl<S> Linked for Task<S> {
    fn into_link(self) -> NonNull<Link> {
        ManuallyDrop::new(self).header.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self::from_header(link.cast())
    }
}

/// A reference that can end a job, and nothing else.
pub(crate) struct Abort(NonNull<Header>);

// SAFETY: aborting is an operation on the state word, which says who may touch the rest.
unsafe impl Send for Abort {}
// SAFETY: as above.
unsafe impl Sync for Abort {}

impl Abort {
    /// Drops the job if it has not started; else tells it, which ends a future and not a closure.
    pub(crate) fn abort(&self) {
        // SAFETY: this reference keeps the cell alive.
        unsafe { Self::briefly(self.0) }.end();
    }

    /// Returns a reference for the duration of a call. This never fails, even at the maximum of handles.
    ///
    /// # Safety
    ///
    /// The cell is live.
    unsafe fn briefly(header: NonNull<Header>) -> Self {
        // SAFETY: as the caller says.
        unsafe { header.as_ref() }.state.retain_briefly();
        Self(header)
    }

    /// Aborts the job. If the job has not started, this reference is passed on to end it: a claimed job can
    /// always be ended.
    fn end(self) {
        let header = self.header();
        if header.state.claim_to_drop() {
            let header = ManuallyDrop::new(self).0;
            // SAFETY: the job is claimed, and the reference this function's, to pass on.
            unsafe { (header.as_ref().vtable.cancel)(header, Fault::cancelled()) };
        } else if !header.vtable.blocking && header.state.tell_abort() {
            // SAFETY: this reference keeps the cell alive.
            unsafe { (header.vtable.notify)(self.0) };
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.header().state.is_complete()
    }

    /// Returns `true` if a handle waits for a closure that has not ended, and that nobody drops instead of
    /// running it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.header().state.is_awaited()
    }

    /// Returns the address of the job's cell, which identifies the job while this value exists.
    pub(crate) fn address(&self) -> NonZeroUsize {
        self.0.addr()
    }

    fn header(&self) -> &Header {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Abort {
    fn clone(&self) -> Self {
        self.header().state.retain();
        Self(self.0)
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's.
        unsafe { release(self.0) };
    }
}
#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
