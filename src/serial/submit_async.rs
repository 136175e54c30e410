//! [`SerialExecutor::submit_async`]: jobs that have the state across await points.
//!
//! Such a job is a future in a cell. It is queued as a closure is, and polled only by a drain, which can wait: a
//! submitter that reaches it hands the queue over. See `drain` and `suspended`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::Core;
use super::enqueue::Rejection;
use super::exclusive::Exclusive;
use super::executor::SerialExecutor;
use super::job::QueuePermit;
use super::level::Level;
use crate::join::JoinHandle;
use crate::sync::Arc;
use crate::task::{Polled, Task};

impl<S: Send + 'static> SerialExecutor<S> {
    /// Queues an asynchronous job, which has the state across its await points. Dropping the handle detaches the job,
    /// which then holds the state until it ends. So under a timeout, await the handle with
    /// [`abort_on_drop`](JoinHandle::abort_on_drop): a drop of that handle ends the job where it waits, and releases the
    /// state, even if a server never answers.
    ///
    /// The closure receives the state as a guard and returns a future. The future is polled where the queue is handed
    /// over to: in a task of the submitter's runtime, or on what [`drain_on`](super::Builder::drain_on) was given. It
    /// is never polled on this thread before `submit_async` returns, and never by the handle, so a caller that does
    /// not poll its handle blocks no other caller. A [`BlockingPool`](crate::BlockingPool) lends it a thread until it
    /// has ended.
    ///
    /// The next job runs when the future has ended and the guard is dropped. Until then all other jobs wait. The job
    /// must not wait for another job of its own executor.
    ///
    /// An aborted job ends at its next await point, or at the one where it waits, and releases the state as it is at
    /// that point. A connection that is aborted between request and answer must not be used for the next request: let
    /// the job mark it, and the next job replace it.
    ///
    /// # Errors
    ///
    /// The handle ends as that of [`post`](Self::post). It ends with
    /// [`is_rejected`](crate::JoinError::is_rejected) if there is nothing to hand over to when the job is submitted or
    /// when it is next. A panic of the closure or of the future is treated as that of any job.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::SerialExecutor;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use tokio::time::timeout;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (client, mut server) = tokio::io::duplex(64);
    /// # tokio::spawn(async move {
    /// #     let mut request = [0; 4];
    /// #     server.read_exact(&mut request).await?;
    /// #     server.write_all(b"pong").await
    /// # });
    /// let connection = SerialExecutor::new(client);
    /// // No other request is written before this one has been answered or has timed out.
    /// let answer = connection.submit_async(|mut connection| async move {
    ///     connection.write_all(b"ping").await?;
    ///     let mut answer = [0; 4];
    ///     connection.read_exact(&mut answer).await?;
    ///     std::io::Result::Ok(answer)
    /// });
    /// let answer = timeout(Duration::from_secs(5), answer.abort_on_drop()).await?;
    /// assert_eq!(&answer??, b"pong");
    /// # Ok(()) }
    /// ```
    pub fn submit_async<F, Fut>(&self, job: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce(Exclusive<S>) -> Fut + Send + 'static,
        Fut: Future<Output: Send> + Send + 'static,
    {
        match self.acquire_queue_permit() {
            Ok(permit) => self.submit_async_permitted(job, permit),
            Err(error) => JoinHandle::refused(self.reject(job, Rejection::from(error))),
        }
    }

    /// Queues an asynchronous job, with its permit if the queue has a bound.
    pub(super) fn submit_async_permitted<F, Fut>(
        &self,
        job: F,
        permit: Option<QueuePermit>,
    ) -> JoinHandle<Fut::Output>
    where
        F: FnOnce(Exclusive<S>) -> Fut + Send + 'static,
        Fut: Future<Output: Send> + Send + 'static,
    {
        self.core.suspended.remember_runtime();
        let target = self.target_if_idle();
        let core = Arc::clone(&self.core);
        let future = AsyncJobFuture {
            core: Arc::clone(&core),
            future: async move { job(Exclusive::new(core)).await },
            permit,
        };
        let (task, join_ref) = Task::joinable_with_bits(Level::NORMAL.user_bits(), Polled(future));
        if let Err((task, why)) = self.post_task(Level::NORMAL, task, target) {
            self.reject_task(task, why);
        }
        self.handle(Ok(join_ref))
    }
}

/// The future of an asynchronous job. If it panics, the state is poisoned before the handle ends.
struct AsyncJobFuture<S, F> {
    core: Arc<Core<S>>,
    future: F,
    /// Released when the job starts. If the job is dropped unstarted, its captures are dropped first, because of the
    /// order of the fields.
    permit: Option<QueuePermit>,
}

impl<S, F: Future> Future for AsyncJobFuture<S, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved; the other fields need not be pinned.
        let (core, future, permit) = unsafe {
            let this = self.get_unchecked_mut();
            let future = Pin::new_unchecked(&mut this.future);
            (&this.core, future, &mut this.permit)
        };
        drop(permit.take());
        let polled = core.guard(|| future.poll(cx));
        if polled.is_ready() {
            core.counters.packed_returned.add(1);
        }
        polled
    }
}
