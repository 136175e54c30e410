//! The methods that submit tasks to a [`BlockingPool`], and the policies for a full queue.

use std::io;
use std::panic::Location;

use tokio::runtime::Handle;

use super::overflow::Overflow;
use super::pool::BlockingPool;
use super::shared::Shared;
use super::state::Source;
use super::submit::{Submit, not_acquired, submit, submit_batch};
use super::task::{Body, Closure, InRuntime, PoolTask, TaskGuard};
use crate::join::{
    Bounded, Closed, Id, JoinHandle, Permit, Spawn, TrySpawnError, Work, is_pool_thread, sealed,
};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::{Fault, JoinRef, Task, Thunk};
use crate::unwind::contain;

impl BlockingPool {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// It runs whether or not the handle is polled, and never on the calling thread, unless
    /// [the policy](super::Builder::overflow) for a full queue says so.
    ///
    /// # Errors
    ///
    /// The handle fails with [`is_panic`](crate::JoinError::is_panic) if the closure panics, and with
    /// [`is_cancelled`](crate::JoinError::is_cancelled) if the task is aborted before it starts. A task that is not
    /// accepted fails with [`is_closed`](crate::JoinError::is_closed), or with
    /// [`is_rejected`](crate::JoinError::is_rejected) if the queue is full, or if there is no thread and the system
    /// refuses to create one (its error is the source then).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let manifest = pool.spawn_blocking(|| std::fs::read_to_string("Cargo.toml")).await??;
    /// assert!(manifest.contains("[package]"));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.spawn_acquired(f, Location::caller()),
            Err(error) => {
                self.shared().reject(1);
                match error {
                    TryAcquireError::Full => self.overflow(f, Location::caller()),
                    TryAcquireError::Closed => JoinHandle::refused(TrySpawnError::closed(f)),
                }
            }
        }
    }

    /// Runs a closure that may block on a thread of the pool, or returns it if it is not accepted.
    ///
    /// # Errors
    ///
    /// Fails with [`is_full`](TrySpawnError::is_full) if the queue is bounded and full, with
    /// [`is_closed`](TrySpawnError::is_closed) if the pool is closed. If there is no thread and the system refuses to
    /// create one, its error is the [`source`](std::error::Error::source).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(1).queue_capacity(10).build()?;
    /// match pool.try_spawn_blocking(|| 7) {
    ///     Ok(handle) => assert_eq!(handle.await?, 7),
    ///     Err(refused) => drop(refused.into_inner()),
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_spawn_blocking<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.shared().try_acquire() {
            Ok(()) => self.submit_closure(f, Location::caller()),
            Err(error) => {
                self.shared().reject(1);
                Err(not_acquired(error, f))
            }
        }
    }

    /// Runs many closures, with one synchronisation for all that find permits. For the others it does as
    /// [`spawn_blocking`](Self::spawn_blocking) does. The handles are in the order of the closures.
    ///
    /// # Errors
    ///
    /// The handles fail as those of [`spawn_blocking`](Self::spawn_blocking) do.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
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
        let (shared, location) = (self.shared(), Location::caller());
        // All of the caller's code runs before anything is acquired.
        let mut closures: Vec<_> = closures.into_iter().collect();
        let acquired = closures.iter().take_while(|_| shared.try_acquire().is_ok());
        let others = closures.split_off(acquired.count());
        let closures = closures.into_iter().map(|f| {
            let id = Id::next();
            (id, Closure::new(f, shared, id, location))
        });
        let mut handles = match shared.options.runtime_of_submitter() {
            None => submit_batch(shared, closures),
            Some(runtime) => {
                let within = |(id, closure)| (id, InRuntime::new(closure, runtime.clone()));
                submit_batch(shared, closures.map(within))
            }
        };
        // Not in a closure, in which the location of the caller is lost.
        for f in others {
            handles.push(self.spawn_blocking(f));
        }
        handles
    }
}

