//! [`JoinRef`]: the reference of a handle, and [`Join`], the waker in the cell.

use std::hint::spin_loop;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::abort::Abort;
use super::cell::allocate;
use super::done::{Destination, Done};
use super::fault::Outcome;
use super::header::{Header, Prefix, put_outcome, release, take_outcome};
use super::job::{Ran, Thunk};
use super::state::State;
use crate::drops::drop_nested;
use crate::sync::UnsafeCell;
use crate::unwind::contain;

/// The time for which a handle spins: about half of what it takes to suspend a task and to resume it.
const MAX_SPIN: Duration = Duration::from_micros(4);

/// The destination of a cell with a handle: the waker of the task that waits for the outcome.
///
/// The state word determines who may access it and whether it holds a waker (rule 6).
pub(super) struct Join(UnsafeCell<MaybeUninit<Waker>>);

// SAFETY: one party at a time writes to it, or both read it (rule 6).
unsafe impl Sync for Join {}

impl Join {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

impl<T> Destination<T> for Join
where
    T: Send + 'static,
{
    fn deliver(done: Done<T, Self>) {
        let completion = done.complete();
        if completion.wake {
            let join: &Self = done.destination();
            // SAFETY: the waker was there when `COMPLETE` was set, so it is this party's. The handle may still compare
            // it: it is read, and its place is not written to (rule 6).
            let waker = join.0.with(|place| unsafe { (*place).assume_init_read() });
            contain(|| waker.wake());
        }
        if completion.discard {
            drop(done);
        } else {
            done.release();
        }
    }
}

/// The handle's reference to a cell that ends in a `T`. Dropping it detaches the job.
pub(crate) struct JoinRef<T> {
    header: NonNull<Header>,
    output: PhantomData<T>,
}

// SAFETY: a `JoinRef` passes a `T` on (rule 5), and accesses the rest by rules 2, 3 and 6.
unsafe impl<T: Send> Send for JoinRef<T> {}
// SAFETY: a shared `JoinRef` reads the state word, and may claim the job, which is Send, to run it (rule 3).
unsafe impl<T: Send> Sync for JoinRef<T> {}

impl<T: Send + 'static> JoinRef<T> {
    /// Makes a cell that is complete from the start, for an output that exists already.
    pub(crate) fn completed(output: T) -> Self {
        // A job that needs no drop, and is never run, since the cell is claimed.
        let job = Thunk::<fn() -> T>(|| unreachable!("the output exists already"));
        let header = allocate::<(), _, _>(State::completed(), Join::new(), job);
        // SAFETY: the cell is new, of this type (rule 1), and has one reference, which is the new value's.
        unsafe {
            put_outcome(header, Ok(output));
            Self::new(header)
        }
    }
}

