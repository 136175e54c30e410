//! [`JoinHandle::complete`]: a task completes a slot.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::forward::forward;
use super::handle::JoinHandle;
use super::slot::Slot;
use crate::task::{JoinRef, Outcome};

impl<T> JoinHandle<T> {
    /// Completes a slot with the outcome of the task, which then is an item of the slot's stream, under the id of the
    /// slot.
    ///
    /// The thread that ends the task completes the slot; no other task awaits the handle meanwhile. In this way a job
    /// of a [`SerialExecutor`](crate::SerialExecutor), a task with a key or a task of a bulkhead gets into a stream.
    /// For a closure on a pool, [`submit_blocking`](crate::completion::Submitter::submit_blocking) is shorter, and
    /// the stream can abort it. Aborting a slot, by contrast, does not abort the task that completes it.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::{CompletionStream, SerialExecutor};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let total = SerialExecutor::new(0);
    /// let (jobs, mut done) = CompletionStream::builder().build();
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

/// The end of a task. Unlike its handle, it needs no preparation, because no thread waits for it.
struct TaskEnd<T>(Option<JoinRef<T>>);

impl<T> Future for TaskEnd<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let join_ref = self.0.as_mut().expect("it is not polled after its end");
        ready!(join_ref.poll_complete(cx));
        let join_ref = self.0.take().expect("it was there above");
        Poll::Ready(join_ref.into_outcome())
    }
}

// The outcome is moved, never pinned.
impl<T> Unpin for TaskEnd<T> {}
