//! [`ComputePool`]: few threads for huge numbers of tiny closures.

mod builder;
mod keyed;
mod lane;
mod metrics;
mod route;
mod shared;
mod watchdog;
mod worker;

use std::fmt;
use std::hash::Hash;
use std::io;
use std::mem::ManuallyDrop;

pub use self::builder::Builder;
use self::builder::Options;
pub use self::metrics::{LaneMetrics, Metrics};
use self::shared::Shared;
use crate::inbox::Batch;
use crate::join::{JoinHandle, RunContext, Spawn, TrySpawnError, Work, sealed};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::{Fault, Task, Thunk};

/// A pool of few threads for huge numbers of tiny closures, a fraction of a microsecond each.
///
/// Each thread owns a *lane*. Submitting is one compare-and-swap on a lane whose thread is awake, and
/// the task is a recycled piece of memory; the thread takes all that is there at once. A thread that
/// has nothing to do takes from the others, and one that has more than is worth a wake-up wakes
/// another. Idle threads sleep: they cost no CPU time.
///
/// # When to use it, and when something else
///
/// - For closures that *block* (files, locks, other people's calls), a
///   [`BlockingPool`](crate::BlockingPool): here, one that blocks takes one of few threads away. What
///   waits behind it is taken over by others, after some milliseconds.
/// - For *fork and join*, and for parallel loops over data, `rayon`: a parent that waits for its
///   children must run them meanwhile, which `rayon::join` does at a few nanoseconds each, and this
///   pool does not. A task that waits for another task of its own pool may wait for ever.
/// - For futures, Tokio itself.
///
/// # Guarantees
///
/// - *Order*: what one thread, or one task, submits starts in that order while one thread of the pool
///   keeps up with it, and else in any order. Tasks of one [key](Self::spawn_keyed) always run in
///   order, one at a time.
/// - *Panics* reach the handle, or, for [`execute`](Self::execute), the handler of
///   [`Builder::on_panic`]; the thread goes on.
/// - *Abort* of a task that has not started drops its closure at once; one that has started runs to its
///   end.
/// - *Shutdown*: [`shutdown`](Self::shutdown), or dropping the last clone, refuses new tasks and runs
///   those that were accepted. Neither blocks, in async code or out of it. The end of the process does
///   not wait for tasks: await [`terminated`](Self::terminated) for that.
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
///     pool.execute(move || sum.send(n * n).expect("somebody adds them up"));
/// }
/// drop(sum);
/// assert_eq!(sums.iter().sum::<u32>(), 338_350);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ComputePool {
    /// Not the shared itself: threads hold that, and must not keep the pool open.
    handle: Arc<Handle>,
}

/// What the clones of a pool share: the last of them closes it.
struct Handle(Arc<Shared>);

/// How many tasks of a batch are queued at once.
const BATCH: usize = 256;

