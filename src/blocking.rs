//! [`BlockingPool`]: threads for closures that block, which grow before they queue.

mod builder;
mod default;
mod growth;
mod histogram;
mod metrics;
mod overflow;
mod reserve;
mod samples;
mod shared;
mod state;
mod ticket;
mod trace;
mod view;
mod worker;

use std::fmt;
use std::io;
use std::panic::Location;
use std::time::{Duration, Instant};

use self::builder::Options;
pub use self::builder::{Builder, Growth};
pub use self::default::spawn_blocking;
pub use self::histogram::Histogram;
pub use self::metrics::Metrics;
pub use self::overflow::{Overflow, OverflowHandler};
pub use self::reserve::{OwnedPermit, Permit, PollReserve};
use self::shared::{Comes, Shared};
use self::ticket::{Closure, Entry, Foreign, Queued, take_back};
pub use self::view::PoolView;
use crate::inbox::FifoList;
use crate::join::{
    Id, JoinHandle, Origin, RunContext, Spawn, TrySpawnError, Work, block_on_until, sealed,
};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::Task;

/// A pool of threads for closures that block: it grows before it queues, shrinks for real, and can be
/// bounded.
///
/// A task is taken by an idle thread; else a new thread is created for it, up to the maximum; only
/// then does it queue; and only when the queue is full is it refused. Idle threads are woken
/// last-in-first-out, so that those which are not needed end after their keep-alive also while a
/// trickle of tasks goes on.
///
/// # When to use it, and when Tokio's own
///
/// [`tokio::task::spawn_blocking`] is enough for occasional calls, and the runtime waits for them
/// when it shuts down. Use a pool of this type
///
/// - to bound what waits, with back-pressure ([`reserve`](Self::reserve)) or refusal
///   ([`try_spawn_blocking`](Self::try_spawn_blocking)): Tokio's queue has no bound;
/// - to isolate: a slow disk or database with a pool of its own cannot use up the threads of others;
/// - to measure: [`metrics`](Self::metrics) are stable and always on;
/// - for many short closures: they cost a fraction of Tokio's.
///
/// For closures that compute rather than block, see [`ComputePool`](crate::ComputePool); for a parallel
/// computation of one result, `rayon`.
///
/// # Guarantees
///
/// - *Order*: tasks start in the order in which they were accepted.
/// - *Waiting inside*: a task may wait for another of the same pool. With
///   [`blocking_join`](JoinHandle::blocking_join), its thread runs the awaited task itself if no thread has
///   begun it. While a thread waits otherwise, or polls the handle (`block_on`), a compensating thread may run
///   in its place, beyond the maximum, so that the pool has at most twice as many threads. The wait is an error,
///   [`is_would_deadlock`](crate::JoinError::is_would_deadlock), only if every thread would then wait. Tasks
///   that fork, and join with `blocking_join`, never get this error.
/// - *Panics* reach the handle; the thread survives, also a panic in the drop of what the closure
///   captured or returned.
/// - *Abort* of a task that has not started drops its closure at once; one that has started runs to
///   its end.
/// - *Shutdown*: [`shutdown`](Self::shutdown), or dropping the last clone, refuses new tasks and runs
///   those that were accepted. Neither blocks, in async code or out of it. The end of the process
///   does not wait for tasks: await [`terminated`](Self::terminated) for that.
/// - *Runtime*: threads enter the runtime that the pool was built in, or that of
///   [`Builder::runtime`]. They do not keep it running.
///
/// # After `fork`
///
/// Not supported, as little as with Tokio's runtime. A child process has a copy of the pool and none of its
/// threads: tasks there wait for ever, and what takes a lock hangs if another thread had it just then. That
/// goes for a pool that is made in the child, too, as the timer thread that all pools share is gone. Fork
/// before the process has used the first pool, or have `exec` follow at once, as
/// [`Command`](std::process::Command) does.
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
/// // Waits for room without blocking a thread.
/// let permit = disk.reserve().await?;
/// let size = permit
///     .spawn_blocking(|| std::fs::metadata("Cargo.toml").map(|file| file.len()))
///     .await??;
/// assert!(size > 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct BlockingPool {
    /// Not the shared itself: threads hold that, and must not keep the pool open.
    handle: Arc<Handle>,
}

