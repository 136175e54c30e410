//! [`ComputePool`]: submitting tasks, and closing.

use std::fmt;
use std::hash::Hash;
use std::io;
use std::mem;
use std::time::Duration;

use super::keyed;
use super::metrics::Metrics;
use super::options::Options;
use super::shared::Shared;
use super::worker;
use crate::inbox::Batch;
use crate::join::{self, Close, JoinHandle, RunContext, Spawn, TrySpawnError, Work, sealed};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::{Fault, Task, Thunk};
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

/// A pool of few threads for huge numbers of tiny closures, a fraction of a microsecond each.
///
/// Each thread owns a *lane*, a queue of tasks. Submitting a task is one compare-and-swap on a lane whose thread is awake,
/// the memory of tasks is recycled, and a thread takes all tasks of its lane at once. A thread without tasks steals from
/// others, and a thread with a large backlog wakes another one. Idle threads sleep and use no processor time.
///
/// # When to use it
///
/// - For closures that *block* (files, locks, foreign functions), use a [`BlockingPool`](crate::BlockingPool). Here, a
///   closure that blocks takes one of few threads away. After some milliseconds, other threads take over the tasks that
///   wait behind it.
/// - For *fork and join*, and for parallel loops over data, use `rayon`: a parent that waits for its children runs them
///   meanwhile, at a few nanoseconds each. For larger pieces of work that borrow data, there is [`scope`](Self::scope). A
///   task that waits for the handle of another task of its own pool may wait forever.
/// - For futures, use Tokio.
///
/// # Guarantees
///
/// - *Order*: the tasks that one thread, or one task, submits start in that order while one thread of the pool keeps up
///   with them, and otherwise in any order. Tasks with one [key](Self::spawn_keyed) always run in order, one at a time.
/// - *Panics* reach the handle, or, for [`execute`](Self::execute), the handler of
///   [`Builder::on_panic`](super::Builder::on_panic). The thread goes on.
/// - *Abort*: aborting a task that has not started drops its closure at once. A task that has started runs to its end.
/// - *Spans*: tasks run outside any `tracing` span, because entering a span takes longer than running a tiny task. To run one
///   in the span of its submitter, spawn `move || span.in_scope(f)` with `span = Span::current()`.
/// - *Shutdown*: [`close`](Self::close), or dropping the last clone, refuses new tasks and runs those that were accepted.
///   Neither blocks. The process does not wait for tasks when it exits: await [`closed`](Self::closed) before.
///
/// # Examples
///
/// ```
/// use throng::ComputePool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = ComputePool::builder().threads(2).build()?;
/// let words = pool.spawn(|| "one two three".split(' ').count()).await?;
/// assert_eq!(words, 3);
///
/// let (sum, sums) = std::sync::mpsc::channel();
/// for n in 1..=100 {
///     let sum = sum.clone();
///     pool.execute(move || sum.send(n * n).expect("the receiver exists"));
/// }
/// drop(sum);
/// assert_eq!(sums.iter().sum::<u32>(), 338_350);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ComputePool {
    /// Not `Shared` itself, to which the threads hold references that must not keep the pool open.
    handle: Arc<ComputeHandle>,
}

/// The last clone of a pool drops it, which closes the pool.
struct ComputeHandle(Arc<Shared>);

/// The most tasks that are queued in one operation.
const MAX_PUSH: usize = 256;

impl ComputePool {
    pub(super) fn with_options(options: Options) -> io::Result<Self> {
        let pool = Self {
            handle: Arc::new(ComputeHandle(Arc::new(Shared::new(options)))),
        };
        for lane in 0..pool.shared().lanes.len() {
            // On an error the pool is dropped, and the threads that exist exit.
            worker::start(pool.shared(), lane)?;
        }
        Ok(pool)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.0
    }
}

/// Submitting tasks.
impl ComputePool {
    /// Runs a closure on a thread of the pool, without a handle.
    ///
    /// This is the cheapest way to submit a task. If the pool is full or closed, the closure is dropped, and counted in
    /// [`Metrics::rejected`]. See [`try_execute`](Self::try_execute) for a variant that returns it.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = throng::ComputePool::new();
    /// let (send, receive) = std::sync::mpsc::channel();
    /// pool.execute(move || send.send(6 * 7).expect("the receiver exists"));
    /// assert_eq!(receive.recv(), Ok(42));
    /// ```
    #[inline]
    pub fn execute<F>(&self, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        drop(self.try_execute(f));
    }

