//! [`BlockingPool`]: threads for closures that block, which grow before they queue.

mod builder;
mod crew;
mod default;
mod histogram;
mod metrics;
mod worker;

use std::fmt;

use self::builder::Options;
pub use self::builder::{Builder, Growth, Overflow};
use self::crew::{Crew, Unaccepted};
pub use self::default::spawn_blocking;
pub use self::histogram::Histogram;
pub use self::metrics::Metrics;
use crate::join::{JoinHandle, Seat, Spawn, TrySpawnError, Work, sealed};
use crate::room::NoRoom;
use crate::sync::Arc;
use crate::task::{Task, Thunk};

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
    /// Not the crew itself: threads hold that, and must not keep the pool open.
    handle: Arc<Handle>,
}

/// What the clones of a pool share: the last of them closes it.
struct Handle(Arc<Crew>);

impl BlockingPool {
    /// Options for a new pool.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn with_options(options: Options) -> Self {
        Self {
            handle: Arc::new(Handle(Arc::new(Crew::new(options)))),
        }
    }

    /// Runs a closure that may block on a thread of the pool.
    ///
    /// It runs whether or not the handle is polled, and never on this thread.
    ///
    /// # Errors
    ///
    /// The handle ends with [`is_panic`](crate::JoinError::is_panic); with
    /// [`is_cancelled`](crate::JoinError::is_cancelled) if it was aborted before it started; and, if
    /// the task is not accepted, with [`is_rejected`](crate::JoinError::is_rejected) (the queue is
    /// full, or there is no thread and the system gives none: then the error's source is the
    /// system's) or [`is_closed`](crate::JoinError::is_closed).
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.try_spawn_blocking(f).unwrap_or_else(|error| {
            let (_, fault) = error.into_fault();
            JoinHandle::failed(fault)
        })
    }

    /// Runs a closure that may block on a thread of the pool, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Full`](TrySpawnError::Full) if the queue is bounded and full,
    /// [`Closed`](TrySpawnError::Closed) after a shutdown, and
    /// [`NoThread`](TrySpawnError::NoThread) if there is no thread and the system gives none.
    pub fn try_spawn_blocking<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.crew().room.try_enter() {
            Ok(()) => self.spawn_in_place(f),
            Err(no_room) => {
                self.crew().reject();
                Err(refusal(no_room, f))
            }
        }
    }

    /// Waits until there is room for a task, and keeps the place for the caller: back-pressure that
    /// blocks no thread. Without a [`queue_capacity`](Builder::queue_capacity) there always is.
    ///
    /// Those who wait are woken in the order in which they came, but a place is not granted before
    /// it is taken: one who comes just then may be faster.
    ///
    /// # Errors
    ///
    /// [`Closed`](TrySpawnError::Closed) if the pool is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has taken no place, and loses its turn. One that is kept without being polled
    /// may hold up others that wait.
    pub async fn reserve(&self) -> Result<Permit<'_>, TrySpawnError<()>> {
        match self.crew().room.enter().await {
            Ok(()) => Ok(Permit { pool: self }),
            Err(no_room) => Err(refusal(no_room, ())),
        }
    }

    /// What the pool has done so far, and does now.
    pub fn metrics(&self) -> Metrics {
        self.crew().metrics()
    }

    /// Refuses tasks from now on; those that were accepted still run. Does not wait.
    pub fn shutdown(&self) {
        self.crew().close();
    }

    /// Waits until the pool has been [shut down](Self::shutdown), its tasks have run, and its
    /// threads are about to end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and made again.
    pub async fn terminated(&self) {
        self.crew().terminated().await;
    }

    /// Spawns a closure for which there is a place.
    fn spawn_in_place<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (task, watch) = Task::joinable(Thunk(f));
        match Crew::accept(self.crew(), task) {
            Ok(()) => Ok(JoinHandle::waiting(watch)),
            // SAFETY: of a `Thunk<F>` it was made above.
            Err(unaccepted) => Err(unsafe { take_back(unaccepted) }),
        }
    }

    fn crew(&self) -> &Arc<Crew> {
        &self.handle.0
    }
}

impl sealed::Sealed for BlockingPool {}

/// Work that yields is run to its end, on one thread. Work that has been polled is not accepted.
impl Spawn for BlockingPool {
    fn spawn(&self, work: Work) -> Result<(), Work> {
        let task = work.into_task()?;
        if self.crew().room.try_enter().is_err() {
            self.crew().reject();
            return Err(Work::new(task));
        }
        Crew::accept(self.crew(), task).map_err(|unaccepted| match unaccepted {
            Unaccepted::Closed(task) | Unaccepted::NoThread(task, _) => Work::new(task),
        })
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool")
            .field("name", &self.crew().options.name)
            .field("metrics", &self.metrics())
            .finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A place for one task: see [`BlockingPool::reserve`]. Dropping it gives the place back.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a> {
    pool: &'a BlockingPool,
}

impl Permit<'_> {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`], but the queue is never full.
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let pool = std::mem::ManuallyDrop::new(self).pool;
        pool.spawn_in_place(f).unwrap_or_else(|error| {
            let (_, fault) = error.into_fault();
            JoinHandle::failed(fault)
        })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pool.crew().room.leave();
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

fn refusal<F>(no_room: NoRoom, f: F) -> TrySpawnError<F> {
    match no_room {
        NoRoom::Full => TrySpawnError::Full(f),
        NoRoom::Closed => TrySpawnError::Closed(f),
    }
}

/// Takes the closure of a task that was not accepted back out of its cell.
///
/// # Safety
///
/// The task was made by `Task::joinable`, of a `Thunk<F>`.
unsafe fn take_back<F, R>(unaccepted: Unaccepted) -> TrySpawnError<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let closure = |task: Task<Seat>| {
        // SAFETY: as the caller says.
        let job = unsafe { task.take_back::<Thunk<F>>() };
        job.expect("nobody has a handle with which to abort it yet")
            .0
    };
    match unaccepted {
        Unaccepted::Closed(task) => TrySpawnError::Closed(closure(task)),
        Unaccepted::NoThread(task, why) => TrySpawnError::NoThread(closure(task), why),
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