/// What the clones of a pool share: the last of them closes it.
struct Handle(Arc<Shared>);

impl BlockingPool {
    /// Options for a new pool.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn with_options(options: Options) -> Self {
        Self {
            handle: Arc::new(Handle(Arc::new(Shared::new(options)))),
        }
    }

    // ===== Tasks =====

    /// Runs a closure that may block on a thread of the pool.
    ///
    /// It runs whether or not the handle is polled, and never on this thread, unless
    /// [the policy](Builder::overflow) for a full queue says so.
    ///
    /// # Errors
    ///
    /// The handle ends with [`is_panic`](crate::JoinError::is_panic); with
    /// [`is_cancelled`](crate::JoinError::is_cancelled) if it was aborted before it started; and, if
    /// the task is not accepted, with [`is_rejected`](crate::JoinError::is_rejected) (the queue is
    /// full, or there is no thread and the system gives none: then the error's source is the
    /// system's) or [`is_closed`](crate::JoinError::is_closed).
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.spawn_entered(f).unwrap_or_else(JoinHandle::refused),
            Err(no_room) => {
                self.shared().reject(1);
                match no_room {
                    TryAcquireError::Full => self.overflow(f),
                    TryAcquireError::Closed => JoinHandle::refused(TrySpawnError::closed(f)),
                }
            }
        }
    }

    /// Runs a closure that may block on a thread of the pool, or hands it back.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) if the queue is bounded and full,
    /// [`is_closed`](TrySpawnError::is_closed) after a shutdown, and
    /// [`is_no_thread`](TrySpawnError::is_no_thread) if there is no thread and the system gives none.
    #[track_caller]
    pub fn try_spawn_blocking<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.spawn_entered(f),
            Err(no_room) => {
                self.shared().reject(1);
                Err(refusal(no_room, f))
            }
        }
    }

    /// Runs many closures, with one synchronisation for all of those that there is room for; with the
    /// others it does as [`spawn_blocking`](Self::spawn_blocking) does. The handles are in the order of the
    /// closures.
    ///
    /// # Errors
    ///
    /// The handles end as those of [`spawn_blocking`](Self::spawn_blocking) do.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().build()?;
    /// let handles = pool.spawn_batch(["src", "tests"].map(|path| move || std::fs::read_dir(path)));
    /// for handle in handles {
    ///     assert!(handle.await??.count() > 0);
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn spawn_batch<I, F, R>(&self, closures: I) -> Vec<JoinHandle<R>>
    where
        I: IntoIterator<Item = F>,
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        // All of the caller's code runs before anything is taken.
        let mut closures = closures.into_iter().collect::<Vec<_>>().into_iter();
        let (mut tasks, mut handles) = (FifoList::new(), Vec::with_capacity(closures.len()));
        let mut left = None;
        for f in closures.by_ref() {
            if self.shared().try_acquire().is_err() {
                left = Some(f);
                break;
            }
            let (task, handle) = self.joinable(f, Location::caller());
            tasks.push_back(task);
            handles.push(handle);
        }
        let count = handles.len();
        if count > 0
            && let Err(unaccepted) = Shared::accept(self.shared(), tasks, count, Comes::Anew)
        {
            // SAFETY: of such jobs the tasks were made above.
            let back = |task| unsafe { take_back::<Closure<F>>(task) };
            let refused = unaccepted.each(back);
            handles = refused.into_iter().map(JoinHandle::refused).collect();
        }
        // Not in a closure: the place that spans name is that of the caller.
        for f in left.into_iter().chain(closures) {
            handles.push(self.spawn_blocking(f));
        }
        handles
    }

    /// Spawns a closure for which there is a place.
    #[track_caller]
    fn spawn_entered<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (task, handle) = self.joinable(f, Location::caller());
        match Shared::accept(self.shared(), task.into(), 1, Comes::Anew) {
            Ok(()) => Ok(handle),
            // SAFETY: of such a job the task was made above.
            Err(unaccepted) => Err(unaccepted
                .one(|task| unsafe { take_back::<Closure<F>>(task) })
                .map(Closure::into_inner)),
        }
    }

    fn joinable<F, R>(&self, f: F, place: &Location<'_>) -> (Task<RunContext>, JoinHandle<R>)
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (shared, id) = (self.shared(), Id::next());
        let body = Closure::new(f, &shared.options.name, id, place);
        let ticket = Entry::new(shared);
        let (task, join_ref) = Task::joinable(Queued { body, ticket });
        (
            task,
            JoinHandle::with_origin(id, join_ref, Origin::pool(Shared::name(shared))),
        )
    }

    // ===== Settings =====

    /// Creates the core threads that are missing, so that the first tasks need not wait for them. How
    /// many it has created.
    ///
    /// # Errors
    ///
    /// What the system says if it gives no thread. Those that were created before stay.
    pub fn prestart_core_threads(&self) -> io::Result<usize> {
        Shared::prestart(self.shared())
    }

    /// Changes [how many idle threads stay](Builder::core_threads). Those that are too many end after
    /// their keep-alive.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if those are more than the maximum of threads.
    pub fn set_core_threads(&self, threads: usize) -> io::Result<()> {
        Shared::set(self.shared(), |limits| limits.core_threads = threads)
    }

    /// Changes the [maximum number of threads](Builder::max_threads). Threads beyond it take no more tasks, and
    /// exit when they have finished their current one. The bound on accepted tasks changes with it.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is 0, or less than the core threads.
    pub fn set_max_threads(&self, threads: usize) -> io::Result<()> {
        Shared::set(self.shared(), |limits| limits.max_threads = threads)
    }

    /// Changes [how long an idle thread waits before it ends](Builder::keep_alive), also for those that
    /// wait now: from now on.
    pub fn set_keep_alive(&self, time: Duration) {
        let set = Shared::set(self.shared(), |limits| limits.keep_alive = time);
        set.expect("any time will do");
    }

    /// What the pool has done so far, and does now.
    pub fn metrics(&self) -> Metrics {
        self.shared().metrics()
    }

    // ===== The end =====

    /// Refuses tasks from now on; those that were accepted still run. Does not wait.
    pub fn shutdown(&self) {
        self.shared().close();
    }

    /// Refuses tasks from now on, and drops those that wait: their handles end with
    /// [`is_cancelled`](crate::JoinError::is_cancelled). How many those were. Does not wait for those that
    /// run.
    ///
    /// The tasks that wait in a [view](Self::view) are dropped, too, and not counted.
    pub fn shutdown_now(&self) -> usize {
        self.shared().close_now()
    }

    /// Waits until the pool has been [shut down](Self::shutdown), its tasks have run, and its
    /// threads are about to end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and made again.
    pub async fn terminated(&self) {
        self.shared().terminated().await;
    }

    /// [Shuts down](Self::shutdown), and blocks this thread until the pool has [terminated](Self::terminated),
    /// or the time is over. Whether it has terminated.
    ///
    /// For threads that are not async: elsewhere use [`tokio::time::timeout`] with
    /// [`terminated`](Self::terminated).
    pub fn shutdown_timeout(&self, time: Duration) -> bool {
        self.shutdown();
        let end = Instant::now().checked_add(time);
        block_on_until(self.terminated(), end)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.0
    }
}

impl sealed::Sealed for BlockingPool {}

/// Work that yields is run to its end, on one thread.
impl Spawn for BlockingPool {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let shared = self.shared();
        if shared.try_acquire().is_err() {
            shared.reject(1);
            return Err(work);
        }
        let ticket = Entry::new(shared);
        let body = Foreign(work);
        let (task, _) = Task::joinable(Queued { body, ticket });
        Shared::accept(shared, task.into(), 1, Comes::Anew).map_err(|unaccepted| {
            // SAFETY: of such a job the task was made above.
            let back = |task| unsafe { take_back::<Foreign>(task) };
            unaccepted.one(back).into_inner().0
        })
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn refusal<F>(no_room: TryAcquireError, f: F) -> TrySpawnError<F> {
    match no_room {
        TryAcquireError::Full => TrySpawnError::full(f),
        TryAcquireError::Closed => TrySpawnError::closed(f),
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