    /// Runs a closure on a thread of the pool, without a handle, or returns the closure.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) if the pool has reached its
    /// [`max_outstanding`](super::Builder::max_outstanding); [`is_closed`](TrySpawnError::is_closed) if it is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = throng::ComputePool::new();
    /// assert!(pool.try_execute(|| ()).is_ok());
    /// pool.close();
    /// assert!(pool.try_execute(|| ()).is_err_and(|error| error.is_closed()));
    /// ```
    #[inline]
    pub fn try_execute<F>(&self, f: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.execute_with_permit(f).map_err(TrySpawnError::closed),
            Err(error) => Err(self.reject(error, f)),
        }
    }

    /// Runs closures on threads of the pool, without handles.
    ///
    /// The closures are queued many at a time, which costs as much as queueing one. If the pool is full or closed, they are
    /// dropped, and counted in [`Metrics::rejected`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let pool = throng::ComputePool::new();
    /// let (send, receive) = mpsc::channel();
    /// pool.execute_batch((1..=3).map(|n| {
    ///     let send = send.clone();
    ///     move || send.send(n).expect("the receiver exists")
    /// }));
    /// drop(send);
    /// assert_eq!(receive.iter().sum::<i32>(), 6);
    /// ```
    pub fn execute_batch<I>(&self, closures: I)
    where
        I: IntoIterator<Item: FnOnce() + Send + 'static>,
    {
        let mut buffer = PushBuffer::new(self);
        for f in closures {
            match self.shared().try_acquire() {
                Ok(()) => buffer.add(Task::detached_closure(f)),
                Err(error) => drop(self.reject(error, f)),
            }
        }
    }

    /// Runs a closure on a thread of the pool.
    ///
    /// The closure runs whether or not the handle is polled.
    ///
    /// # Errors
    ///
    /// The handle returns an error with [`is_panic`](crate::JoinError::is_panic) if the closure panics;
    /// [`is_cancelled`](crate::JoinError::is_cancelled) if it was aborted before it started;
    /// [`is_rejected`](crate::JoinError::is_rejected) if the pool is full; and
    /// [`is_closed`](crate::JoinError::is_closed) if it is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// assert_eq!(pool.spawn(|| 6 * 7).await?, 42);
    /// # Ok(()) }
    /// ```
    pub fn spawn<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.spawn_with_permit(f),
            Err(error) => self.rejected(error, f),
        }
    }

    /// Runs closures on threads of the pool, and returns the handles in the order of the closures.
    ///
    /// The closures are queued many at a time, which costs as much as queueing one.
    ///
    /// # Errors
    ///
    /// The handles return the errors of [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// for (n, handle) in pool.spawn_batch((0..100).map(|n| move || n * n)).into_iter().enumerate() {
    ///     assert_eq!(handle.await?, n * n);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn spawn_batch<I, F, R>(&self, closures: I) -> Vec<JoinHandle<R>>
    where
        I: IntoIterator<Item = F>,
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let mut buffer = PushBuffer::new(self);
        let spawn = |f| match self.shared().try_acquire() {
            Ok(()) => {
                let (task, join_ref) = Task::joinable(Thunk(f));
                buffer.add(task);
                JoinHandle::waiting(join_ref)
            }
            Err(error) => self.rejected(error, f),
        };
        closures.into_iter().map(spawn).collect()
    }

    /// Runs a closure on a thread of the pool after all closures that were submitted with an equal key before, and not
    /// while one of them runs.
    ///
    /// This is an actor without a state. See [`SerialExecutor`](crate::SerialExecutor) for one with a state. Keys are
    /// hashed, so tasks with different keys may wait for one another. A call that races with the end of the pool may run
    /// the tasks of its key on the calling thread, since the pool's threads may have exited.
    ///
    /// # Errors
    ///
    /// The handle returns the errors of [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// let last = (1..=1_000).map(|n| pool.spawn_keyed("account 7", move || n)).last();
    /// assert_eq!(last.expect("there are many").await?, 1_000);
    /// # Ok(()) }
    /// ```
    pub fn spawn_keyed<K, F, R>(&self, key: &K, f: F) -> JoinHandle<R>
    where
        K: Hash + ?Sized,
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        // First: the code of the key may panic.
        let inbox = self.shared().keys.find(key);
        if self.shared().is_closed() {
            return self.rejected(TryAcquireError::Closed, f);
        }
        match self.shared().try_acquire() {
            Ok(()) => {
                let (task, join_ref) = Task::joinable(Thunk(f));
                keyed::push(self.shared(), inbox, task);
                JoinHandle::waiting(join_ref)
            }
            Err(error) => self.rejected(error, f),
        }
    }

    /// Runs a closure once on each thread of the pool, with the index of the thread. Returns one handle for each thread, in
    /// order.
    ///
    /// A thread runs the closure before the other tasks of its lane, as soon as the batch that it runs now has ended.
    /// [`max_outstanding`](super::Builder::max_outstanding) does not limit this.
    ///
    /// # Errors
    ///
    /// The handles return the errors of [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().threads(3).build()?;
    /// for (index, handle) in pool.broadcast(|index| index).into_iter().enumerate() {
    ///     assert_eq!(handle.await?, index);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn broadcast<F, R>(&self, f: F) -> Vec<JoinHandle<R>>
    where
        F: Fn(usize) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        let f = Arc::new(f);
        let spawn = |lane: usize| {
            let f = Arc::clone(&f);
            let (task, join_ref) = Task::joinable(Thunk(move || f(lane)));
            self.push_pinned(lane, task);
            JoinHandle::waiting(join_ref)
        };
        (0..self.shared().lanes.len()).map(spawn).collect()
    }

    fn push_pinned(&self, lane: usize, task: Task<RunContext>) {
        let shared = self.shared();
        let lane = &shared.lanes[lane];
        shared.acquire_over_limit();
        let pushed = match lane.is_sealed() {
            true => Err(task),
            false => lane.pinned().push(task),
        };
        match pushed {
            Ok(()) => lane.wake(),
            Err(task) => self.fail_rejected(task),
        }
    }

    /// Queues a detached closure that has a permit. Returns the closure if the pool is closed.
    #[inline]
    pub(super) fn execute_with_permit<F>(&self, f: F) -> Result<(), F>
    where
        F: FnOnce() + Send + 'static,
    {
        let batch = Batch::of(Task::detached_closure(f));
        let Err(refused) = self.shared().push(batch, 1) else {
            return Ok(());
        };
        let task = refused.into_fifo().pop_front();
        self.shared().release_permit();
        self.count_rejected();
        // SAFETY: the task was made of an `F` above, and has not been run.
        let f = task.map(|task| unsafe { task.take_back_closure::<F>() });
        Err(f.expect("the refused batch holds the task"))
    }

    /// Queues a closure that has a permit.
    pub(super) fn spawn_with_permit<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (task, join_ref) = Task::joinable(Thunk(f));
        self.queue(Batch::of(task), 1);
        JoinHandle::waiting(join_ref)
    }

    /// Queues tasks that have permits, or ends them if the pool is closed.
    fn queue(&self, batch: Batch<Task<RunContext>>, tasks: usize) {
        if tasks == 0 {
            return;
        }
        let Err(refused) = self.shared().push(batch, tasks) else {
            return;
        };
        let mut tasks = refused.into_fifo();
        while let Some(task) = tasks.pop_front() {
            self.fail_rejected(task);
        }
    }

    /// Ends a task that has a permit, and that the pool refused because it is closed.
    fn fail_rejected(&self, task: Task<RunContext>) {
        self.shared().release_permit();
        self.count_rejected();
        task.fail(Fault::closed());
    }

    fn reject<F>(&self, error: TryAcquireError, f: F) -> TrySpawnError<F> {
        self.count_rejected();
        match error {
            TryAcquireError::Full => TrySpawnError::full(f),
            TryAcquireError::Closed => TrySpawnError::closed(f),
        }
    }

    /// Returns the handle of a task that was not accepted.
    fn rejected<F, R: 'static>(&self, error: TryAcquireError, f: F) -> JoinHandle<R> {
        JoinHandle::refused(self.reject(error, f))
    }

    fn count_rejected(&self) {
        self.shared().rejected.add(1);
    }
}

