//! The methods that submit a closure.

use std::panic::resume_unwind;

use super::core::{CLOSED, POISONED};
use super::executor::SerialExecutor;
use super::job::Plain;
use super::level::Level;
use super::owner::Owner;
use crate::inbox::Head;
use crate::join::{ExecutorScope, JoinHandle, TrySpawnError};

impl<S: Send + 'static> SerialExecutor<S> {
    /// Runs a job on the state: at once on this thread if the executor is idle, otherwise after the jobs before it.
    ///
    /// The job runs whether or not the handle is polled. The handle of a job that ran at once is ready.
    ///
    /// It never blocks. A submitter that finds the executor idle may also run jobs that others queue meanwhile, up to
    /// the [capture limit](super::Builder::capture_jobs). If eight jobs of other executors are nested on this
    /// thread, the job runs when the outermost of them has ended.
    ///
    /// # Errors
    ///
    /// The handle ends with
    ///
    /// - [`is_panic`](crate::JoinError::is_panic) if the job panicked;
    /// - [`is_closed`](crate::JoinError::is_closed) or [`is_poisoned`](crate::JoinError::is_poisoned) if the executor
    ///   is closed or its state poisoned;
    /// - [`is_rejected`](crate::JoinError::is_rejected) if the queue is [full](super::Builder::queue_capacity);
    /// - [`is_cancelled`](crate::JoinError::is_cancelled) if the job was aborted, or the runtime that the queue was
    ///   handed over to has shut down;
    /// - [`is_would_deadlock`](crate::JoinError::is_would_deadlock) if it is awaited inside a job of the same
    ///   executor. The job still runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let names = SerialExecutor::new(Vec::new());
    /// // Runs although the handle is dropped.
    /// drop(names.submit(|names| names.push("Ada")));
    /// assert_eq!(names.submit(|names| names.len()).await?, 1);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn submit<F, R>(&self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run_or_queue(Level::NORMAL, Plain(job))
    }

    /// As [`submit`](Self::submit), with a priority among the jobs that wait.
    ///
    /// Of the waiting jobs, one of the highest level runs first, and jobs of one level run in the order in which they
    /// were submitted. No level starves: see [`Level`]. An idle executor runs the job at once,
    /// whatever its level.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::Level;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let log = SerialExecutor::new(Vec::new());
    /// let inner = log.clone();
    /// let busy = log.submit(move |_| {
    ///     drop(inner.submit(|log| log.push("second")));
    ///     inner.submit_at(Level::HIGH, |log| log.push("first"))
    /// });
    /// busy.await?.await?;
    /// assert_eq!(log.submit(|log| log.clone()).await?, ["first", "second"]);
    /// # Ok(()) }
    /// ```
    pub fn submit_at<F, R>(&self, level: Level, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run_or_queue(level, Plain(job))
    }

    /// Queues a job. The job never runs on this thread before `post` returns.
    ///
    /// Use it for a long job, or for one that takes locks which the submitter holds. If the executor is idle, the
    /// queue is handed over at once, to the runtime of this thread or to [`drain_on`](super::Builder::drain_on).
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit). The handle also ends with [`is_rejected`](crate::JoinError::is_rejected) if the
    /// executor is idle and there is nothing to hand over to. If a pool that is closed or full refuses the queue, the
    /// queued jobs end with [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let executor = SerialExecutor::new(());
    /// let list = Arc::new(Mutex::new(vec![1]));
    /// let sum = {
    ///     // `submit` would run the job here and wait for this lock forever.
    ///     let _held = list.lock().unwrap();
    ///     let list = Arc::clone(&list);
    ///     executor.post(move |()| list.lock().unwrap().iter().sum::<i32>())
    /// };
    /// assert_eq!(sum.await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn post<F, R>(&self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let queued = self.post_job(Level::NORMAL, Plain(job));
        self.handle(queued.map_err(TrySpawnError::drop_task))
    }

    /// As [`submit`](Self::submit), but returns the job if it is not accepted.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) if the executor is busy and its queue is
    /// [full](super::Builder::queue_capacity); [`is_closed`](TrySpawnError::is_closed) if it is. It also
    /// fails if the state [is poisoned](Self::is_poisoned), or if the executor was built with
    /// [`inline(false)`](super::Builder::inline) and there is nothing to run the job on; the message tells these apart.
    ///
    /// # Examples
    ///
    /// ```
    /// let executor = throng::SerialExecutor::new(1);
    /// assert!(executor.try_submit(|n| *n += 1).is_ok());
    ///
    /// executor.close();
    /// let refused = executor.try_submit(|n| *n += 1).unwrap_err();
    /// let mut n = 1;
    /// (refused.into_inner())(&mut n);
    /// assert_eq!(n, 2);
    /// ```
    pub fn try_submit<F, R>(&self, job: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let inline = self.core.options.inline;
        let queued = match inline.then(|| Owner::acquire(&self.core)) {
            None => self.post_job(Level::NORMAL, Plain(job)),
            Some(Ok(owner)) => return Ok(self.run_acquired(owner, Level::NORMAL, Plain(job))),
            Some(Err(seen)) => self.queue(Level::NORMAL, Plain(job), seen),
        };
        let join_ref = queued.map_err(|error| error.map(|Plain(job)| job))?;
        Ok(self.handle(Ok(join_ref)))
    }

    /// Runs a job now on this thread, or not at all. The job may borrow.
    ///
    /// # Errors
    ///
    /// Returns the job if the executor is busy, closed or poisoned.
    ///
    /// # Panics
    ///
    /// If the job panics, the state is poisoned, and the panic is propagated to the caller.
    ///
    /// # Examples
    ///
    /// ```
    /// let executor = throng::SerialExecutor::new(String::from("state"));
    /// let mut copy = String::new();
    /// executor.try_run(|state| copy.push_str(state)).expect("it is idle");
    /// assert_eq!(copy, "state");
    /// ```
    pub fn try_run<F, R>(&self, job: F) -> Result<R, TrySpawnError<F>>
    where
        F: FnOnce(&mut S) -> R,
    {
        let mut owner = match Owner::acquire(&self.core) {
            Ok(owner) => owner,
            Err(seen) => return Err(not_run(job, seen)),
        };
        let _inside = ExecutorScope::job(self.core.id());
        let result = owner.run_direct(|lent| lent.run(job));
        owner.finish();
        result.or_else(|payload| resume_unwind(payload))
    }
}

fn not_run<F>(job: F, seen: Head) -> TrySpawnError<F> {
    if seen.tags.has(CLOSED) {
        TrySpawnError::closed(job)
    } else if seen.tags.has(POISONED) {
        TrySpawnError::poisoned(job)
    } else {
        TrySpawnError::busy(job)
    }
}
