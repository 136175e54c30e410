//! Permits: room in a bounded queue, reserved before the job exists.

use super::exclusive::Exclusive;
use super::executor::SerialExecutor;
use super::job::{Plain, QueuePermit};
use super::level::Level;
use super::owner::Owner;
use crate::join::{Bounded, Closed, JoinHandle, Permit, TrySpawnError, prepare_to_wait, sealed};
use crate::semaphore::TryAcquireError;

impl<S: Send + 'static> SerialExecutor<S> {
    /// Waits until the queue has room for a job, and reserves it: back-pressure that blocks no thread.
    ///
    /// Without a [queue capacity](super::Builder::queue_capacity), and inside a job of the same executor, it returns
    /// at once. Waiting callers are woken in the order in which they came. A newcomer may be faster than a caller that was
    /// woken, but not more than twice: then it leaves a permit to that caller.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the executor is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no permit is taken, and the caller loses its place among those that wait. A future
    /// that is kept without being polled may delay others that wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let log = SerialExecutor::builder().queue_capacity(100).build(Vec::new())?;
    /// for line in 0..1_000 {
    ///     // Waits while a hundred lines are queued.
    ///     drop(log.reserve().await?.submit(move |log| log.push(line)));
    /// }
    /// let log = log.into_inner().await.expect("no job has panicked");
    /// assert_eq!(log.len(), 1_000);
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, Self>, Closed> {
        Permit::reserve(self).await
    }

    /// The permit of the queue that a [`Permit`] stands for. `None` if the queue has no bound.
    fn adopt_queue_permit(&self) -> Option<QueuePermit> {
        self.core.semaphore.as_ref().map(QueuePermit::adopt)
    }
}

impl<S> sealed::Sealed for SerialExecutor<S> {}

impl<S: Send + 'static> Bounded for SerialExecutor<S> {
    async fn acquire_permit(&self) -> Result<(), Closed> {
        let Some(semaphore) = &self.core.semaphore else {
            return match self.is_closed() {
                true => Err(Closed::new(())),
                false => Ok(()),
            };
        };
        match semaphore.try_acquire() {
            Err(TryAcquireError::Full) if prepare_to_wait(self.core.id()).is_err() => {
                semaphore.acquire_over_limit();
                Ok(())
            }
            Err(TryAcquireError::Full) => semaphore.acquire().await,
            acquired => acquired,
        }
        .map_err(|_| Closed::new(()))
    }

    fn release_permit(&self) {
        drop(self.adopt_queue_permit());
    }
}

impl<S: Send + 'static> Permit<'_, SerialExecutor<S>> {
    /// Submits a job as [`SerialExecutor::submit`] does. A job that runs at once releases the permit before it runs.
    ///
    /// # Errors
    ///
    /// As [`SerialExecutor::submit`], but the queue is never full.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let total = throng::SerialExecutor::builder().queue_capacity(10).build(0)?;
    /// total.reserve().await?.submit(|total| *total += 1).await?;
    /// # Ok(()) }
    /// ```
    pub fn submit<F, R>(self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let executor = self.consume();
        if !executor.core.options.inline {
            return post(&executor, job);
        }
        let permit = executor.adopt_queue_permit();
        let job = Plain(job);
        if let Ok(owner) = Owner::acquire(&executor.core) {
            drop(permit);
            return executor.run_acquired(owner, Level::NORMAL, job);
        }
        let queued = match permit {
            Some(permit) => executor.push(Level::NORMAL, job, permit),
            None => executor.push(Level::NORMAL, job, ()),
        };
        executor.handle(queued.map_err(TrySpawnError::drop_task))
    }

    /// Queues an asynchronous job as [`SerialExecutor::submit_async`] does. The permit is released when the job starts.
    ///
    /// # Errors
    ///
    /// As [`SerialExecutor::submit_async`], but the queue is never full.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let total = throng::SerialExecutor::builder().queue_capacity(10).build(0)?;
    /// let job = total.reserve().await?.submit_async(|mut total| async move {
    ///     tokio::task::yield_now().await;
    ///     *total += 1;
    ///     *total
    /// });
    /// assert_eq!(job.await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn submit_async<F, Fut>(self, job: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce(Exclusive<S>) -> Fut + Send + 'static,
        Fut: Future<Output: Send> + Send + 'static,
    {
        let executor = self.consume();
        let permit = executor.adopt_queue_permit();
        executor.submit_async_permitted(job, permit)
    }
}

/// Queues a job for which the caller holds a permit.
fn post<S, F, R>(executor: &SerialExecutor<S>, job: F) -> JoinHandle<R>
where
    S: Send + 'static,
    F: FnOnce(&mut S) -> R + Send + 'static,
    R: Send + 'static,
{
    let queued = match executor.adopt_queue_permit() {
        Some(permit) => executor.post_permitted(Level::NORMAL, Plain(job), permit),
        None => executor.post_permitted(Level::NORMAL, Plain(job), ()),
    };
    executor.handle(queued.map_err(TrySpawnError::drop_task))
}