/// Waiting and closing.
impl ComputePool {
    /// Returns a snapshot of the pool's work.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// pool.spawn(|| ()).await?;
    /// let metrics = pool.metrics();
    /// assert_eq!((metrics.completed, metrics.queued), (1, 0));
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.shared())
    }

    /// Waits until no task is outstanding, without closing the pool.
    ///
    /// This returns if there was a moment, after the call, at which all submitted tasks had ended. Permits that are reserved
    /// and not used do not count.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::ComputePool::new();
    /// pool.execute_batch((0..100).map(|_| || ()));
    /// pool.idle().await;
    /// assert_eq!(pool.metrics().completed, 100);
    /// # }
    /// ```
    pub async fn idle(&self) {
        self.shared().idle().await;
    }

    /// Refuses tasks from now on. Accepted tasks still run. Does not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// let handle = pool.spawn(|| 7);
    /// pool.close();
    /// pool.closed().await;
    /// assert_eq!(handle.await?, 7);
    /// # Ok(()) }
    /// ```
    pub fn close(&self) {
        self.shared().close();
    }

    /// Returns `true` if the pool refuses tasks.
    pub fn is_closed(&self) -> bool {
        self.shared().is_closed()
    }

    /// Waits until the pool is closed, all of its tasks have ended, and its threads are about to exit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// let task = pool.spawn(|| 7);
    /// pool.close();
    /// pool.closed().await;
    /// assert!(pool.is_closed() && task.is_finished());
    /// # Ok(()) }
    /// ```
    pub async fn closed(&self) {
        self.shared().closed().await;
    }

    /// Closes the pool and waits until its tasks have ended, for at most `timeout`. Then drops the tasks that have not
    /// started. Returns the number of dropped tasks.
    ///
    /// Tasks that run when the time is over run to their end.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime with a timer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the pool is closed, and no task has been dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::ComputePool::new();
    /// pool.execute(|| ());
    /// assert_eq!(pool.shutdown(Duration::from_secs(10)).await, 0);
    /// # }
    /// ```
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        join::shutdown(self, timeout).await
    }

    /// Closes the pool and drops the tasks that have not started. Returns their number. Does not wait for running tasks.
    ///
    /// A thread drops the tasks that it takes from its lane at this moment. These may be missing from the number.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::new();
    /// assert_eq!(pool.shutdown_now(), 0);
    /// assert!(pool.spawn(|| ()).await.unwrap_err().is_closed());
    /// # Ok(()) }
    /// ```
    pub fn shutdown_now(&self) -> usize {
        join::shutdown_now(self)
    }

    /// As [`shutdown`](Self::shutdown), for a thread that is not async: blocks it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = throng::ComputePool::new();
    /// let task = pool.spawn(|| 7);
    /// assert_eq!(pool.blocking_shutdown(Duration::from_secs(10)), 0);
    /// assert!(task.is_finished());
    /// ```
    pub fn blocking_shutdown(&self, timeout: Duration) -> usize {
        join::blocking_shutdown(self, timeout)
    }
}

