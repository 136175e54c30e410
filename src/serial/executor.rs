//! [`SerialExecutor`]: the handle of an executor, and its end.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use super::core::{Core, POISONED};
use super::metrics::Metrics;
use super::options::Options;
use super::owner::Owner;
use crate::join::{self, Close, ExecutorScope, is_inside, prepare_to_wait};
use crate::sync::Arc;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

/// An actor without a thread and without a mailbox: it owns a state and runs jobs on it one at a time, in the order
/// in which they were submitted.
///
/// An idle executor runs a job at once, on the thread that submits it, at the cost of an uncontended mutex: no queue, no
/// other thread, and no allocation (an output of more than two words goes into a recycled cell). A busy executor queues
/// the job, with one recycled cell and one compare-and-swap, and `submit` returns. A thread that has finished its own
/// job also runs the jobs that others have queued meanwhile, up to the
/// [capture limit](super::Builder::capture_jobs), and then hands the queue over to a Tokio task. Submitting never
/// blocks. While jobs are very short, it may spin for a few microseconds.
///
/// Clones are handles of the same executor.
///
/// # When to use it
///
/// - Instead of a task that owns a state and reads a channel: the same isolation without a wake-up per message, and
///   without a loop.
/// - Instead of a [`tokio::sync::Mutex`] around a state that is changed often and briefly.
///
/// Use a [`std::sync::Mutex`] if a change takes nanoseconds and callers may wait for it. Use Tokio's mutex if most
/// changes hold the lock across `.await`: here a job is a closure, and a job that is a future
/// ([`submit_async`](Self::submit_async)) always runs in a task of its own. In return, a caller that stops polling
/// blocks no other caller. Use an actor framework (kameo, ractor, actix) if actors supervise one another, have names
/// or live in other processes.
///
/// # What a job may do
///
/// A job runs on the thread that submitted it or another job, or on a Tokio worker. It sees the runtime and the
/// thread-locals of that thread, and its current `tracing` span, which may belong to another submitter. To log in a span of
/// its own, a job must enter it: `submit(move |state| span.in_scope(|| ..))`.
///
/// A job must not block for long, and it must not take a lock that a submitter holds while it submits. Three options lift the
/// second rule: [`post`](Self::post), [`capture_jobs(0)`](super::Builder::capture_jobs) for locks of other submitters, and
/// [`inline(false)`](super::Builder::inline).
///
/// A job that is submitted from inside a job of the same executor is queued. To wait for it there is an error,
/// [`is_would_deadlock`](crate::JoinError::is_would_deadlock). This is also detected if jobs of other executors are
/// in between on the same thread.
///
/// # Guarantees
///
/// - *Order*: jobs of one [level](Self::submit_at) run in the order in which they were submitted. A job does not
///   wait for its handle to be polled.
/// - *Panics*: a panic reaches the handle of its job only. It poisons the state, unless
///   [`poison_on_panic`](super::Builder::poison_on_panic) is off. A [transaction](Self::transact) that panics is rolled
///   back.
/// - *Drop*: when the last handle is dropped, queued jobs still run. Then the state is dropped, on the thread that
///   ran the last job.
/// - *Shutdown of the runtime*: jobs that were handed over to it end with
///   [`is_cancelled`](crate::JoinError::is_cancelled).
///
/// # Waiting until it is idle
///
/// [`idle`](Self::idle) returns when it finds that no job is queued or running. While others keep the executor busy, it may
/// never return. To wait only for earlier jobs of the same or a higher level, await `executor.submit(|_| ())`. To wait for the
/// end of all jobs, [close](Self::close) the executor and await [`closed`](Self::closed).
///
/// # Examples
///
/// ```
/// use throng::SerialExecutor;
///
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let account = SerialExecutor::new(100_u64);
/// let balance = account
///     .submit(|balance| {
///         *balance += 10;
///         *balance
///     })
///     .await?;
/// assert_eq!(balance, 110);
/// # Ok(()) }
/// ```
pub struct SerialExecutor<S> {
    pub(super) core: Arc<Core<S>>,
}

