//! [`Job`]: a closure, a future, or nothing.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::unwind::contain;
use crate::waker::WakerCell;

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Returned,
    Panicked,
    /// The job had been aborted before, or was while it waited.
    Cancelled,
}

/// The state that a runner lends to a job for as long as the job runs.
pub(crate) trait JobContext: 'static {
    /// Called when the job has returned or panicked, just before its outcome becomes visible.
    #[inline]
    fn ended(&mut self, _: Ran) {}

    /// Called when a job has panicked whose outcome no handle waits for. Must not unwind.
    #[cold]
    fn unobserved_panic(&mut self, payload: Box<dyn Any + Send>) {
        contain(|| drop(payload));
    }
}

impl JobContext for () {}

/// A job that runs on an `S`, which its runner lends.
pub(crate) trait Job<S>: Send + 'static {
    type Output: Send + 'static;
    /// Tells a runner that waits for the job that the job was aborted.
    type Signal: Signal;
    /// The job runs to its end without yielding, and may block.
    const BLOCKING: bool;

    /// Runs the job until it ends or yields. Unless this returns `Pending`, the job has been dropped, also when it
    /// panics.
    ///
    /// # Safety
    ///
    /// The job has not been dropped, and stays where it is from the first call on (rule 4).
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        state: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Self::Output>;
}

/// Tells a job that has started that it was aborted.
pub(crate) trait Signal: Default + Send + Sync + 'static {
    /// Registers the waker of a runner that waits.
    fn register(&self, waker: &Waker);
    /// Wakes the runner: the job was aborted.
    fn notify(&self);
    /// Drops the waker: the job has ended.
    fn clear(&self);
}

/// A closure that is called with the state.
pub(crate) struct Call<F>(pub(crate) F);

impl<S, F, R> Job<S> for Call<F>
where
    F: FnOnce(&mut S) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;
    type Signal = ();
    const BLOCKING: bool = true;

    #[inline]
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        state: &mut S,
        _: &mut Context<'_>,
    ) -> Poll<Self::Output> {
        // SAFETY: the job has not been dropped, and counts as dropped from now on (rule 4).
        let Self(f) = unsafe { ManuallyDrop::take(job) };
        Poll::Ready(f(state))
    }
}

/// A closure that needs no state.
pub(crate) struct Thunk<F>(pub(crate) F);

impl<S, F, R> Job<S> for Thunk<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;
    type Signal = ();
    const BLOCKING: bool = true;

    #[inline]
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        _: &mut S,
        _: &mut Context<'_>,
    ) -> Poll<Self::Output> {
        // SAFETY: the job has not been dropped, and counts as dropped from now on (rule 4).
        let Self(f) = unsafe { ManuallyDrop::take(job) };
        Poll::Ready(f())
    }
}

/// A future that is polled in place.
pub(crate) struct Polled<F>(pub(crate) F);

impl<S, F> Job<S> for Polled<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    type Output = F::Output;
    type Signal = WakerCell;
    const BLOCKING: bool = false;

    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        _: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Self::Output> {
        /// Drops the future when it has ended, by returning or by panicking.
        struct Ended<'a, F>(Option<&'a mut ManuallyDrop<Polled<F>>>);
        impl<F> Drop for Ended<'_, F> {
            fn drop(&mut self) {
                if let Some(job) = self.0.take() {
                    // SAFETY: a future that has ended is dropped only here (rule 4).
                    unsafe { ManuallyDrop::drop(job) };
                }
            }
        }

        let mut ended = Ended(Some(job));
        let Some(job) = ended.0.as_mut() else {
            unreachable!("it was just set");
        };
        // SAFETY: the job stays where it is until it is dropped there (rule 4).
        let future = unsafe { Pin::new_unchecked(&mut job.0) };
        let output = future.poll(cx);
        if output.is_pending() {
            ended.0 = None;
        }
        output
    }
}

/// No job: the cell is completed from outside, by a party that may wait for an abort.
pub(crate) struct Promised<T>(PhantomData<fn() -> T>);

impl<T> Promised<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S, T: Send + 'static> Job<S> for Promised<T> {
    type Output = T;
    type Signal = WakerCell;
    const BLOCKING: bool = false;

    unsafe fn poll(_: &mut ManuallyDrop<Self>, _: &mut S, _: &mut Context<'_>) -> Poll<T> {
        unreachable!("a promise is claimed from the start, so it never runs")
    }
}

impl Signal for () {
    fn register(&self, _: &Waker) {}
    fn notify(&self) {}
    fn clear(&self) {}
}

impl Signal for WakerCell {
    fn register(&self, waker: &Waker) {
        self.register(waker);
    }

    fn notify(&self) {
        self.wake();
    }

    fn clear(&self) {
        self.clear();
    }
}