impl ComputePool {
    /// Options for a new pool.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn with_options(options: Options) -> io::Result<Self> {
        let pool = Self {
            handle: Arc::new(Handle(Arc::new(Shared::new(options)))),
        };
        for lane in 0..pool.shared().lanes.len() {
            // On an error the pool is dropped, and the threads that there are end.
            worker::start(pool.shared(), lane)?;
        }
        Ok(pool)
    }

    /// Runs a closure on a thread of the pool: nobody waits for it.
    ///
    /// The cheapest way in. A closure that the pool does not accept, because it is full or closed, is
    /// dropped, and counted in [`Metrics::rejected`]: see [`try_execute`](Self::try_execute).
    #[inline]
    pub fn execute<F>(&self, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        drop(self.try_execute(f));
    }

    /// Runs a closure on a thread of the pool, or hands it back.
    ///
    /// # Errors
    ///
    /// [`is_full`](TrySpawnError::is_full) if the pool has a [`capacity`](Builder::capacity), and no room;
    /// [`is_closed`](TrySpawnError::is_closed) after a shutdown.
    #[inline]
    pub fn try_execute<F>(&self, f: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        match self.enter() {
            Ok(()) => self.execute_in_place(f),
            Err(no_room) => Err(self.refuse(no_room, f)),
        }
    }

    /// Runs closures on threads of the pool: nobody waits for them.
    ///
    /// They are queued many at a time, at the cost of one. Those that the pool does not accept, because
    /// it is full or closed, are dropped, and counted in [`Metrics::rejected`].
    pub fn execute_batch<I>(&self, closures: I)
    where
        I: IntoIterator<Item: FnOnce() + Send + 'static>,
    {
        let mut batch = Gathering::new(self);
        for f in closures {
            match self.enter() {
                Ok(()) => batch.add(Task::detached_closure(f)),
                Err(no_room) => drop(self.refuse(no_room, f)),
            }
        }
    }

    /// Runs a closure on a thread of the pool.
    ///
    /// It runs whether or not the handle is polled.
    ///
    /// # Errors
    ///
    /// The handle ends with [`is_panic`](crate::JoinError::is_panic); with
    /// [`is_cancelled`](crate::JoinError::is_cancelled) if it was aborted before it started; and, if the
    /// task is not accepted, with [`is_rejected`](crate::JoinError::is_rejected) (the pool is full) or
    /// [`is_closed`](crate::JoinError::is_closed).
    pub fn spawn<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.enter() {
            Ok(()) => self.spawn_in_place(f),
            Err(no_room) => self.refused(no_room, f),
        }
    }

    /// Runs closures on threads of the pool; the handles are in the order of the closures.
    ///
    /// They are queued many at a time, at the cost of one.
    ///
    /// # Errors
    ///
    /// The handles end as those of [`spawn`](Self::spawn).
    pub fn spawn_batch<I, F, R>(&self, closures: I) -> Vec<JoinHandle<R>>
    where
        I: IntoIterator<Item = F>,
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let mut batch = Gathering::new(self);
        let spawn = |f| match self.enter() {
            Ok(()) => {
                let (task, watch) = Task::joinable(Thunk(f));
                batch.add(task);
                JoinHandle::waiting(watch)
            }
            Err(no_room) => self.refused(no_room, f),
        };
        closures.into_iter().map(spawn).collect()
    }

    /// Runs a closure on a thread of the pool, after all that were submitted with an equal key before,
    /// and not while one of them runs.
    ///
    /// An actor without a state of its own: for a state, see
    /// [`SerialExecutor`](crate::SerialExecutor). Keys are hashed; different ones may have to wait for
    /// one another. A call that meets the end of the pool may run what was accepted for its key on this
    /// thread, where there is no other any more.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().build()?;
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
        // First: the key's code may panic.
        let inbox = self.shared().keys.find(key);
        if self.shared().is_closed() {
            return self.refused(TryAcquireError::Closed, f);
        }
        match self.enter() {
            Ok(()) => {
                let (task, watch) = Task::joinable(Thunk(f));
                keyed::push(self.shared(), inbox, task);
                JoinHandle::waiting(watch)
            }
            Err(no_room) => self.refused(no_room, f),
        }
    }

    /// Waits until there is room for a task, and keeps the place for the caller: back-pressure that
    /// blocks no thread. Without a [`capacity`](Builder::capacity) there always is.
    ///
    /// Those who wait are woken in the order in which they came, but a place is not granted before it
    /// is taken: one who comes just then may be faster.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) if the pool is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has taken no place, and loses its turn. One that is kept without being polled
    /// may hold up others that wait.
    pub async fn reserve(&self) -> Result<Permit<'_>, TrySpawnError<()>> {
        let entered = match &self.shared().room {
            Some(room) => room.acquire().await,
            None if self.shared().is_closed() => Err(TryAcquireError::Closed),
            None => Ok(()),
        };
        match entered {
            Ok(()) => Ok(Permit { pool: self }),
            Err(no_room) => Err(refusal(no_room, ())),
        }
    }

    /// What the pool has done so far, and does now.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(self.shared())
    }

    /// Refuses tasks from now on; those that were accepted still run. Does not wait.
    pub fn shutdown(&self) {
        self.shared().close();
    }

    /// Refuses tasks from now on, and drops those that have not started; says how many these were. Does
    /// not wait for those that run.
    ///
    /// What a thread is just taking from its lane is dropped by that thread, and may be missing from
    /// the number.
    pub fn shutdown_now(&self) -> usize {
        self.shared().cancel()
    }

    /// Waits until the pool has been shut down, its tasks have run or been dropped, and its threads are
    /// about to end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and made again.
    pub async fn terminated(&self) {
        self.shared().terminated().await;
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.0
    }

    /// Takes a place for a task.
    #[inline]
    fn enter(&self) -> Result<(), TryAcquireError> {
        self.shared()
            .room
            .as_ref()
            .map_or(Ok(()), |room| room.try_acquire())
    }

    /// Executes a closure for which there is a place.
    #[inline]
    fn execute_in_place<F>(&self, f: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let Err(refused) = self.shared().push(Batch::of(Task::detached_closure(f)), 1) else {
            return Ok(());
        };
        let task = refused.into_fifo().pop_front();
        self.shared().leave();
        // SAFETY: it was made above, and has not been run.
        let f = task.map(|task| unsafe { task.take_back_closure::<F>() });
        Err(self.refuse(
            TryAcquireError::Closed,
            f.expect("it was refused with the task in it"),
        ))
    }

    /// Spawns a closure for which there is a place.
    fn spawn_in_place<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (task, watch) = Task::joinable(Thunk(f));
        self.queue(Batch::of(task), 1);
        JoinHandle::waiting(watch)
    }

    /// Queues tasks for which there is a place, or ends them.
    fn queue(&self, batch: Batch<Task<RunContext>>, count: usize) {
        if count == 0 {
            return;
        }
        let Err(refused) = self.shared().push(batch, count) else {
            return;
        };
        let mut chain = refused.into_fifo();
        while let Some(task) = chain.pop_front() {
            self.shared().leave();
            self.count_rejected();
            task.fail(Fault::closed());
        }
    }

    fn refuse<F>(&self, no_room: TryAcquireError, f: F) -> TrySpawnError<F> {
        self.count_rejected();
        refusal(no_room, f)
    }

    /// The handle of a task that was not accepted.
    fn refused<F, R: 'static>(&self, no_room: TryAcquireError, f: F) -> JoinHandle<R> {
        JoinHandle::refused(self.refuse(no_room, f))
    }

    fn count_rejected(&self) {
        self.shared().rejected.add(1);
    }
}

