#![doc = include_str!("task/README.md")]

mod abort;
mod cell;
mod detached;
mod done;
mod fault;
mod header;
mod job;
mod join_ref;
mod promise;
mod resume;
mod slab;
mod state;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

pub(crate) use self::abort::Abort;
use self::cell::{Cell, allocate};
pub(crate) use self::done::{Destination, Done, Spent};
pub(crate) use self::fault::{Fault, FaultKind, Held, Outcome};
use self::header::{Header, release};
pub(crate) use self::job::{Call, Job, JobContext, Polled, Ran, Thunk};
pub(crate) use self::join_ref::JoinRef;
pub(crate) use self::promise::Promise;
pub(crate) use self::resume::Resumed;
pub(crate) use self::slab::flush;
use self::state::State;
use crate::inbox::{Link, Linked};

/// The runner's reference: it can run the job on an `S`, unless the job was aborted before.
///
/// Dropping it cancels the job.
pub(crate) struct Task<S = ()> {
    header: NonNull<Header>,
    state: PhantomData<fn(&mut S)>,
}

// SAFETY: a `Task` passes a job on, which is Send, and accesses the rest by rules 2 to 5.
unsafe impl<S> Send for Task<S> {}
// SAFETY: a shared `Task` reads the header, and can claim the job, but accesses nothing else (rules 2 and 3).
unsafe impl<S> Sync for Task<S> {}

impl<S: JobContext> Task<S> {
    /// Makes a job, and the handle that gets its outcome.
    pub(crate) fn joinable<J: Job<S>>(job: J) -> (Self, JoinRef<J::Output>) {
        Self::joinable_in(State::joinable(), job)
    }

    /// As `joinable`, with two user bits, which the runner can read.
    pub(crate) fn joinable_with_bits<J: Job<S>>(bits: u8, job: J) -> (Self, JoinRef<J::Output>) {
        Self::joinable_in(State::joinable_with_bits(bits), job)
    }

    #[inline]
    fn joinable_in<J: Job<S>>(state: State, job: J) -> (Self, JoinRef<J::Output>) {
        let header = allocate::<S, J, _>(state, join_ref::Join::new(), job);
        // SAFETY: a joinable cell has two references, one for each; its destination is a `Join`, and its output a
        // `J::Output` (rule 1).
        (Self::from_header(header), unsafe { JoinRef::new(header) })
    }

    /// Makes a job that no handle waits for.
    pub(crate) fn detached<J: Job<S>>(job: J) -> Self {
        Self::from_header(allocate::<S, J, _>(
            State::detached(),
            join_ref::Join::new(),
            job,
        ))
    }

    /// Makes a closure that no handle waits for or can abort: the cheapest task.
    #[inline]
    pub(crate) fn detached_closure<F: FnOnce() + Send + 'static>(f: F) -> Self {
        Self::from_header(detached::allocate::<S, F>(f))
    }

    /// Returns `true` if a job that is bound for a `D` has a cell in a slab, and not memory of its own.
    pub(crate) fn is_recycled<J, D>() -> bool
    where
        J: Job<S>,
        D: Destination<J::Output>,
    {
        slab::is_recycled::<Cell<J, J::Output, D, J::Signal>>()
    }

    /// Makes a job whose finished cell goes to `destination`, and a reference that can abort it.
    pub(crate) fn bound_for<J, D>(job: J, destination: D) -> (Self, Abort)
    where
        J: Job<S>,
        D: Destination<J::Output>,
    {
        // The cell has two references, one for each.
        let header = allocate::<S, J, D>(State::destined(), destination, job);
        (Self::from_header(header), Abort::from_header(header))
    }
}

impl<S> Task<S> {
    fn from_header(header: NonNull<Header>) -> Self {
        Self {
            header,
            state: PhantomData,
        }
    }

    /// # Safety
    ///
    /// The job was made for an `S`.
    pub(crate) unsafe fn from_resumed(job: Resumed) -> Self {
        Self::from_header(job.into_header())
    }

    /// Runs a job that does not yield, unless it was aborted.
    #[inline]
    pub(crate) fn run(self, state: &mut S) -> Ran {
        debug_assert!(self.is_blocking());
        if !self.claim() {
            return Ran::Cancelled;
        }
        let mut cx = Context::from_waker(Waker::noop());
        // SAFETY: claimed above (rule 3).
        match unsafe { self.poll_claimed(state, &mut cx) } {
            Poll::Ready(ran) => ran,
            Poll::Pending => unreachable!("a blocking job does not yield"),
        }
    }

