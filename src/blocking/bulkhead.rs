//! [`Bulkhead`]: a part of a pool, with bounds of its own.

mod tasks;

use std::fmt;
use std::io;
use std::panic::Location;

use self::tasks::{Core, PoolPermit, Reserved};
use super::metrics::Metrics;
use super::pool::BlockingPool;
use super::shared::Shared;
use super::submit::{Submit, not_acquired};
use super::task::Body;
use crate::join::{Bounded, Closed, JoinHandle, Permit, Spawn, TrySpawnError, Work, sealed};
use crate::sync::Arc;
use crate::task::JoinRef;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

/// A part of a [`BlockingPool`] that runs a limited number of tasks at a time, and has a queue of its own.
///
/// Several kinds of work share the threads of one pool, and none can use up all of them, nor fill the queue for the
/// others. A task of a bulkhead that may run joins the end of the pool's queue; when it has ended, the next one does.
/// From then on it counts in the [metrics](BlockingPool::metrics) of the pool.
///
/// A bulkhead keeps the pool open, as a clone of it does. A task of the pool that waits for one of a bulkhead with
/// [`blocking_join`](JoinHandle::blocking_join) runs it itself if no thread has started it, whatever the limit.
/// [`shutdown_now`](BlockingPool::shutdown_now) aborts the tasks that wait in a bulkhead as soon as one of its running
/// tasks ends, or at once if none runs.
///
/// # Examples
///
/// ```
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(16).build()?;
/// // Reports may be slow: at most two run, and ten wait.
/// let reports = pool.bulkhead(2, 10)?;
/// let report = reports.spawn_blocking(|| "a slow report").await?;
/// assert_eq!(report, "a slow report");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Bulkhead {
    core: Arc<Core>,
}

impl BlockingPool {
    /// Makes a part of this pool that runs at most `max_running` tasks at a time, and lets at most `queue_capacity` more
    /// wait.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidInput`](io::ErrorKind::InvalidInput) if `max_running` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let reports = pool.bulkhead(2, 10)?;
    /// assert_eq!(reports.spawn_blocking(|| "report").await?, "report");
    /// # Ok(()) }
    /// ```
    pub fn bulkhead(&self, max_running: usize, queue_capacity: usize) -> io::Result<Bulkhead> {
        if max_running == 0 {
            let message = "`max_running` is 0: a bulkhead must be able to run at least one task";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let core = Core::new(self.clone(), max_running, queue_capacity);
        Ok(Bulkhead {
            core: Arc::new(core),
        })
    }
}

impl Bulkhead {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// The handle fails as that of [`BlockingPool::spawn_blocking`], and with
    /// [`is_rejected`](crate::JoinError::is_rejected) if the bulkhead is full, or the pool is.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(1, 1)?;
    /// assert_eq!(bulkhead.spawn_blocking(|| 7).await?, 7);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.try_spawn_blocking(f)
            .unwrap_or_else(JoinHandle::refused)
    }