impl<S: Send + 'static> SerialExecutor<S> {
    /// Creates an executor with the default options.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(1);
    /// assert_eq!(count.submit(|n| *n).await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn new(state: S) -> Self {
        Self::with_options(state, Options::default())
    }

    pub(super) fn with_options(state: S, options: Options) -> Self {
        Self {
            core: Arc::new(Core::new(state, options)),
        }
    }

    /// Closes the executor, waits for the jobs that were accepted, and returns the state.
    ///
    /// This is the way to end with asynchronous clean-up, which a `Drop` of the state cannot do.
    ///
    /// # Errors
    ///
    /// Returns the executor, with the state if it still has one:
    ///
    /// - A job has panicked and left the state poisoned: the executor [is poisoned](Self::is_poisoned) and closed. To
    ///   get the state nevertheless, call [`clear_poison`](Self::clear_poison) and then `into_inner` again.
    /// - The caller is a job of the same executor, which [is current](Self::is_current) and stays open.
    /// - Otherwise, a call on another handle has returned the state.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the executor stays closed and keeps the state.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use tokio::io::AsyncWriteExt;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (stream, server) = tokio::io::duplex(64);
    /// let connection = SerialExecutor::new(stream);
    /// let written = connection.submit_async(|mut stream| async move { stream.write_all(b"bye").await });
    /// written.await??;
    ///
    /// let mut stream = connection.into_inner().await.expect("no job has panicked");
    /// stream.shutdown().await?;
    /// # drop(server);
    /// # Ok(()) }
    /// ```
    pub async fn into_inner(self) -> Result<S, Self> {
        if prepare_to_wait(self.core.id()).is_err() {
            return Err(self);
        }
        self.close();
        let state = self.core.released.wait(|| self.try_take_state()).await;
        state.ok_or(self)
    }

    /// The state of a closed executor, unless it is poisoned or was taken before. `None` while the executor is busy.
    fn try_take_state(&self) -> Option<Option<S>> {
        let mut owner = Owner::acquire_closed(&self.core).ok()?;
        let state = match self.is_poisoned() {
            true => None,
            false => owner.take_state(),
        };
        owner.finish();
        Some(state)
    }

    /// Replaces a poisoned state, accepts jobs again, and returns the poisoned state.
    ///
    /// It waits until the queued jobs have ended with [`is_poisoned`](crate::JoinError::is_poisoned).
    ///
    /// # Errors
    ///
    /// Returns the new state if the executor is not poisoned or is closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing has changed, and the new state is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let list = SerialExecutor::new(vec![1, 2, 3]);
    /// let failed = list.submit(|list| {
    ///     list.clear();
    ///     panic!("half way");
    /// });
    /// let failed: Result<(), _> = failed.await;
    /// assert!(failed.unwrap_err().is_panic());
    /// assert!(list.submit(|list| list.len()).await.unwrap_err().is_poisoned());
    ///
    /// assert_eq!(list.reset(vec![4]).await, Ok(vec![]));
    /// assert_eq!(list.submit(|list| list.len()).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn reset(&self, state: S) -> Result<S, S> {
        let mut state = Some(state);
        let reset = || self.try_reset(&mut state);
        self.core.released.wait(reset).await
    }

    /// Replaces the state, which is taken out of `new`. `None` while the executor is busy.
    fn try_reset(&self, new: &mut Option<S>) -> Option<Result<S, S>> {
        if !self.is_poisoned() || self.is_closed() {
            return new.take().map(Err);
        }
        let mut owner = match Owner::acquire_poisoned(&self.core) {
            Ok(owner) => owner,
            // Busy, or closed meanwhile: the release notifies, and so does `close`.
            Err(head) if head.tags.has(POISONED) => return None,
            // Another reset has cleared the poison, and does not notify.
            Err(_) => return new.take().map(Err),
        };
        let _inside = ExecutorScope::job(self.core.id());
        let old = new.take().map(|new| owner.replace_state(new));
        owner.finish();
        old.map(Ok)
    }

    /// Closes the executor, waits until its jobs have ended or `timeout` is over, and then aborts the jobs that have
    /// not started. Returns the number of jobs aborted.
    ///
    /// Their handles end with [`is_cancelled`](crate::JoinError::is_cancelled). A job that has started is not
    /// aborted: it runs to its end, for which [`closed`](Self::closed) waits. Inside a job of the same executor,
    /// which cannot end meanwhile, the whole timeout passes.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime, or if its timer is not enabled.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the executor stays closed, and nothing is aborted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() {
    /// let executor = SerialExecutor::new(0);
    /// let last = executor.post(|n| *n + 1);
    /// assert_eq!(executor.shutdown(Duration::from_secs(10)).await, 0);
    /// assert_eq!(last.await.unwrap(), 1);
    /// # }
    /// ```
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        join::shutdown(self, timeout).await
    }

    /// Closes the executor and aborts the jobs that have not started. Returns the number of jobs aborted.
    ///
    /// Their captures are dropped on this thread before this method returns, and their handles end with
    /// [`is_cancelled`](crate::JoinError::is_cancelled). A job that has started runs to its end, for which
    /// [`closed`](Self::closed) waits. A job may call this on its own executor.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let executor = SerialExecutor::new(0);
    /// // Queued, because this task does not let another one run.
    /// let queued = executor.post(|n| *n += 1);
    /// assert_eq!(executor.shutdown_now(), 1);
    /// assert!(queued.await.unwrap_err().is_cancelled());
    /// # }
    /// ```
    pub fn shutdown_now(&self) -> usize {
        join::shutdown_now(self)
    }
}

