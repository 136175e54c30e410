//! Cells whose outcome waits for a handle: the waker's place in the cell, and the handle's reference.

use std::hint::spin_loop;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::cell::{Destination, Header, Prefix, allocate, put_outcome, release, take_outcome};
use super::state::State;
use super::{Abort, Done, Outcome, Ran, Thunk};
use crate::drops::drop_nested;
use crate::sync::UnsafeCell;
use crate::unwind::contain;

/// For how long a handle waits awake: about half of what it takes to put a task away and to fetch it again.
const LINGER: Duration = Duration::from_micros(4);

/// The destination of a cell with a handle: the place of the waker that waits for the outcome.
///
/// Who may touch it, and whether there is a waker in it, the state word says.
pub(super) struct Join(UnsafeCell<MaybeUninit<Waker>>);

// SAFETY: the place is used by one party at a time, or read by both, as the state word says.
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
            // SAFETY: the waker was there when the outcome became visible, and is ours since. The
            // handle may still compare it with another: it is read, and its place left as it is.
            let waker = join.0.with(|place| unsafe { (*place).assume_init_read() });
            contain(|| waker.wake());
        }
        if completion.discard {
            drop(done);
        } else {
            done.leave();
        }
    }
}

/// The handle's reference to a cell that ends in a `T`. Dropping it detaches the job.
pub(crate) struct JoinRef<T> {
    header: NonNull<Header>,
    output: PhantomData<T>,
}

// SAFETY: a `JoinRef` hands a `T` over, and touches the rest as the state word says.
unsafe impl<T: Send> Send for JoinRef<T> {}
// SAFETY: a shared `JoinRef` looks at the state word, and may claim the job, which is Send, to run it.
unsafe impl<T: Send> Sync for JoinRef<T> {}

impl<T: Send + 'static> JoinRef<T> {
    /// A cell that is complete from the start, for an output that exists already.
    pub(crate) fn completed(output: T) -> Self {
        // A job that needs no drop, and is never run, since the cell is claimed.
        let job = Thunk::<fn() -> T>(|| unreachable!("the output exists already"));
        let header = allocate::<(), _, _>(State::completed(), Join::new(), job);
        // SAFETY: the cell is new, of this type, and has one reference, which is the new value's.
        unsafe {
            put_outcome(header, Ok(output));
            Self::new(header)
        }
    }
}

impl<T> JoinRef<T> {
    /// # Safety
    ///
    /// The cell is live, its destination is a `Join`, its output a `T`, one of its references is
    /// the new value's, and there is no other `JoinRef`.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self {
            header,
            output: PhantomData,
        }
    }

    /// Waits awake for a moment, if nobody has waited for the outcome yet.
    pub(crate) fn linger(&self) {
        let state = &self.prefix().header.state;
        if state.is_complete() || state.has_waker() {
            return;
        }
        let end = Instant::now() + LINGER;
        while !state.is_complete() {
            (0..8).for_each(|_| spin_loop());
            if Instant::now() >= end {
                return;
            }
        }
    }

    /// Waits for the outcome, which `into_outcome` then gives.
    pub(crate) fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &self.prefix().header.state;
        if state.is_complete() {
            return Poll::Ready(());
        }
        if state.has_waker() {
            // SAFETY: the waker is there, and nobody writes to its place: whoever completes reads it.
            let same = self.prefix().destination.0.with(|place| unsafe {
                let waker = (*place).assume_init_ref();
                waker.will_wake(cx.waker())
            });
            if same {
                return Poll::Pending;
            }
            if !self.take_waker_back() {
                return Poll::Ready(());
            }
        }
        self.leave_waker(cx.waker().clone())
    }

    /// Puts a waker into its place, which is empty and ours, and offers it.
    fn leave_waker(&mut self, waker: Waker) -> Poll<()> {
        let prefix = self.prefix();
        prefix
            .destination
            .0
            // SAFETY: there is no waker, so the place is the handle's.
            .with_mut(|place| unsafe { (*place).write(waker) });
        if prefix.header.state.set_waker() {
            return Poll::Pending;
        }
        // SAFETY: it was not offered, so it is still the handle's.
        unsafe { self.drop_waker() };
        Poll::Ready(())
    }

    /// Drops the waker that was left; `false`: the job is complete, and its runner has it.
    fn take_waker_back(&mut self) -> bool {
        if !self.prefix().header.state.unset_waker() {
            return false;
        }
        // SAFETY: the waker was there, and is the handle's again.
        unsafe { self.drop_waker() };
        true
    }

    /// Drops the waker in its place. Its panic does not reach a caller that polls with another waker.
    ///
    /// # Safety
    ///
    /// The place is the handle's, and a waker is in it, which is gone after this.
    unsafe fn drop_waker(&mut self) {
        let place = &self.prefix().destination.0;
        // SAFETY: as the caller says.
        let waker = place.with(|place| unsafe { (*place).assume_init_read() });
        contain(|| drop(waker));
    }

    /// Runs the job on this thread, unless somebody has claimed it.
    ///
    /// # Safety
    ///
    /// The job was made for an `S`.
    pub(crate) unsafe fn run_here<S>(&self, state: &mut S) -> Option<Ran> {
        let header = &self.prefix().header;
        if !header.vtable.blocking || header.state.is_claimed() {
            return None;
        }
        // The runner's reference is elsewhere, and so is what comes of that. First: a job that is claimed must
        // run.
        // SAFETY: this reference keeps the cell alive.
        let running = unsafe { Abort::briefly(self.header) };
        if !header.state.claim() {
            return None;
        }
        std::mem::forget(running);
        let mut cx = Context::from_waker(Waker::noop());
        // SAFETY: the cell is live, its job claimed above, and made for an `S`; the reference is the
        // one taken above.
        match unsafe { (header.vtable.poll)(self.header, (&raw mut *state).cast(), &mut cx) } {
            Poll::Ready(ran) => Some(ran),
            Poll::Pending => unreachable!("a job that blocks does not yield"),
        }
    }

    /// The outcome of a job that is complete.
    ///
    /// # Panics
    ///
    /// Panics if it is not.
    pub(crate) fn into_outcome(self) -> Outcome<T> {
        assert!(self.is_complete(), "the job has not ended");
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the job is complete and not detached, so the outcome is the handle's; so is the
        // reference.
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
        // SAFETY: this reference keeps the cell alive.
        unsafe { Abort::briefly(self.header) }.end();
    }

    pub(crate) fn abort_ref(&self) -> Abort {
        self.prefix().header.state.retain();
        Abort(self.header)
    }

    fn prefix(&self) -> &Prefix<Join> {
        // SAFETY: this reference keeps the cell alive, whose destination is a `Join`.
        unsafe { self.header.cast().as_ref() }
    }
}

impl<T> Drop for JoinRef<T> {
    fn drop(&mut self) {
        // The waker keeps whoever waited alive: drop it now, not when the job ends.
        if self.prefix().header.state.has_waker() {
            self.take_waker_back();
        }
        let header = self.header;
        if !self.prefix().header.state.detach() {
            // SAFETY: the reference is the handle's.
            return unsafe { release(header) };
        }
        // SAFETY: an outcome that was there when the handle went is the handle's; so is the reference.
        let drop_outcome = move || unsafe {
            contain(|| drop(take_outcome::<T>(header)));
            release(header);
        };
        // SAFETY: the output of a job is `'static`, whatever lifetime `T` has by now.
        unsafe { drop_nested(drop_outcome) };
    }
}
