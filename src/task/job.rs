//! What a cell can run: a closure, a future, or nothing.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::Ran;
use crate::unwind::contain;
use crate::waker::WakerCell;

/// What a job is run on: lent by its runner for as long as it runs.
pub(crate) trait JobContext: 'static {
    /// The job has ended in this way, by returning or by panicking, and its outcome is about to be seen.
    #[inline]
    fn ended(&mut self, _: Ran) {}

    /// The job has panicked, and nobody waits for its outcome. Must not unwind.
    #[cold]
    fn unobserved_panic(&mut self, payload: Box<dyn Any + Send>) {
        contain(|| drop(payload));
    }
}

impl JobContext for () {}

/// What a cell runs, on a state that its runner lends it.
pub(crate) trait Job<S>: Send + 'static {
    /// What it returns.
    type Output: Send + 'static;
    /// How a runner that waits for the job is told that it was aborted.
    type Signal: Signal;
    /// Whether it runs to its end without yielding, and may block.
    const BLOCKING: bool;

    /// Runs the job as far as it goes. Unless it returns `Pending`, the job has been dropped, also
    /// when it panics.
    ///
    /// # Safety
    ///
    /// The job has not been dropped, and stays where it is from the first call on.
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        state: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Self::Output>;
}

/// How a job that has been started is told that it was aborted.
pub(crate) trait Signal: Default + Send + Sync + 'static {
    /// The runner waits, and wants this waker to be told.
    fn register(&self, waker: &Waker);
    /// The job was aborted.
    fn notify(&self);
    /// The job has ended: nobody waits.
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
        // SAFETY: the caller says that the job has not been dropped, and takes it as dropped now.
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
        // SAFETY: the caller says that the job has not been dropped, and takes it as dropped now.
        let Self(f) = unsafe { ManuallyDrop::take(job) };
        Poll::Ready(f())
    }
}

/// A future that is polled in its place.
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
                    // SAFETY: this is the one place where a future that has ended is dropped.
                    unsafe { ManuallyDrop::drop(job) };
                }
            }
        }

        let mut ended = Ended(Some(job));
        let Some(job) = ended.0.as_mut() else {
            unreachable!("it was put there above");
        };
        // SAFETY: the caller says that the job stays where it is until it is dropped there.
        let future = unsafe { Pin::new_unchecked(&mut job.0) };
        let output = future.poll(cx);
        if output.is_pending() {
            ended.0 = None;
        }
        output
    }
}

/// No job: its cell is completed from outside, by somebody who may wait to be told that it was aborted.
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
        unreachable!("a promise is claimed at birth, so nobody runs it")
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