    /// Claims the job. Returns `false` if another party has claimed it.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        let header = self.header();
        !header.vtable.shared || header.state.claim()
    }

    /// Returns the user bits that the job was made with.
    pub(crate) fn user_bits(&self) -> u8 {
        self.header().state.user_bits()
    }

    /// Returns `true` if the job is claimed: it runs, has ended, or was aborted.
    pub(crate) fn is_claimed(&self) -> bool {
        self.header().state.is_claimed()
    }

    /// Runs a claimed job until it ends or yields. Returns the reference if it yields.
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

    /// Polls a claimed job for the first time, with a waker that resumes it.
    ///
    /// # Safety
    ///
    /// `claim` of this task returned `true`.
    pub(crate) unsafe fn poll_claimed_or_suspend(self, state: &mut S) -> Stepped<Self> {
        let header = self.header;
        // SAFETY: the cell is live until the end of the poll, and a suspended job is resumed by this vtable.
        let waker = unsafe { resume::borrowed_waker(header) };
        // SAFETY: as the caller says.
        let polled = unsafe { self.poll_claimed(state, &mut Context::from_waker(&waker)) };
        if polled.is_ready() {
            return Stepped::Ended;
        }
        // SAFETY: the reference was leaked above, so it is this function's: unless another party wakes the job, once it
        // is suspended.
        match unsafe { header.as_ref() }.state.suspend() {
            true => Stepped::Suspended,
            false => Stepped::Pending(Self::from_header(header)),
        }
    }

    /// As above. If this returns `Pending`, the reference is leaked, for the caller to keep.
    #[inline]
    unsafe fn poll_claimed(self, state: &mut S, cx: &mut Context<'_>) -> Poll<Ran> {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the caller has claimed the job (rule 3), which was made for an `S` (rule 8); the reference is given away.
        unsafe { (header.as_ref().vtable.poll)(header, (&raw mut *state).cast(), cx) }
    }

    /// Ends the job without running it, and drops its captures. Returns `false` if another party had claimed it.
    pub(crate) fn fail(self, fault: Fault) -> bool {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the reference is this function's to give away; `cancel` needs the claim, or a detached closure (rules
        // 2, 3 and 10).
        unsafe {
            let claimed = !header.as_ref().vtable.shared
                || header.as_ref().state.is_resumed()
                || header.as_ref().state.claim_to_drop();
            if claimed {
                (header.as_ref().vtable.cancel)(header, fault);
            } else {
                release(header);
            }
            claimed
        }
    }

    /// Takes the job out of its cell. Returns `None` if it was aborted.
    ///
    /// # Safety
    ///
    /// The task was made by `joinable` of a `J`.
    pub(crate) unsafe fn take_back<J: Job<S>>(self) -> Option<J> {
        if !self.claim() {
            return None;
        }
        let cell = ManuallyDrop::new(self)
            .header
            .cast::<Cell<J, J::Output, join_ref::Join, J::Signal>>();
        // SAFETY: the cell has this type; the job is claimed, and moved out once (rules 3 and 4); the reference is this
        // function's to give away.
        unsafe {
            let job = cell
                .as_ref()
                .stage
                .with_mut(|stage| ManuallyDrop::take(&mut (*stage).job));
            Cell::<J, J::Output, join_ref::Join, J::Signal>::deliver(cell, Err(Fault::cancelled()));
            Some(job)
        }
    }

    /// Takes the closure out of a cell that was made by `detached_closure`.
    ///
    /// # Safety
    ///
    /// The task was made by `detached_closure` of an `F`.
    pub(crate) unsafe fn take_back_closure<F>(self) -> F {
        // SAFETY: as the caller says; the reference is this function's to give away (rule 10).
        unsafe { detached::take(ManuallyDrop::new(self).header) }
    }

    /// Ends a claimed job that has yielded, as `fail` does.
    ///
    /// # Safety
    ///
    /// `claim` of this task returned `true`.
    pub(crate) unsafe fn fail_claimed(self, fault: Fault) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the caller has claimed the job (rule 3), and the reference is this function's to give away.
        unsafe { (header.as_ref().vtable.cancel)(header, fault) };
    }

    /// Returns `true` if the job may block its thread, and never yields.
    pub(crate) fn is_blocking(&self) -> bool {
        self.header().vtable.blocking
    }

    /// Returns `true` if the job was suspended, and has been woken. This reference is then the claimant.
    pub(crate) fn is_resumed(&self) -> bool {
        self.header().state.is_resumed()
    }

    /// Returns `true` if the job can be suspended.
    pub(crate) fn can_suspend(&self) -> bool {
        self.header().vtable.resume.is_some()
    }

    fn header(&self) -> &Header {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { self.header.as_ref() }
    }
}

/// The state of a job after its first poll.
pub(crate) enum Stepped<T> {
    Ended,
    /// It waits in its cell.
    Suspended,
    /// It is pending and was not suspended. The caller has its reference, and polls it again or passes it on.
    Pending(T),
}

impl<S> Drop for Task<S> {
    fn drop(&mut self) {
        Self::from_header(self.header).fail(Fault::cancelled());
    }
}

// SAFETY: the link is the first field of the cell (rule 1); a `Task` is the one reference of its kind, and keeps the cell
// at its address (rule 2).
unsafe impl<S> Linked for Task<S> {
    fn into_link(self) -> NonNull<Link> {
        ManuallyDrop::new(self).header.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self::from_header(link.cast())
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
