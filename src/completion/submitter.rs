//! [`Submitter`]: the submitting end of a stream.

use std::fmt;
use std::future::Future;

use super::shared::{Reservation, Shared};
use super::slot::Slot;
use super::start::{start, start_blocking};
use super::wrapped::Wrapped;
use crate::join::{Closed, Id, Spawn, TrySpawnError};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;

/// Submits jobs to a [`CompletionStream`](super::CompletionStream), also while it is read.
///
/// It is cheap to clone. When the last clone is dropped, or [`close`](Self::close) is called, the stream ends as soon
/// as everything has been read.
///
/// Each job that is accepted yields exactly one item.
///
/// | job | method |
/// | --- | --- |
/// | a future, on the current Tokio runtime | [`submit`](Self::submit) |
/// | a future, on another Tokio runtime | [`reserve`](Self::reserve), and then [`submit`](crate::Permit) on the permit, after [`Handle::enter`](tokio::runtime::Handle::enter) |
/// | a future that is tried again when it fails | [`submit`](Self::submit) with [`Retry::run`](crate::Retry::run) |
/// | a future that is not `Send`, or that another executor runs | [`wrap`](Self::wrap) |
/// | a closure, on a [`BlockingPool`](crate::BlockingPool), a [`ComputePool`](crate::ComputePool), or a runtime's blocking threads | [`submit_blocking`](Self::submit_blocking) |
/// | a job of a [`SerialExecutor`](crate::SerialExecutor), or another task that has a handle of this crate | [`slot`](Self::slot) and [`JoinHandle::complete`](crate::JoinHandle::complete) |
/// | a durable task | [`slot`](Self::slot) and `DurableHandle::complete` |
/// | work of a thread, a callback or another library | [`slot`](Self::slot) |
///
/// When the stream is full, these methods wait. [`reserve`](Self::reserve) waits before the job is made, and
/// [`try_submit`](Self::try_submit) and [`try_slot`](Self::try_slot) do not wait.
///
/// # Examples
///
/// See [`CompletionStream`](super::CompletionStream).
pub struct Submitter<T, K = ()> {
    handle: Arc<Open<T, K>>,
}

/// Shared by the clones of a submitter. Closes the stream when the last clone is dropped.
struct Open<T, K>(Arc<Shared<T, K>>);

