//! Completing a slot when a task ends, without another task that awaits it.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
// Wakers are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::task::coop;

use super::slot::Slot;
use crate::join::JoinHandle;
use crate::sync::{Mutex, lock};
use crate::task::{Fault, JoinRef, Outcome};
use crate::unwind::contain;

impl<T> JoinHandle<T> {
    /// Completes a slot with the outcome of the task, when it ends. The item of the stream has the slot's id.
    ///
    /// Nothing awaits the task meanwhile: the thread that ends it completes the slot. Use this for a job of a
    /// [`SerialExecutor`](crate::SerialExecutor), or for a pool's task that has a key. For a closure on a pool,
    /// [`submit_blocking`](crate::completion::Submitter::submit_blocking) is shorter, and the stream can abort it;
    /// with this method, aborting the slot does not abort the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::{CompletionStream, SerialExecutor};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let total = SerialExecutor::new(0);
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// for n in 1..=3 {
    ///     let slot = jobs.slot(n).await?;
    ///     let added = total.submit(move |total| {
    ///         *total += n;
    ///         *total
    ///     });
    ///     added.complete(slot);
    /// }
    /// drop(jobs);
    ///
    /// let mut last = 0;
    /// while let Some(completed) = done.next().await {
    ///     last = completed.outcome?;
    /// }
    /// assert_eq!(last, 6);
    /// # Ok(()) }
    /// ```
    pub fn complete<K>(self, slot: Slot<T, K>)
    where
        T: Send + 'static,
        K: Send + 'static,
    {
        match self.into_join_ref() {
            Ok(join_ref) => forward(TaskEnd(Some(join_ref)), slot),
            Err(Some(outcome)) => slot.end(outcome),
            // The outcome is gone, so the slot is lost.
            Err(None) => drop(slot),
        }
    }
}

/// Completes the slot with the output of a future.
///
/// The future is polled by this function, and then by each thread that wakes it. So it must do little when it is
/// polled, as the handles of this crate do.
pub(crate) fn forward<T, K, F>(future: F, slot: Slot<T, K>)
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    let forward = Forward {
        state: Mutex::new(State::Woken),
    };
    StdArc::new(forward).poll(Route { future, slot });
}

/// The end of a task. Unlike the task's handle, it never runs the task on the polling thread.
struct TaskEnd<T>(Option<JoinRef<T>>);

impl<T> Future for TaskEnd<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let join_ref = self.0.as_mut().expect("not polled after it was ready");
        ready!(join_ref.poll_complete(cx));
        let join_ref = self.0.take().expect("it was there above");
        Poll::Ready(join_ref.into_outcome())
    }
}

// The outcome is moved, never pinned.
impl<T> Unpin for TaskEnd<T> {}

/// The waker that the future is polled with, which keeps the future while it waits.
struct Forward<T, K, F> {
    state: Mutex<State<T, K, F>>,
}

/// | state | when |
/// |---|---|
/// | `Polling` | a thread polls the future, or the future has ended |
/// | `Woken` | as `Polling`, and the future was woken meanwhile: the thread polls it again |
/// | `Waiting` | no thread polls the future: the one that wakes it does |
enum State<T, K, F> {
    Polling,
    Woken,
    Waiting(Route<T, K, F>),
}

/// A future and the slot that it completes.
struct Route<T, K, F> {
    future: F,
    slot: Slot<T, K>,
}

impl<T, K, F> Forward<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    /// Polls until the future is ready, or waits.
    fn poll(self: StdArc<Self>, mut route: Route<T, K, F>) {
        let waker = Waker::from(StdArc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        loop {
            self.set(State::Polling);
            match route.poll(&mut cx) {
                Poll::Ready(outcome) => return route.end(outcome),
                Poll::Pending => match self.wait(route) {
                    Ok(()) => return,
                    Err(woken) => route = woken,
                },
            }
        }
    }

    /// Leaves the route to the thread that wakes it. Returns it if it was woken since the last poll began.
    fn wait(&self, route: Route<T, K, F>) -> Result<(), Route<T, K, F>> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Woken) {
            return Err(route);
        }
        *state = State::Waiting(route);
        Ok(())
    }

    /// Returns the previous state, so that it is not dropped under the lock.
    fn set(&self, next: State<T, K, F>) -> State<T, K, F> {
        std::mem::replace(&mut *lock(&self.state), next)
    }
}

impl<T, K, F> Wake for Forward<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Send + Unpin + 'static,
{
    fn wake(self: StdArc<Self>) {
        if let State::Waiting(route) = self.set(State::Woken) {
            self.poll(route);
        }
    }
}

impl<T, K, F> Route<T, K, F>
where
    T: Send + 'static,
    K: Send + 'static,
    F: Future<Output = Outcome<T>> + Unpin,
{
    /// Unconstrained: the thread that wakes may run a task that has used up its own budget.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let mut future = coop::unconstrained(&mut self.future);
        let poll = || Pin::new(&mut future).poll(cx);
        match panic::catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled,
            Err(payload) => Poll::Ready(Err(Fault::panicked(payload))),
        }
    }

    /// Drops the future first, so that it is gone when the completion is read.
    fn end(self, outcome: Outcome<T>) {
        let Self { future, slot } = self;
        contain(|| drop(future));
        slot.end(outcome);
    }
}
