//! [`BlockingPool`]: the handle of a pool, its settings, and its end.

use std::fmt;
use std::io;
use std::time::Duration;

use super::metrics::Metrics;
use super::options::Options;
use super::shared::Shared;
use crate::join::{self, Close};
use crate::sync::Arc;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

/// A pool of threads for closures that block: it grows before it queues, shrinks when it is idle, and can be bounded.
///
/// An idle thread takes a new task. If there is none, the pool creates a thread, up to the maximum; only then does the
/// task queue; and only if the queue is full is it refused. The thread that became idle last is woken first, so
/// threads that are not needed exit after their keep-alive even under a trickle of tasks.
///
/// # When to use it, and when Tokio's own
///
/// [`tokio::task::spawn_blocking`] is enough for occasional calls, and the runtime waits for them when it shuts down.
/// Use a pool of this type
///
/// - to bound what waits, with back-pressure ([`reserve`](Self::reserve)) or refusal
///   ([`try_spawn_blocking`](Self::try_spawn_blocking)): the queue of Tokio's pool has no bound;
/// - to isolate: a slow disk or database with a pool of its own cannot use up the threads of others;
/// - to measure: [`metrics`](Self::metrics) are stable and always on;
/// - for many short closures: they cost a fraction of Tokio's.
///
/// For closures that compute rather than block, see [`ComputePool`](crate::ComputePool); for a parallel computation of
/// one result, `rayon`.
///
/// # Guarantees
///
/// - *Order*: tasks start in the order in which they were accepted.
/// - *Waiting inside*: a task may wait for another of the same pool. With
///   [`blocking_join`](crate::JoinHandle::blocking_join), its thread runs the awaited task itself if no thread has
///   started it. While a thread waits otherwise, or polls the handle (`block_on`), a compensating thread may run in its
///   place, beyond the maximum, so the pool has at most twice as many threads. The wait is an error,
///   [`is_would_deadlock`](crate::JoinError::is_would_deadlock), only if every thread would then wait. Tasks that fork,
///   and join with `blocking_join`, never get this error.
/// - *Panics* reach the handle. The thread survives, also if the drop of a capture or of the output panics.
/// - *Abort* of a task that has not started drops its closure at once. A task that has started runs to its end.
/// - *Closing*: [`close`](Self::close), or dropping the last clone, refuses new tasks and runs those that were accepted.
///   Neither blocks, in async code or outside of it. The end of the process does not wait for tasks: await
///   [`closed`](Self::closed) for that.
/// - *Runtime*: a task runs in the Tokio runtime of its submitter, so one pool, in a `static` for example, serves any
///   number of runtimes. See [`Builder::runtime`](super::Builder::runtime). The pool keeps no runtime running.
///
/// # After `fork`
///
/// Not supported, as with Tokio's runtime. A child process has a copy of the pool and none of its threads: tasks wait
/// forever, and code that takes a lock hangs if another thread held it at that moment. This is also true for a pool
/// that is made in the child, since the timer thread that all pools share does not exist there. Fork before the process
/// uses its first pool, or let `exec` follow at once, as [`Command`](std::process::Command) does.
///
/// # Examples
///
/// ```
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = BlockingPool::builder()
///     .name("disk")
///     .max_threads(8)
///     .queue_capacity(100)
///     .build()?;
///
/// // Waits for a permit without blocking a thread.
/// let permit = disk.reserve().await?;
/// let size = permit
///     .spawn_blocking(|| std::fs::metadata("Cargo.toml").map(|file| file.len()))
///     .await??;
/// assert!(size > 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct BlockingPool {
    /// Not `Shared` itself: threads hold that, and must not keep the pool open.
    handle: Arc<BlockingHandle>,
}

/// The handle that the clones of a pool share. Dropping the last clone closes the pool.
struct BlockingHandle(Arc<Shared>);

impl BlockingPool {
    pub(super) fn with_options(options: Options) -> Self {
        Self {
            handle: Arc::new(BlockingHandle(Shared::new(options))),
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.0
    }

    /// Returns a snapshot of the pool's work.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let pool = throng::BlockingPool::new();
    /// pool.spawn_blocking(|| ()).await?;
    /// let metrics = pool.metrics();
    /// assert_eq!((metrics.completed, metrics.queued), (1, 0));
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.shared().metrics()
    }

    // ===== Settings =====

    /// Creates the core threads that are missing, so that the first tasks need not wait for them. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails with the system's error if it refuses a thread. Threads created before that stay.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let pool = throng::BlockingPool::builder().core_threads(2).build()?;
    /// assert_eq!(pool.prestart_core_threads()?, 2);
    /// assert_eq!(pool.metrics().threads, 2);
    /// # Ok(()) }
    /// ```
    pub fn prestart_core_threads(&self) -> io::Result<usize> {
        Shared::prestart(self.shared())
    }

    /// Changes the number of [core threads](super::Builder::core_threads). Idle threads beyond the new number exit after
    /// their keep-alive.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if it is more than the maximum of threads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(4).build()?;
    /// pool.set_core_threads(2)?;
    /// assert!(pool.set_core_threads(5).is_err());
    /// # Ok(()) }
    /// ```
    pub fn set_core_threads(&self, threads: usize) -> io::Result<()> {
        Shared::set_limits(self.shared(), |limits| limits.core_threads = threads)
    }