impl Close for ComputePool {
    fn close(&self) {
        self.shared().close();
    }

    fn closed(&self) -> impl Future<Output = ()> + Send {
        self.shared().closed()
    }

    fn abort_queued(&self) -> usize {
        self.shared().abort_queued()
    }
}

impl sealed::Sealed for ComputePool {}

/// Work that yields runs to its end on one thread, which runs no other task meanwhile. Work that has been polled is not
/// accepted.
impl Spawn for ComputePool {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let task = work.into_task()?;
        if self.shared().try_acquire().is_err() {
            self.count_rejected();
            return Err(Work::new(task));
        }
        self.shared().push(Batch::of(task), 1).map_err(|refused| {
            self.shared().release_permit();
            self.count_rejected();
            let task = refused.into_fifo().pop_front();
            Work::new(task.expect("the refused batch holds the task"))
        })
    }
}

impl fmt::Debug for ComputePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputePool")
            .field("name", &self.shared().options.name)
            .field("metrics", &self.metrics())
            .finish()
    }
}

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
impl ComputePool {
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<> {
        WeakPart::new(self.shared(), Metrics::of)
    }
}

impl Drop for ComputeHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Collects tasks, and queues them when there are many, and when it is dropped.
struct PushBuffer<'a> {
    pool: &'a ComputePool,
    batch: Batch<Task<RunContext>>,
    tasks: usize,
}

impl<'a> PushBuffer<'a> {
    fn new(pool: &'a ComputePool) -> Self {
        Self {
            pool,
            batch: Batch::new(),
            tasks: 0,
        }
    }

    fn add(&mut self, task: Task<RunContext>) {
        self.batch.push(task);
        self.tasks += 1;
        if self.tasks == MAX_PUSH {
            self.queue();
        }
    }

    fn queue(&mut self) {
        let batch = mem::replace(&mut self.batch, Batch::new());
        self.pool.queue(batch, mem::take(&mut self.tasks));
    }
}

/// Also when the user's iterator panics: the closures that it has returned are accepted.
impl Drop for PushBuffer<'_> {
    fn drop(&mut self) {
        self.queue();
    }
}
