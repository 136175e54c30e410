//! [`JoinSet`]: a stream without limits, with the interface of Tokio's `JoinSet`.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::LocalSet;

use super::shared::Reservation;
use super::start::{start, start_blocking, start_on};
use super::stream::{Completed, CompletionStream};
use super::submitter::Submitter;
use super::wrapped::Wrapped;
use crate::join::{AbortHandle, Closed, Id, JoinError, JoinHandle, Spawn};

/// A set of tasks whose outputs are returned in the order in which the tasks end.
///
/// It is a [`CompletionStream`] without limits and tags whose only submitter is its owner, with the interface of
/// [`tokio::task::JoinSet`]. A small future that waits at most once costs no Tokio task, and a finished task that was
/// not joined keeps little besides its output. If many tasks may be spawned before they are joined, prefer a
/// [`CompletionStream`], which has limits.
///
/// When the set is dropped, its tasks are aborted.
///
/// # Differences from Tokio's
///
/// - Ids, [`AbortHandle`]s and [`JoinError`]s are those of this crate.
/// - [`spawn`](Self::spawn) outside of a runtime does not panic: the outcome is
///   [`is_rejected`](JoinError::is_rejected).
/// - [`spawn_blocking_on`](Self::spawn_blocking_on) also accepts a pool of this crate.
/// - A small future is polled by tasks of the set until it waits for the second time: see
///   [`Submitter::submit`](super::Submitter::submit).
/// - There is no `poll_join_next_with_id`.
///
/// # Examples
///
/// ```
/// use throng::completion::JoinSet;
///
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let mut set: JoinSet<u32> = (1..=10).map(|n| async move { n * n }).collect();
/// set.spawn_blocking(|| 15);
///
/// let mut sum = 0;
/// while let Some(square) = set.join_next().await {
///     sum += square?;
/// }
/// assert_eq!(sum, 400);
/// # Ok(()) }
/// ```
#[must_use = "dropping a set aborts its tasks"]
pub struct JoinSet<T> {
    jobs: Submitter<Output<T>>,
    done: CompletionStream<Output<T>>,
    /// `Send` and `Sync` as handles of the tasks are.
    handles: PhantomData<JoinHandle<T>>,
}

/// The output of a task, which may not be `Send`.
struct Output<T>(T);

// SAFETY: a set is `Send` only if `T` is. If `T` is not, each task was spawned by `spawn_local` or
// `spawn_local_on` on the thread that has the set, since the other methods require `T: Send`. Such a task is polled and
// dropped on that thread, so that is where its output is made, and where it is delivered: to the set, or, if the
// set is gone, to be dropped. An abort from another thread only wakes the task, whose future is not in its cell.
unsafe impl<T> Send for Output<T> {}

impl<T> JoinSet<T> {
    /// An empty set.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// let set = JoinSet::<u32>::new();
    /// assert!(set.is_empty());
    /// ```
    pub fn new() -> Self {
        let (jobs, done) = CompletionStream::unbounded();
        Self {
            jobs,
            done,
            handles: PhantomData,
        }
    }