    /// Changes the [maximum number of threads](super::Builder::max_threads). Threads beyond it take no more tasks, and
    /// exit when they have finished their current one. The bound on accepted tasks changes with it.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if it is 0, or less than the core threads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let pool = throng::BlockingPool::builder().core_threads(2).max_threads(4).build()?;
    /// pool.set_max_threads(8)?;
    /// assert!(pool.set_max_threads(1).is_err());
    /// # Ok(()) }
    /// ```
    pub fn set_max_threads(&self, threads: usize) -> io::Result<()> {
        Shared::set_limits(self.shared(), |limits| limits.max_threads = threads)
    }

    /// Changes the [keep-alive](super::Builder::keep_alive): the time that an idle thread waits before it exits. For
    /// threads that are idle now, the time starts again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// pool.spawn_blocking(|| ()).await?;
    /// pool.set_keep_alive(Duration::ZERO);
    /// while pool.metrics().threads > 0 {
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_keep_alive(&self, time: Duration) {
        let set = Shared::set_limits(self.shared(), |limits| limits.keep_alive = time);
        set.expect("any keep-alive is valid");
    }

    // ===== The end =====

    /// Waits until no task is queued or running. The pool stays open, so another task may be submitted meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::BlockingPool::new();
    /// for _ in 0..3 {
    ///     drop(pool.spawn_blocking(|| ()));
    /// }
    /// pool.idle().await;
    /// assert_eq!(pool.metrics().completed, 3);
    /// # }
    /// ```
    pub async fn idle(&self) {
        self.shared().idle().await;
    }

    /// Refuses tasks from now on. Those that were accepted still run. Does not wait for them: see
    /// [`closed`](Self::closed).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let pool = throng::BlockingPool::new();
    /// let accepted = pool.spawn_blocking(|| 7);
    /// pool.close();
    /// assert!(pool.spawn_blocking(|| 8).await.unwrap_err().is_closed());
    /// pool.closed().await;
    /// assert_eq!(accepted.await?, 7);
    /// # Ok(()) }
    /// ```
    pub fn close(&self) {
        self.shared().close();
    }

    /// Returns `true` if the pool has been closed. Tasks may still run.
    pub fn is_closed(&self) -> bool {
        self.shared().is_closed()
    }

    /// Waits until the pool is [closed](Self::close), its tasks have ended, and its threads are about to exit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let task = pool.spawn_blocking(|| 7);
    /// pool.close();
    /// pool.closed().await;
    /// assert!(pool.is_closed() && task.is_finished());
    /// # Ok(()) }
    /// ```
    pub async fn closed(&self) {
        self.shared().closed().await;
    }

    /// [Closes](Self::close) the pool, waits until its tasks have ended, but at most for `timeout`, and then aborts those
    /// that have not started. Returns the number of tasks aborted.
    ///
    /// A task that has started runs to its end even after the timeout. The tasks that wait in a
    /// [bulkhead](Self::bulkhead) are aborted as well, but not counted.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime whose timer is enabled: see [`blocking_shutdown`](Self::blocking_shutdown).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the pool is closed, and runs the tasks that it has accepted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::BlockingPool::new();
    /// let task = pool.spawn_blocking(|| 7);
    /// assert_eq!(pool.shutdown(Duration::from_secs(5)).await, 0);
    /// assert!(task.is_finished());
    /// # }
    /// ```
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        join::shutdown(self, timeout).await
    }

    /// [Closes](Self::close) the pool and aborts the tasks that have not started. Returns the number of tasks aborted.
    ///
    /// Does not wait for tasks that have started: see [`closed`](Self::closed). The tasks that wait in a
    /// [bulkhead](Self::bulkhead) are aborted as well, but not counted.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::BlockingPool::new();
    /// assert_eq!(pool.shutdown_now(), 0);
    /// pool.closed().await;
    /// # }
    /// ```
    pub fn shutdown_now(&self) -> usize {
        join::shutdown_now(self)
    }

    /// As [`shutdown`](Self::shutdown), but blocks the calling thread. For threads that are not async.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = throng::BlockingPool::new();
    /// let task = pool.spawn_blocking(|| 7);
    /// assert_eq!(pool.blocking_shutdown(Duration::from_secs(5)), 0);
    /// assert!(task.is_finished());
    /// ```
    pub fn blocking_shutdown(&self, timeout: Duration) -> usize {
        join::blocking_shutdown(self, timeout)
    }
}

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
impl BlockingPool {
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<> {
        WeakPart::new(self.shared(), Shared::metrics)
    }
}

impl Close for BlockingPool {
    fn close(&self) {
        self.shared().close();
    }

    async fn closed(&self) {
        self.shared().closed().await;
    }

    fn abort_queued(&self) -> usize {
        self.shared().abort_queued()
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool")
            .field("name", &self.shared().options.name)
            .field("metrics", &self.metrics())
            .finish()
    }
}

impl Drop for BlockingHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}