impl<S> SerialExecutor<S> {
    /// Accepts no more jobs. Jobs that were accepted still run.
    ///
    /// A job may call this on its own executor. Calling it again has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(0);
    /// count.close();
    /// assert!(count.is_closed());
    /// assert!(count.submit(|n| *n).await.unwrap_err().is_closed());
    /// # Ok(()) }
    /// ```
    pub fn close(&self) {
        self.core.close();
    }

    /// Waits until no job is queued or running. The executor stays open, so another job may be submitted meanwhile.
    ///
    /// It never completes inside a job of the same executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let count = throng::SerialExecutor::new(0);
    /// for _ in 0..3 {
    ///     drop(count.post(|n| *n += 1));
    /// }
    /// count.idle().await;
    /// assert_eq!(count.metrics().completed, 3);
    /// # }
    /// ```
    pub async fn idle(&self) {
        // The error is ignored: as documented, this never completes inside a job of this executor.
        let _ = prepare_to_wait(self.core.id());
        let is_idle = || self.core.is_idle().then_some(());
        self.core.released.wait(is_idle).await;
    }

    /// Waits until the executor is closed and its last job has ended.
    ///
    /// It does not close the executor. Inside a job of the same executor it never returns.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let executor = throng::SerialExecutor::new(());
    /// drop(executor.submit(|()| println!("the last one")));
    /// executor.close();
    /// executor.closed().await;
    /// # }
    /// ```
    pub async fn closed(&self) {
        // Inside a job of this executor it waits nevertheless, as documented.
        let _ = prepare_to_wait(self.core.id());
        let has_ended = || self.core.has_ended().then_some(());
        self.core.released.wait(has_ended).await;
    }

    /// Returns `true` if the executor is closed.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Returns `true` inside a job of this executor, also if jobs of other executors are in between.
    ///
    /// There, waiting for another job of this executor is an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(0);
    /// let again = count.clone();
    /// assert!(!count.is_current());
    /// assert!(count.submit(move |_| again.is_current()).await?);
    /// # Ok(()) }
    /// ```
    pub fn is_current(&self) -> bool {
        is_inside(self.core.id())
    }

    /// Returns `true` if a job has panicked and left the state poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(0);
    /// let failed: Result<(), _> = count.submit(|_| panic!("harmless")).await;
    /// assert!(failed.is_err() && count.is_poisoned());
    /// # Ok(()) }
    /// ```
    pub fn is_poisoned(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Accepts jobs again after a panic, on the state as it is. Returns `true` if the state was poisoned.
    ///
    /// See [`reset`](Self::reset) to replace the state instead.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let count = throng::SerialExecutor::new(1);
    /// let failed: Result<(), _> = count.submit(|_| panic!("harmless")).await;
    /// assert!(failed.is_err() && count.clear_poison());
    /// assert_eq!(count.submit(|n| *n).await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn clear_poison(&self) -> bool {
        self.core.clear_poison()
    }

    /// Returns the counters of the executor.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(0);
    /// count.submit(|n| *n += 1).await?;
    /// let metrics = count.metrics();
    /// assert_eq!((metrics.inline, metrics.completed), (1, 1));
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.core.metrics()
    }
}

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
impl<S: Send + 'static> SerialExecutor<S> {
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<S> {
        WeakPart::new(&self.core, Core::metrics)
    }
}

impl<S: Send + 'static> Close for SerialExecutor<S> {
    fn close(&self) {
        self.core.close();
    }

    async fn closed(&self) {
        self.closed().await;
    }

    fn abort_queued(&self) -> usize {
        self.core.abort_queued()
    }
}

impl<S> Clone for SerialExecutor<S> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

// A panic in a job cannot break the executor, and `poison_on_panic` protects the state.
impl<S> UnwindSafe for SerialExecutor<S> {}
impl<S> RefUnwindSafe for SerialExecutor<S> {}

impl<S> fmt::Debug for SerialExecutor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialExecutor")
            .field("busy", &self.core.is_owned())
            .field("closed", &self.is_closed())
            .field("poisoned", &self.is_poisoned())
            .field("metrics", &self.metrics())
            .finish()
    }
}