impl sealed::Sealed for ComputePool {}

/// Work that yields is run to its end, on one thread, which it keeps from tasks meanwhile. Work that has
/// been polled is not accepted.
impl Spawn for ComputePool {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        let task = work.into_task()?;
        if self.enter().is_err() {
            self.count_rejected();
            return Err(Work::new(task));
        }
        self.shared().push(Batch::of(task), 1).map_err(|refused| {
            self.shared().leave();
            self.count_rejected();
            Work::new(
                refused
                    .into_fifo()
                    .pop_front()
                    .expect("it was pushed above"),
            )
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Tasks on their way to the pool, queued when they are many, and when there are no more.
struct Gathering<'a> {
    pool: &'a ComputePool,
    batch: Batch<Task<RunContext>>,
    count: usize,
}

impl<'a> Gathering<'a> {
    fn new(pool: &'a ComputePool) -> Self {
        Self {
            pool,
            batch: Batch::new(),
            count: 0,
        }
    }

    fn add(&mut self, task: Task<RunContext>) {
        self.batch.push(task);
        self.count += 1;
        if self.count == BATCH {
            self.queue();
        }
    }

    fn queue(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Batch::new());
        self.pool.queue(batch, std::mem::take(&mut self.count));
    }
}

/// Also when the iterator panics: what it has given is accepted.
impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.queue();
    }
}

/// A place for one task: see [`ComputePool::reserve`]. Dropping it gives the place back.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a> {
    pool: &'a ComputePool,
}

impl Permit<'_> {
    /// Runs a closure on a thread of the pool: nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed), with the closure, after a shutdown.
    pub fn execute<F>(self, f: F) -> Result<(), TrySpawnError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        ManuallyDrop::new(self).pool.execute_in_place(f)
    }

    /// Runs a closure on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`ComputePool::spawn`], but the pool is never full.
    pub fn spawn<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        ManuallyDrop::new(self).pool.spawn_in_place(f)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pool.shared().leave();
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
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
