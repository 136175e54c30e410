//! The task cell: one allocation for a job, its outcome and whoever waits for it.
//!
//! ```text
//! Cell    [ Header: link | vtable | state ][ destination ][ signal ][ job, later its outcome ]
//! ```
//!
//! A cell is held through four kinds of reference, each of which counts in the [state](state) word:
//! a [`Task`] (the runner's, it may run the job), a [`Watch`] (the handle's, it gets the outcome), an
//! [`Abort`] (it may end the job), and a [`Done`] (a finished cell on its way to its destination).
//! Where a finished cell goes is its [`Destination`]: to a waker that is kept in the cell
//! ([`Join`](watch::Join)), or somewhere else.

mod fault;
mod job;
mod state;
mod watch;

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

pub(crate) use self::fault::{Fault, Kind, Outcome, contain};
use self::job::Signal;
pub(crate) use self::job::{Call, Job, Polled, Promised, Thunk};
use self::state::State;
pub(crate) use self::watch::Watch;
use crate::inbox::{Link, Linked};
use crate::sync::UnsafeCell;

/// What all cells begin with.
#[repr(C)]
struct Header {
    link: Link,
    vtable: &'static Vtable,
    state: State,
}

/// What a type-erased cell can do. Each function needs a live cell of the type that it was made for.
struct Vtable {
    /// Runs a claimed job. `Ready`: the job has ended, and the reference that was used is gone.
    poll: unsafe fn(NonNull<Header>, *mut (), &mut Context<'_>) -> Poll<Ran>,
    /// Drops a claimed job instead, and takes the reference.
    cancel: unsafe fn(NonNull<Header>, Fault),
    /// Tells a job that has been started that it was aborted.
    notify: unsafe fn(NonNull<Header>),
    /// Where the outcome is.
    outcome: unsafe fn(NonNull<Header>) -> NonNull<()>,
    /// Gives the memory back. Job and outcome are gone.
    free: unsafe fn(NonNull<Header>),
    /// See [`Job::BLOCKING`].
    blocking: bool,
}

/// The cell, as its maker sees it. The alignment leaves room for the tags of an inbox.
#[repr(C)]
struct Cell<J, T, D, N> {
    header: Header,
    destination: D,
    signal: N,
    stage: UnsafeCell<Stage<J, T>>,
}

/// The cell, as those see it who know only where it goes.
#[repr(C)]
struct Prefix<D> {
    header: Header,
    destination: D,
}

/// Which of the two it is, the state word tells: the outcome from `COMPLETE` on.
union Stage<J, T> {
    job: ManuallyDrop<J>,
    outcome: ManuallyDrop<Outcome<T>>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Returned,
    Panicked,
    /// It had been aborted before, or while it waited.
    Cancelled,
}

/// Where a finished cell goes.
pub(crate) trait Destination<T>: Sized + Send + Sync + 'static {
    /// Takes a cell whose outcome is written. Must not unwind.
    fn deliver(done: Done<T, Self>);
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

impl<S> Task<S> {
    /// A job, and the handle that gets its outcome.
    pub(crate) fn joinable<J: Job<S>>(job: J) -> (Self, Watch<J::Output>) {
        let header = allocate::<S, J, _>(State::joinable(), watch::Join::new(), job);
        // SAFETY: a joinable cell has two references, one for each; its destination is a `Join`, and
        // its output a `J::Output`.
        (Self::from_header(header), unsafe { Watch::new(header) })
    }

    /// A job that nobody waits for.
    pub(crate) fn detached<J: Job<S>>(job: J) -> Self {
        Self::from_header(allocate::<S, J, _>(
            State::detached(),
            watch::Join::new(),
            job,
        ))
    }

    /// A job whose finished cell goes to `destination`.
    pub(crate) fn bound_for<J, D>(job: J, destination: D) -> Self
    where
        J: Job<S>,
        D: Destination<J::Output>,
    {
        Self::from_header(allocate::<S, J, D>(State::detached(), destination, job))
    }

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
        self.header().state.claim()
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