impl<T> JoinRef<T> {
    /// # Safety
    ///
    /// The cell is live, its destination is a `Join`, its output a `T`, one of its references is the new value's, and
    /// there is no other `JoinRef`.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self {
            header,
            output: PhantomData,
        }
    }

    /// Spins for a moment, unless a task already waits for the outcome.
    pub(crate) fn spin_briefly(&self) {
        let state = &self.prefix().header.state;
        if state.is_complete() || state.has_waker() {
            return;
        }
        let end = Instant::now() + MAX_SPIN;
        while !state.is_complete() {
            (0..8).for_each(|_| spin_loop());
            if Instant::now() >= end {
                return;
            }
        }
    }

    /// Waits for the outcome, which `into_outcome` then returns.
    pub(crate) fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &self.prefix().header.state;
        if state.is_complete() {
            return Poll::Ready(());
        }
        if state.has_waker() {
            // SAFETY: the waker is there, and nobody writes to its place (rule 6).
            let same = self.prefix().destination.0.with(|place| unsafe {
                let waker = (*place).assume_init_ref();
                waker.will_wake(cx.waker())
            });
            if same {
                return Poll::Pending;
            }
            if !self.reclaim_waker() {
                return Poll::Ready(());
            }
        }
        self.store_waker(cx.waker().clone())
    }

    /// Writes a waker to its place, which is empty and the handle's, and offers it.
    fn store_waker(&mut self, waker: Waker) -> Poll<()> {
        let prefix = self.prefix();
        prefix
            .destination
            .0
            // SAFETY: `WAKER` is not set, so the place is the handle's (rule 6).
            .with_mut(|place| unsafe { (*place).write(waker) });
        if prefix.header.state.set_waker() {
            return Poll::Pending;
        }
        // SAFETY: `WAKER` was not set, so the waker is still the handle's (rule 6).
        unsafe { self.drop_waker() };
        Poll::Ready(())
    }

    /// Drops the waker that was stored. Returns `false` if the job is complete: the claimant has taken the waker.
    fn reclaim_waker(&mut self) -> bool {
        if !self.prefix().header.state.unset_waker() {
            return false;
        }
        // SAFETY: `WAKER` was cleared in time, so the waker is the handle's again (rule 6).
        unsafe { self.drop_waker() };
        true
    }

    /// Drops the waker. Its panic does not reach a caller that polls with another waker.
    ///
    /// # Safety
    ///
    /// The place is the handle's, and holds a waker, which is gone after this.
    unsafe fn drop_waker(&mut self) {
        let place = &self.prefix().destination.0;
        // SAFETY: as the caller says.
        let waker = place.with(|place| unsafe { (*place).assume_init_read() });
        contain(|| drop(waker));
    }

    /// Runs the job on this thread, unless it is claimed.
    ///
    /// # Safety
    ///
    /// The job was made for an `S` (rule 8).
    pub(crate) unsafe fn run_here<S>(&self, state: &mut S) -> Option<Ran> {
        let header = &self.prefix().header;
        if !header.vtable.blocking || header.state.is_claimed() {
            return None;
        }
        // A reference to give away: the runner keeps its own. It comes before the claim, since a claimed job must run.
        // SAFETY: this reference keeps the cell alive (rule 2).
        let running = unsafe { Abort::brief(self.header) };
        if !header.state.claim() {
            return None;
        }
        std::mem::forget(running);
        let mut cx = Context::from_waker(Waker::noop());
        // SAFETY: the job is claimed (rule 3), and made for an `S` (rule 8); the reference was taken above.
        match unsafe { (header.vtable.poll)(self.header, (&raw mut *state).cast(), &mut cx) } {
            Poll::Ready(ran) => Some(ran),
            Poll::Pending => unreachable!("a blocking job does not yield"),
        }
    }

    /// Returns the outcome of a job that is complete.
    ///
    /// # Panics
    ///
    /// Panics if the job is not complete.
    pub(crate) fn into_outcome(self) -> Outcome<T> {
        assert!(self.is_complete(), "the job has not ended");
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the job is complete and not detached, so the outcome is the handle's (rule 5); so is the reference.
        unsafe {
            let outcome = take_outcome(header);
            release(header);
            outcome
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.prefix().header.state.is_complete()
    }

    /// Ends the job, as [`Abort::abort`] does.
    pub(crate) fn abort(&self) {
        // SAFETY: this reference keeps the cell alive (rule 2).
        unsafe { Abort::brief(self.header) }.end();
    }

    pub(crate) fn abort_ref(&self) -> Abort {
        self.prefix().header.state.retain();
        Abort::from_header(self.header)
    }

    fn prefix(&self) -> &Prefix<Join> {
        // SAFETY: this reference keeps the cell alive, whose destination is a `Join` (rules 1 and 2).
        unsafe { self.header.cast().as_ref() }
    }
}

impl<T> Drop for JoinRef<T> {
    fn drop(&mut self) {
        // The waker keeps the task that waited alive: drop it now, not when the job ends.
        if self.prefix().header.state.has_waker() {
            self.reclaim_waker();
        }
        let header = self.header;
        if !self.prefix().header.state.detach() {
            // SAFETY: the reference is the handle's (rule 2).
            return unsafe { release(header) };
        }
        // SAFETY: `DETACHED` came after `COMPLETE`, so the outcome is the handle's (rule 5); so is the reference.
        let drop_outcome = move || unsafe {
            contain(|| drop(take_outcome::<T>(header)));
            release(header);
        };
        // SAFETY: the output of a job is `'static`, whatever lifetime `T` has by now.
        unsafe { drop_nested(drop_outcome) };
    }
}
