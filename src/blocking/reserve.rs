//! Places that are taken before the task: back-pressure that blocks no thread.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{BlockingPool, refusal};
use crate::join::{JoinHandle, TrySpawnError};
use crate::sync::Unshared;

/// A place for one task: see [`BlockingPool::reserve`]. Dropping it gives the place back.
#[must_use = "dropping a permit gives its place back"]
pub struct Permit<'a> {
    pool: &'a BlockingPool,
}

/// A [`Permit`] that keeps its pool: see [`BlockingPool::reserve_owned`].
#[must_use = "dropping a permit gives its place back"]
pub struct OwnedPermit {
    /// Taken when the place is used.
    pool: Option<BlockingPool>,
}

/// A pool that is asked for a place by polling: what `poll_ready` of a `tower::Service` needs.
///
/// # Examples
///
/// ```
/// use std::future::poll_fn;
/// use throng::BlockingPool;
/// use throng::blocking::PollReserve;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(4).queue_capacity(16).build()?;
/// // In a service: `poll_ready` is `poll_reserve`, and `call` is `spawn_blocking`.
/// let mut service = PollReserve::new(pool);
/// poll_fn(|cx| service.poll_reserve(cx)).await?;
/// assert_eq!(service.spawn_blocking(|| 7).await?, 7);
/// # Ok(()) }
/// ```
pub struct PollReserve {
    pool: BlockingPool,
    state: State,
}

enum State {
    Idle,
    Waiting(Waiting),
    Reserved(OwnedPermit),
}

/// It is only polled through `&mut`.
type Waiting =
    Unshared<Pin<Box<dyn Future<Output = Result<OwnedPermit, TrySpawnError<()>>> + Send>>>;

impl BlockingPool {
    /// Waits until there is room for a task, and keeps the place for the caller: back-pressure that
    /// blocks no thread. Without a [`queue_capacity`](super::Builder::queue_capacity) there always is.
    ///
    /// Those who wait are woken in the order in which they came, but a place is not granted before
    /// it is taken: one who comes just then may be faster.
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
        self.enter().await?;
        Ok(Permit { pool: self })
    }

    /// As [`reserve`](Self::reserve); the permit may be kept for longer than this handle.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    ///
    /// # Cancel safety
    ///
    /// As [`reserve`](Self::reserve).
    pub async fn reserve_owned(self) -> Result<OwnedPermit, TrySpawnError<()>> {
        self.enter().await?;
        Ok(OwnedPermit { pool: Some(self) })
    }

    async fn enter(&self) -> Result<(), TrySpawnError<()>> {
        match &self.shared().room {
            Some(room) => room.acquire().await.map_err(|no_room| refusal(no_room, ())),
            None if self.shared().state().is_closed() => Err(TrySpawnError::closed(())),
            None => Ok(()),
        }
    }
}

impl Permit<'_> {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`], but the queue is never full.
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let pool = ManuallyDrop::new(self).pool;
        pool.spawn_entered(f).unwrap_or_else(JoinHandle::refused)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pool.shared().give_back();
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl OwnedPermit {
    /// Runs a closure that may block on a thread of the pool.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`], but the queue is never full.
    #[track_caller]
    pub fn spawn_blocking<F, R>(mut self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let Some(pool) = self.pool.take() else {
            unreachable!("it is taken here, and in the drop");
        };
        pool.spawn_entered(f).unwrap_or_else(JoinHandle::refused)
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.shared().give_back();
        }
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit").finish_non_exhaustive()
    }
}

impl PollReserve {
    /// No place is taken yet.
    pub fn new(pool: BlockingPool) -> Self {
        Self {
            pool,
            state: State::Idle,
        }
    }

    /// Waits for a place, and keeps it until [`spawn_blocking`](Self::spawn_blocking) uses it. It is ready
    /// at once while a place is kept.
    ///
    /// # Errors
    ///
    /// [`is_closed`](TrySpawnError::is_closed) if the pool is or becomes closed.
    ///
    /// # Cancel safety
    ///
    /// The place is kept, or waited for, between polls; [`release`](Self::release) gives it up.
    pub fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TrySpawnError<()>>> {
        let mut waiting: Waiting = match std::mem::replace(&mut self.state, State::Idle) {
            State::Reserved(permit) => {
                self.state = State::Reserved(permit);
                return Poll::Ready(Ok(()));
            }
            State::Waiting(waiting) => waiting,
            State::Idle => Unshared::new(Box::pin(self.pool.clone().reserve_owned())),
        };
        // Not kept while it is polled: if a waker panics, the next call begins anew.
        match waiting.get_mut().as_mut().poll(cx) {
            Poll::Ready(reserved) => {
                self.state = State::Reserved(reserved?);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.state = State::Waiting(waiting);
                Poll::Pending
            }
        }
    }

    /// Runs a closure that may block on a thread of the pool, in the place that is kept.
    ///
    /// # Errors
    ///
    /// As [`BlockingPool::spawn_blocking`], but the queue is never full.
    ///
    /// # Panics
    ///
    /// Panics if no place is kept: [`poll_reserve`](Self::poll_reserve) was not ready before.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&mut self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Reserved(permit) => permit.spawn_blocking(f),
            State::Idle | State::Waiting(_) => {
                panic!("`spawn_blocking` without a place: `poll_reserve` comes first")
            }
        }
    }

    /// Gives the place back that is kept, or does not wait for one any more.
    pub fn release(&mut self) {
        self.state = State::Idle;
    }

    /// The pool.
    pub fn pool(&self) -> &BlockingPool {
        &self.pool
    }
}

// A panic cannot leave it half changed: it is polled as a whole.
impl UnwindSafe for PollReserve {}
impl RefUnwindSafe for PollReserve {}

/// A clone keeps no place.
impl Clone for PollReserve {
    fn clone(&self) -> Self {
        Self::new(self.pool.clone())
    }
}

impl fmt::Debug for PollReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = matches!(self.state, State::Reserved(_));
        f.debug_struct("PollReserve")
            .field("pool", &self.pool)
            .field("reserved", &reserved)
            .finish()
    }
}