impl<T: Send + 'static, K: Send + 'static> Submitter<T, K> {
    /// Waits for room, and runs a future on the current Tokio runtime.
    ///
    /// A Tokio task costs more than many futures do, so not every future becomes one. A small future is polled by the
    /// stream's own tasks, together with others, until it waits for the second time. It then becomes a task. A future
    /// is small if it fits, with tag and output, into a cell of 256 bytes. The stream has at most about as many such
    /// tasks as the runtime has workers, and they run on its workers. This differs from `tokio::spawn` as follows:
    ///
    /// - Until the future waits for the second time, [`tokio::task::id`] and tokio-console show a task of the stream,
    ///   and its polls before and after the first wait may be in different tasks and on different workers.
    /// - A poll may come without a wake-up, which every future must allow.
    /// - If the future computes for long or blocks its thread before it waits for the second time, the futures that are
    ///   queued behind it may be delayed by some milliseconds, until other tasks of the stream take them over.
    /// - Once a future has waited, one task of the stream stays on the runtime until the stream, its submitters and its
    ///   jobs are gone.
    /// - If the runtime shuts down while a future blocks its thread, suspended futures may not be cancelled until that
    ///   poll returns.
    ///
    /// Without a runtime, the outcome is [`is_rejected`](crate::JoinError::is_rejected). If the runtime has been shut
    /// down, it is [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// With [`poll_in_place`](super::Builder::poll_in_place), this method polls the future once itself.
    ///
    /// Do not await this in the task that reads the stream: if the stream is full, the task waits for itself. Select between
    /// [`reserve`](Self::reserve) and [`next`](super::CompletionStream::next) there. With the feature `tracing`, a submission
    /// that has waited for a second while nothing polls the stream logs a warning.
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the job was not submitted and is dropped too. To keep the job,
    /// use [`reserve`](Self::reserve). A future that is kept without being polled may hold up other submitters.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let id = jobs.submit("tag", async { 7 }).await?;
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert_eq!((completed.id, completed.tag, completed.outcome?), (id, "tag", 7));
    /// # Ok(()) }
    /// ```
    pub async fn submit<F>(&self, tag: K, future: F) -> Result<Id, Closed<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.shared().consume_budget().await;
        match self.reservation().await {
            Some(reservation) => start(reservation, tag, future),
            None => Err(Closed::new((tag, future))),
        }
    }

    /// Runs a future on the current Tokio runtime, as [`submit`](Self::submit) does, if there is room now.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) or [`is_closed`](TrySpawnError::is_closed), with tag and future.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().max_outstanding(1).build()?;
    /// jobs.try_submit(1, async {}).expect("there is room for one");
    /// let (tag, _future) = jobs.try_submit(2, async {}).unwrap_err().into_inner();
    /// assert_eq!(tag, 2);
    /// # done.next().await;
    /// # Ok(()) }
    /// ```
    pub fn try_submit<F>(&self, tag: K, future: F) -> Result<Id, TrySpawnError<(K, F)>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        match self.shared().try_reserve() {
            Ok(reservation) => start(reservation, tag, future).map_err(closed),
            Err(no_room) => Err(refused(no_room, (tag, future))),
        }
    }

    /// Waits for room, and makes a job of a future that the caller runs on an executor of its choice. Returns its id.
    ///
    /// Use this for futures that are not `Send`, on a [`LocalSet`](tokio::task::LocalSet), and for executors other
    /// than Tokio's. As with futures that are [submitted](Self::submit), a panic becomes the outcome, and
    /// [`abort`](Self::abort) works.
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and future, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let local = tokio::task::LocalSet::new();
    /// let name = Rc::new("not Send");
    /// let job = jobs.wrap("a tag", async move {
    ///     tokio::task::yield_now().await;
    ///     name.len()
    /// });
    /// if let Ok((_id, job)) = job.await {
    ///     local.spawn_local(job);
    /// }
    ///
    /// let completed = local.run_until(done.next()).await.expect("one is outstanding");
    /// assert_eq!(completed.outcome?, 8);
    /// # Ok(()) }
    /// ```
    pub async fn wrap<F>(&self, tag: K, future: F) -> Result<(Id, Wrapped<F, K>), Closed<(K, F)>>
    where
        F: Future<Output = T>,
    {
        match self.reservation().await {
            Some(reservation) => reservation.wrap(tag, future).map_err(Closed::new),
            None => Err(Closed::new((tag, future))),
        }
    }

    /// Waits for room, and runs a closure on a pool or on a runtime's blocking threads. The closure may block.
    ///
    /// The room is that of this stream. If the pool itself is full or closed, it does not accept the closure, and the
    /// outcome is [`is_rejected`](crate::JoinError::is_rejected).
    ///
    /// # Errors
    ///
    /// [`Closed`] with tag and closure, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// As that of [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::BlockingPool;
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(2).build()?;
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.submit_blocking(&pool, "closure", || 7).await?;
    /// assert_eq!(done.next().await.expect("one is outstanding").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub async fn submit_blocking<F>(
        &self,
        pool: &impl Spawn,
        tag: K,
        f: F,
    ) -> Result<Id, Closed<(K, F)>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        match self.reservation().await {
            Some(reservation) => start_blocking(reservation, pool, tag, f),
            None => Err(Closed::new((tag, f))),
        }
    }

    /// Waits for room, and promises a completion that comes from elsewhere: see [`Slot`].
    ///
    /// # Errors
    ///
    /// [`Closed`] with the tag, if the stream is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was promised. A future that is kept without being polled
    /// may hold up other submitters.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let slot = jobs.slot("callback").await?;
    /// slot.complete(7);
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert_eq!((completed.tag, completed.outcome?), ("callback", 7));
    /// # Ok(()) }
    /// ```
    pub async fn slot(&self, tag: K) -> Result<Slot<T, K>, Closed<K>> {
        match self.reservation().await {
            Some(reservation) => reservation.slot(tag).map_err(Closed::new),
            None => Err(Closed::new(tag)),
        }
    }

    /// Promises a completion that comes from elsewhere, if there is room now: see [`Slot`].
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) or [`is_closed`](TrySpawnError::is_closed), with the tag.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, _done) = CompletionStream::<(), _>::builder().max_outstanding(1).build()?;
    /// let slot = jobs.try_slot(1)?;
    /// let refused = jobs.try_slot(2).unwrap_err();
    /// assert!(refused.is_full() && refused.into_inner() == 2);
    /// # drop(slot);
    /// # Ok(()) }
    /// ```
    pub fn try_slot(&self, tag: K) -> Result<Slot<T, K>, TrySpawnError<K>> {
        match self.shared().try_reserve() {
            Ok(reservation) => reservation.slot(tag).map_err(TrySpawnError::closed),
            Err(no_room) => Err(refused(no_room, tag)),
        }
    }

    /// Aborts a job. Returns `false` if it has finished, or if no job of the stream has this id.
    ///
    /// A future is not polled again, and is soon dropped by the task that runs it. A closure that has not started is
    /// dropped at once; one that has started runs to its end, and its output is the outcome. The holder of a [`Slot`]
    /// can [find out](Slot::aborted). The outcome of a job that was ended by this is
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    ///
    /// Takes constant time, except that the first call of a stream takes time proportional to its outstanding jobs.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::<()>::builder().build()?;
    /// let id = jobs.submit((), std::future::pending()).await?;
    /// assert!(jobs.abort(id));
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert!(completed.outcome.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn abort(&self, id: Id) -> bool {
        self.shared().abort(id)
    }

    /// [Aborts](Self::abort) all outstanding jobs, and returns how many of them had not finished. The stream stays
    /// open, and yields their items.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::<()>::builder().build()?;
    /// jobs.submit((), std::future::pending()).await?;
    /// assert_eq!(jobs.abort_all(), 1);
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert!(completed.outcome.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn abort_all(&self) -> usize {
        self.shared().abort_all()
    }

    /// Closes the stream: no clone of the submitter accepts jobs any more, and the stream ends when everything has
    /// been read.
    ///
    /// Submitters that wait for room get an error. Accepted jobs run on.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.submit((), async { 7 }).await?;
    /// jobs.close();
    /// assert!(jobs.submit((), async { 8 }).await.is_err());
    /// assert!(done.next().await.is_some());
    /// assert!(done.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub fn close(&self) {
        self.shared().close();
    }

    /// Waits until the stream is closed or dropped, and its jobs have ended.
    ///
    /// Their completions may still be unread, and the last one may arrive a moment later. A [reserved](Self::reserve) permit that
    /// is not used yet counts as a job.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// jobs.submit((), async { 7 }).await?;
    /// jobs.close();
    /// jobs.closed().await;
    /// assert_eq!(jobs.metrics().running, 0);
    /// assert_eq!(done.next().await.expect("one is unread").outcome?, 7);
    /// # Ok(()) }
    /// ```
    pub async fn closed(&self) {
        self.shared().queue.running.drained().await;
    }

    /// Returns `true` if the stream was closed or dropped.
    pub fn is_closed(&self) -> bool {
        self.shared().len().1
    }

    /// The number of outstanding jobs: accepted and not read.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::CompletionStream;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// let slot = jobs.slot(()).await?;
    /// assert_eq!((jobs.in_flight(), jobs.ready()), (1, 0));
    /// slot.complete(7);
    /// assert_eq!((jobs.in_flight(), jobs.ready()), (1, 1));
    /// done.next().await;
    /// assert_eq!((jobs.in_flight(), jobs.ready()), (0, 0));
    /// # Ok(()) }
    /// ```
    pub fn in_flight(&self) -> usize {
        self.shared().in_flight()
    }

    /// The number of jobs that have finished and were not read. Approximate while jobs are submitted and complete.
    ///
    /// # Examples
    ///
    /// See [`in_flight`](Self::in_flight).
    pub fn ready(&self) -> usize {
        self.shared().ready()
    }

    async fn reservation(&self) -> Option<Reservation<'_, T, K>> {
        self.shared().reserve().await.ok()
    }
}

impl<T, K> Submitter<T, K> {
    pub(super) fn new(shared: Arc<Shared<T, K>>) -> Self {
        Self {
            handle: Arc::new(Open(shared)),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared<T, K>> {
        &self.handle.0
    }
}

impl<T, K> Clone for Submitter<T, K> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
        }
    }
}

impl<T, K> fmt::Debug for Submitter<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.0.fmt_fields(&mut f.debug_struct("Submitter"))
    }
}

impl<T, K> Drop for Open<T, K> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn refused<R>(no_room: TryAcquireError, job: R) -> TrySpawnError<R> {
    match no_room {
        TryAcquireError::Full => TrySpawnError::full(job),
        TryAcquireError::Closed => TrySpawnError::closed(job),
    }
}

fn closed<R>(error: Closed<R>) -> TrySpawnError<R> {
    TrySpawnError::closed(error.into_inner())
}