// ===== A permit, or a full queue =====

impl BlockingPool {
    /// Spawns a closure whose permit has been acquired.
    fn spawn_acquired<F, R>(&self, f: F, location: &Location<'_>) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.submit_closure(f, location)
            .unwrap_or_else(JoinHandle::refused)
    }

    /// Applies the policy for a full queue to a closure.
    #[cold]
    fn overflow<F, R>(&self, f: F, location: &Location<'_>) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match &self.shared().options.overflow {
            Overflow::RunOnCaller if is_async_worker() => reject(f, ON_ASYNC_WORKER),
            Overflow::RunOnCaller => hand_over(f, Work::run),
            Overflow::Custom(handler) => hand_over(f, |work| contain(|| handler(work))),
            Overflow::DropOldest if self.shared().replace_oldest() => {
                self.spawn_acquired(f, location)
            }
            Overflow::DropOldest | Overflow::Reject => reject(f, FULL),
        }
    }
}

const FULL: &str = "the queue is full";
const ON_ASYNC_WORKER: &str = "the queue is full, and the caller must not block because it is in a Tokio runtime; \
                               use `Overflow::Custom` with `Work::run` to run the task there nevertheless";

fn reject<F, R: 'static>(f: F, why: &'static str) -> JoinHandle<R> {
    contain(|| drop(f));
    let why = io::Error::new(io::ErrorKind::WouldBlock, why);
    JoinHandle::failed(Fault::rejected(why))
}

fn hand_over<F, R>(f: F, to: impl FnOnce(Work)) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let (task, join_ref) = Task::joinable(Thunk(f));
    to(Work::new(task));
    JoinHandle::waiting(join_ref)
}

/// Returns `true` if this thread may be one that polls tasks.
fn is_async_worker() -> bool {
    Handle::try_current().is_ok() && !is_pool_thread()
}

// ===== Permits =====

impl BlockingPool {
    /// Waits until the pool can accept a task, and reserves that for the caller: back-pressure that blocks no thread.
    /// Without a [`queue_capacity`](super::Builder::queue_capacity) it never waits.
    ///
    /// Waiters are woken in the order in which they came, but a permit is not granted before it is taken: a caller that
    /// does not wait may be faster.
    ///
    /// # Errors
    ///
    /// Fails if the pool is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future acquires nothing, and loses its place in the wait queue. A future that is kept without being
    /// polled may hold up other waiters.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(1).queue_capacity(1).build()?;
    /// for n in 0..10 {
    ///     // At most two tasks at a time: one that runs, and one that waits.
    ///     drop(pool.reserve().await?.spawn_blocking(move || n));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, Self>, Closed> {
        Permit::reserve(self).await
    }
}

impl Bounded for BlockingPool {
    async fn acquire_permit(&self) -> Result<(), Closed> {
        self.shared().acquire().await
    }

    fn release_permit(&self) {
        self.shared().release();
    }
}

impl Permit<'_, BlockingPool> {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`], but the queue is never full.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(1).queue_capacity(1).build()?;
    /// let permit = pool.reserve().await?;
    /// assert_eq!(permit.spawn_blocking(|| 7).await?, 7);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.consume().spawn_acquired(f, Location::caller())
    }
}

// ===== Work of other parts =====

impl sealed::Sealed for BlockingPool {}

/// Work that yields is run to its end, on one thread.
impl Spawn for BlockingPool {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        if self.shared().try_acquire().is_err() {
            self.shared().reject(1);
            return Err(work);
        }
        self.submit_work(work)
    }
}

impl Submit for BlockingPool {
    fn shared(&self) -> &Arc<Shared> {
        self.shared()
    }

    fn submit<B: Body>(&self, body: B) -> Result<JoinRef<B::Output>, TrySpawnError<B>> {
        let shared = self.shared();
        let guard = TaskGuard::new(shared);
        submit(shared, PoolTask { body, guard }, Source::Caller)
    }
}