    /// Ends the job without running it, if nobody did before: its captures are dropped now.
    pub(crate) fn fail(self, fault: Fault) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the reference is this function's, to pass on or to release.
        unsafe {
            if header.as_ref().state.claim() {
                (header.as_ref().vtable.cancel)(header, fault);
            } else {
                release(header);
            }
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
            .cast::<Cell<J, J::Output, watch::Join, J::Signal>>();
        // SAFETY: the cell has this type, the job is claimed, and read once; the reference is this
        // function's, to pass on.
        unsafe {
            let job = cell
                .as_ref()
                .stage
                .with_mut(|stage| ManuallyDrop::take(&mut (*stage).job));
            Cell::<J, J::Output, watch::Join, J::Signal>::deliver(cell, Err(Fault::cancelled()));
            Some(job)
        }
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

    /// A reference with which the job can be aborted.
    pub(crate) fn abort_ref(&self) -> Abort {
        self.header().state.retain();
        Abort(self.header)
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
        let header = self.header();
        match header.state.abort() {
            state::Abort::Claimed => {
                header.state.retain();
                // SAFETY: the job is claimed, and the reference taken for this.
                unsafe { (header.vtable.cancel)(self.0, Fault::cancelled()) };
            }
            // SAFETY: this reference keeps the cell alive.
            state::Abort::Flagged => unsafe { (header.vtable.notify)(self.0) },
            state::Abort::TooLate => {}
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.header().state.is_complete()
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
    pub(crate) fn complete(&self) -> state::Completion {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }.state.complete()
    }

    /// Gives the reference back, and leaves the outcome to somebody else.
    fn leave(self) {
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

/// A cell without a job, whose outcome comes from outside.
///
/// Dropping it ends the promise as lost.
pub(crate) struct Promise<T, D> {
    header: NonNull<Header>,
    types: PhantomData<(T, D)>,
}

// SAFETY: a `Promise` hands an outcome and a destination over, both of which are Send.
unsafe impl<T: Send, D: Send> Send for Promise<T, D> {}
// SAFETY: a shared `Promise` gives shared access to the destination only.
unsafe impl<T: Send, D: Sync> Sync for Promise<T, D> {}

impl<T: Send + 'static, D: Destination<T>> Promise<T, D> {
    pub(crate) fn new(destination: D) -> Self {
        Self {
            header: allocate::<(), _, D>(State::promised(), destination, Promised::new()),
            types: PhantomData,
        }
    }

    /// Writes the outcome, and sends the cell where it goes.
    pub(crate) fn complete(self, outcome: Outcome<T>) {
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the cell has this type, a job that needs no drop, and no other claimant; the
        // reference is this function's, to pass on.
        unsafe { Cell::<Promised<T>, T, D, ()>::deliver(header.cast(), outcome) };
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }.state.is_aborted()
    }

    /// A reference with which the promise can be told that nobody wants it any more.
    pub(crate) fn abort_ref(&self) -> Abort {
        // SAFETY: this reference keeps the cell alive.
        unsafe { self.header.as_ref() }.state.retain();
        Abort(self.header)
    }
}

impl<T, D> Drop for Promise<T, D> {
    fn drop(&mut self) {
        // SAFETY: there is no other claimant, and the reference is this value's, to pass on.
        unsafe { (self.header.as_ref().vtable.cancel)(self.header, Fault::lost()) };
    }
}

impl<J, T, D, N> Cell<J, T, D, N>
where
    T: Send + 'static,
    D: Destination<T>,
    N: Signal,
{
    const fn vtable<S>() -> &'static Vtable
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
        }
    }

    unsafe fn poll<S>(header: NonNull<Header>, state: *mut (), cx: &mut Context<'_>) -> Poll<Ran>
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
        // SAFETY: the caller has claimed the job and lends the state, which is an `S`.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| unsafe {
            let state = &mut *state.cast::<S>();
            cell.stage
                .with_mut(|stage| J::poll(&mut (*stage).job, state, cx))
        }));
        let (outcome, ran) = match polled {
            Ok(Poll::Ready(output)) => (Ok(output), Ran::Returned),
            Err(payload) => (Err(Fault::panicked(payload)), Ran::Panicked),
            // SAFETY: the job is still the caller's.
            Ok(Poll::Pending) => return unsafe { Self::wait(header, cx.waker()) },
        };
        // SAFETY: the job is gone, and the claim the caller's.
        unsafe { Self::deliver(this, outcome) };
        Poll::Ready(ran)
    }

    /// Leaves a waker for who aborts, and looks again: an abort before that found none.
    unsafe fn wait(header: NonNull<Header>, waker: &Waker) -> Poll<Ran> {
        // SAFETY: the caller holds a reference.
        let cell = unsafe { header.cast::<Self>().as_ref() };
        cell.signal.register(waker);
        if !cell.header.state.is_aborted() {
            return Poll::Pending;
        }
        // SAFETY: the caller has claimed the job.
        unsafe { Self::cancel(header, Fault::cancelled()) };
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
    unsafe fn deliver(this: NonNull<Self>, outcome: Outcome<T>) {
        // SAFETY: the caller has claimed the job, which is gone.
        unsafe {
            let cell = this.as_ref();
            cell.signal.clear();
            cell.stage
                .with_mut(|stage| (*stage).outcome = ManuallyDrop::new(outcome));
        }
        D::deliver(Done {
            header: this.cast(),
            types: PhantomData,
        });
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
        // SAFETY: the caller gave the last reference back.
        unsafe { deallocate(header.cast::<Self>()) };
    }
}

/// Makes a cell. Together with [`deallocate`], the one place that knows where cells come from.
fn allocate<S, J, D>(state: State, destination: D, job: J) -> NonNull<Header>
where
    J: Job<S>,
    D: Destination<J::Output>,
{
    let cell = Box::new(Cell {
        header: Header {
            link: Link::new(),
            vtable: Cell::<J, J::Output, D, J::Signal>::vtable::<S>(),
            state,
        },
        destination,
        signal: J::Signal::default(),
        stage: UnsafeCell::new(Stage::<J, J::Output> {
            job: ManuallyDrop::new(job),
        }),
    });
    NonNull::from(Box::leak(cell)).cast()
}

/// Gives the cell's memory back. Its job and its outcome are gone.
unsafe fn deallocate<C>(cell: NonNull<C>) {
    // SAFETY: the caller says that nobody holds the cell, which came from a box.
    let cell = unsafe { Box::from_raw(cell.as_ptr()) };
    contain(|| drop(cell));
}

/// Moves the outcome out of a cell.
///
/// # Safety
///
/// The cell is live, its outcome is written, a `T`'s, nobody else's, and not taken yet.
unsafe fn take_outcome<T>(header: NonNull<Header>) -> Outcome<T> {
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
unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the reference keeps the cell alive until it is given back, and the last one is
    // followed by nobody's.
    unsafe {
        let vtable = header.as_ref().vtable;
        if header.as_ref().state.release() {
            (vtable.free)(header);
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