    /// The number of tasks that were spawned and not joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut set = JoinSet::new();
    /// set.spawn(async {});
    /// set.spawn(std::future::pending());
    /// assert_eq!(set.len(), 2);
    ///
    /// // A task counts until it is joined.
    /// set.join_next().await;
    /// assert_eq!(set.len(), 1);
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        self.jobs.shared().in_flight()
    }

    /// Returns `true` if every task was joined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: 'static> JoinSet<T> {
    /// Runs a future on the current Tokio runtime, as [`Submitter::submit`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut set = JoinSet::new();
    /// let endless = set.spawn(std::future::pending::<()>());
    /// endless.abort();
    /// let outcome = set.join_next().await.expect("one task was spawned");
    /// assert!(outcome.unwrap_err().is_cancelled());
    /// # }
    /// ```
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        accepted(start(self.reserve(), (), IntoOutput { future }))
    }

    /// Runs a future on this Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tokio::runtime::Runtime::new()?;
    /// let mut set = JoinSet::new();
    /// set.spawn_on(async { 7 }, runtime.handle());
    /// assert_eq!(runtime.block_on(set.join_all()), [7]);
    /// # Ok(()) }
    /// ```
    pub fn spawn_on<F>(&mut self, future: F, runtime: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        accepted(start_on(self.reserve(), runtime, (), IntoOutput { future }))
    }

    /// Runs a closure that may block on the blocking threads of the current Tokio runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn_blocking(|| std::fs::read_to_string("Cargo.toml"));
    /// let text = set.join_next().await.expect("one task was spawned")??;
    /// assert!(text.contains("[package]"));
    /// # Ok(()) }
    /// ```
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.spawn_blocking_on(f, &Handle::current())
    }

    /// Runs a closure that may block on the blocking threads of this Tokio runtime, or on a pool of this crate.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::BlockingPool;
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(2).build()?;
    /// let mut set = JoinSet::new();
    /// for n in 0..10 {
    ///     set.spawn_blocking_on(move || n, &pool);
    /// }
    /// assert_eq!(set.join_all().await.len(), 10);
    /// # Ok(()) }
    /// ```
    pub fn spawn_blocking_on<F>(&mut self, f: F, pool: &impl Spawn) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        accepted(start_blocking(self.reserve(), pool, (), || Output(f())))
    }

    /// Runs a future, which need not be `Send`, on the current [`LocalSet`] or local runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a [`LocalSet`] and of a local runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use throng::completion::JoinSet;
    /// use tokio::task::LocalSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let local = LocalSet::new();
    /// local.run_until(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn_local(async { Rc::new(7) });
    ///     let seven: Rc<i32> = set.join_next().await.expect("one task was spawned")?;
    ///     assert_eq!(*seven, 7);
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        let (handle, task) = self.wrap(future);
        drop(tokio::task::spawn_local(task));
        handle
    }

    /// Runs a future, which need not be `Send`, on this [`LocalSet`].
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    /// use std::rc::Rc;
    /// use tokio::task::LocalSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (local, mut set) = (LocalSet::new(), JoinSet::new());
    /// set.spawn_local_on(async { Rc::new(7) }, &local);
    /// let joined = local.run_until(set.join_next()).await.expect("one task was spawned");
    /// assert_eq!(*joined?, 7);
    /// # Ok(()) }
    /// ```
    pub fn spawn_local_on<F>(&mut self, future: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        let (handle, task) = self.wrap(future);
        drop(local_set.spawn_local(task));
        handle
    }

    /// Waits until a task has ended, and returns its output. Returns `None` if the set is empty.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn(async { 7 });
    /// while let Some(joined) = set.join_next().await {
    ///     assert_eq!(joined?, 7);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// As [`join_next`](Self::join_next), and also returns the id of the task. That of a failed task is
    /// [`JoinError::id`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let mut set = JoinSet::new();
    /// let spawned = set.spawn(async { 7 }).id();
    /// let joined = set.join_next_with_id().await.expect("one task was spawned")?;
    /// assert_eq!(joined, (spawned, 7));
    /// # Ok(()) }
    /// ```
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        poll_fn(|cx| self.poll_join_next_with_id(cx)).await
    }

    /// Returns the output of a task that has ended. Returns `None` if there is none, without waiting.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn(std::future::pending::<()>());
    /// assert!(set.try_join_next().is_none());
    /// assert_eq!(set.len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        Some(without_id(with_id(self.done.take()?)))
    }

    /// As [`try_join_next`](Self::try_join_next), and also returns the id of the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// let id = set.spawn(async { 7 }).id();
    /// let joined = loop {
    ///     match set.try_join_next_with_id() {
    ///         Some(joined) => break joined?,
    ///         None => tokio::task::yield_now().await,
    ///     }
    /// };
    /// assert_eq!(joined, (id, 7));
    /// # Ok(()) }
    /// ```
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        Some(with_id(self.done.take()?))
    }

    /// Polls for the output of a task that has ended. `Ready(None)` if the set is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    /// use std::future::poll_fn;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn(async { 7 });
    /// let joined = poll_fn(|cx| set.poll_join_next(cx)).await;
    /// assert_eq!(joined.expect("one task was spawned")?, 7);
    /// # Ok(()) }
    /// ```
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.poll_join_next_with_id(cx)
            .map(|joined| joined.map(without_id))
    }

    /// As [`poll_join_next`](Self::poll_join_next), and also returns the id of the task.
    pub(super) fn poll_join_next_with_id(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(Id, T), JoinError>>> {
        let completed = self.done.poll_until_idle(cx);
        completed.map(|completed| completed.map(with_id))
    }

    /// Waits for all tasks, and returns their outputs, in the order in which they ended.
    ///
    /// # Panics
    ///
    /// Panics if a task has panicked, with its payload, or was aborted. The other tasks are then aborted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks are aborted.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() {
    /// let set: JoinSet<_> = (0..3).map(|n| async move { n }).collect();
    /// let mut outputs = set.join_all().await;
    /// outputs.sort_unstable();
    /// assert_eq!(outputs, [0, 1, 2]);
    /// # }
    /// ```
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(joined) = self.join_next().await {
            match joined {
                Ok(output) => outputs.push(output),
                Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
                Err(error) => panic!("a task has no output: {error}"),
            }
        }
        outputs
    }

    /// Aborts all tasks. They stay in the set until they are joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn(std::future::pending::<()>());
    /// set.abort_all();
    /// let outcome = set.join_next().await.expect("one task was spawned");
    /// assert!(outcome.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn abort_all(&mut self) {
        self.jobs.abort_all();
    }

    /// Lets all tasks run on, and removes them from the set.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() {
    /// let mut set = JoinSet::new();
    /// let (finished, is_finished) = tokio::sync::oneshot::channel();
    /// set.spawn(async move { finished.send(()) });
    /// set.detach_all();
    /// assert!(set.is_empty());
    /// assert!(is_finished.await.is_ok());
    /// # }
    /// ```
    pub fn detach_all(&mut self) {
        let (jobs, done) = CompletionStream::unbounded();
        self.jobs = jobs;
        std::mem::replace(&mut self.done, done).detach();
    }

    /// Aborts all tasks, and waits until they have ended. Their outputs are dropped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks are aborted, and those that have not ended stay in the set.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::completion::JoinSet;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut set = JoinSet::new();
    /// set.spawn(std::future::pending::<()>());
    /// set.shutdown().await;
    /// assert!(set.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    fn reserve(&self) -> Reservation<'_, Output<T>, ()> {
        let reserved = self.jobs.shared().try_reserve();
        reserved.unwrap_or_else(|_| panic!("a set is open, and has no limits"))
    }

    fn wrap<F>(&self, future: F) -> (AbortHandle, Wrapped<IntoOutput<F>>)
    where
        F: Future<Output = T>,
    {
        let wrapped = self.reserve().wrap((), IntoOutput { future });
        accepted(wrapped.map_err(Closed::new))
    }
}

fn accepted<R, J>(submitted: Result<R, Closed<J>>) -> R {
    submitted.unwrap_or_else(|_| panic!("a set is open"))
}

fn with_id<T>(completed: Completed<Output<T>>) -> Result<(Id, T), JoinError> {
    let Output(output) = completed.outcome?;
    Ok((completed.id, output))
}

fn without_id<T>(joined: Result<(Id, T), JoinError>) -> Result<T, JoinError> {
    joined.map(|(_, output)| output)
}

pin_project! {
    /// A future whose output may be delivered as that of a task.
    struct IntoOutput<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for IntoOutput<F> {
    type Output = Output<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Output(ready!(self.project().future.poll(cx))))
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Spawns the futures on the current Tokio runtime.
impl<T, F> FromIterator<F> for JoinSet<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

/// Spawns the futures on the current Tokio runtime.
impl<T, F> Extend<F> for JoinSet<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.jobs
            .shared()
            .fmt_fields(&mut f.debug_struct("JoinSet"))
    }
}