    /// Runs a closure that may block on a thread of the pool, or returns it if it is not accepted.
    ///
    /// # Errors
    ///
    /// Fails as [`BlockingPool::try_spawn_blocking`], and with [`is_full`](TrySpawnError::is_full) if the bulkhead is full, or
    /// the pool is.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(1, 0)?;
    /// let (open, gate) = std::sync::mpsc::channel::<()>();
    /// let running = bulkhead.try_spawn_blocking(move || gate.recv().is_ok())?;
    /// let refused = bulkhead.try_spawn_blocking(|| ()).unwrap_err();
    /// assert!(refused.is_full());
    /// // The pool itself has room.
    /// pool.spawn_blocking(|| ()).await?;
    /// # drop(open);
    /// # running.await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_spawn_blocking<F, R>(&self, f: F) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.core.try_acquire() {
            Ok(()) => self.submit_closure(f, Location::caller()),
            Err(error) => {
                self.core.reject();
                Err(not_acquired(error, f))
            }
        }
    }

    /// Runs many closures, each as [`spawn_blocking`](Self::spawn_blocking) does. The handles are in the order of the
    /// closures.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(2, 10)?;
    /// let handles = bulkhead.spawn_batch([1, 2, 3].map(|n| move || 2 * n));
    /// let mut sum = 0;
    /// for handle in handles {
    ///     sum += handle.await?;
    /// }
    /// assert_eq!(sum, 12);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn spawn_batch<I, F, R>(&self, closures: I) -> Vec<JoinHandle<R>>
    where
        I: IntoIterator<Item = F>,
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let mut handles = Vec::new();
        // All of the caller's code runs before anything is submitted. Not in a closure, in which the location of the
        // caller is lost.
        for f in closures.into_iter().collect::<Vec<_>>() {
            handles.push(self.spawn_blocking(f));
        }
        handles
    }

    /// Waits until the bulkhead and its pool can accept a task, and reserves that for the caller.
    ///
    /// # Errors
    ///
    /// Fails if the pool is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// As [`BlockingPool::reserve`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(1, 0)?;
    /// for n in 0..3 {
    ///     // Each task waits for the one before.
    ///     drop(bulkhead.reserve().await?.spawn_blocking(move || n));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, Self>, Closed> {
        Permit::reserve(self).await
    }

    /// Returns a snapshot of the bulkhead's work.
    ///
    /// `busy` counts the tasks that have joined the pool, until they end, and `queued` those that wait for one of these
    /// to end. A task may end while it waits for a thread of the pool, because it is aborted, or because the task that
    /// waits for it runs it. It still counts as busy until a thread of the pool finds it, as it delays the next task
    /// until then.
    ///
    /// `max_threads` is the limit on the tasks that run, and `queue_capacity` that of the bulkhead's queue. The threads and the
    /// histograms belong to the pool, so these fields are empty.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(1, 1)?;
    /// bulkhead.spawn_blocking(|| ()).await?;
    /// assert_eq!(bulkhead.metrics().completed, 1);
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.core.metrics()
    }
}

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
impl Bulkhead {
    pub(crate) fn weak_part(&self) -> impl ReadPart<Metrics> + use<> {
        WeakPart::new(&self.core, Core::metrics)
    }
}

impl Bounded for Bulkhead {
    async fn acquire_permit(&self) -> Result<(), Closed> {
        self.core.acquire_both().await
    }

    fn release_permit(&self) {
        self.core.release_both();
    }
}

impl Permit<'_, Bulkhead> {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`Bulkhead::spawn_blocking`], but neither the bulkhead nor the pool is full.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::new();
    /// let bulkhead = pool.bulkhead(1, 0)?;
    /// let permit = bulkhead.reserve().await?;
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

impl sealed::Sealed for Bulkhead {}

/// Work that yields is run to its end, on one thread.
impl Spawn for Bulkhead {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        if self.core.try_acquire().is_err() {
            self.core.reject();
            return Err(work);
        }
        self.submit_work(work)
    }
}

/// Tasks that hold a permit of the bulkhead, and none of the pool.
impl Submit for Bulkhead {
    fn shared(&self) -> &Arc<Shared> {
        self.core.shared()
    }

    fn submit<B: Body>(&self, body: B) -> Result<JoinRef<B::Output>, TrySpawnError<B>> {
        Core::submit(&self.core, body, PoolPermit::ToAcquire)
    }
}

impl Bulkhead {
    /// Spawns a closure whose permits have been acquired.
    fn spawn_acquired<F, R>(&self, f: F, location: &Location<'_>) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let submitted = Reserved(&self.core).submit_closure(f, location);
        submitted.unwrap_or_else(JoinHandle::refused)
    }
}

impl fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulkhead")
            .field("pool", &self.core.pool)
            .field("metrics", &self.metrics())
            .finish()
    }
}
