#![allow(dead_code, reason = "the parts adopt it one after the other")]
//! Permits: the right to submit one task to an executor that has a bound.
//!
//! An executor implements [`Bounded`]; [`Permit`], [`OwnedPermit`] and [`PollReserve`] are written once, here.
//! What a permit can submit is an inherent impl in the module of each executor.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Closed;
use super::sealed::Sealed;
use crate::sync::Unshared;

/// An executor that can bound the tasks that wait in it.
///
/// Implemented by [`BlockingPool`](crate::BlockingPool), [`ComputePool`](crate::ComputePool),
/// [`SerialExecutor`](crate::SerialExecutor) and the other executors of this crate that have a `reserve` method.
/// The trait is sealed.
pub trait Bounded: Sealed + Clone {
    /// Waits for a permit. Dropping the future acquires nothing.
    #[doc(hidden)]
    fn acquire_permit(&self) -> impl Future<Output = Result<(), Closed>> + Send;

    /// Returns a permit that no task has used.
    #[doc(hidden)]
    fn release_permit(&self);
}

/// The right to submit one task to the executor `E`, which it borrows.
///
/// The `reserve` method of an executor returns it. Dropping it releases the permit.
///
/// # Examples
///
/// ```
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(2).queue_capacity(8).build()?;
/// let permit = pool.reserve().await?;
/// assert_eq!(permit.spawn_blocking(|| 7).await?, 7);
/// # Ok(()) }
/// ```
#[must_use = "dropping a permit releases it"]
pub struct Permit<'a, E: Bounded> {
    executor: &'a E,
}

/// A [`Permit`] that owns a handle of its executor, so that it can be stored or sent to another task.
///
/// The `reserve_owned` method of an executor returns it. Dropping it releases the permit.
#[must_use = "dropping a permit releases it"]
pub struct OwnedPermit<E: Bounded> {
    executor: E,
    /// Cleared once a [`Permit`] stands for this one.
    held: bool,
}

/// Reserves permits by polling, which is what `poll_ready` of a `tower::Service` needs.
///
/// # Examples
///
/// ```
/// use std::future::poll_fn;
/// use throng::{BlockingPool, PollReserve};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(4).queue_capacity(16).build()?;
/// let mut service = PollReserve::new(pool);
/// // In a service, `poll_ready` is the first line and `call` is the second.
/// poll_fn(|cx| service.poll_reserve(cx)).await?;
/// assert_eq!(service.take_permit().spawn_blocking(|| 7).await?, 7);
/// # Ok(()) }
/// ```
pub struct PollReserve<E: Bounded> {
    executor: E,
    state: State<E>,
}

enum State<E: Bounded> {
    Idle,
    Waiting(Waiting<E>),
    Reserved(OwnedPermit<E>),
}

/// It is only polled through `&mut`, so it need not be `Sync`.
type Waiting<E> = Unshared<Pin<Box<dyn Future<Output = Result<OwnedPermit<E>, Closed>> + Send>>>;

// ===== impl Permit =====

impl<'a, E: Bounded> Permit<'a, E> {
    /// Waits for a permit of `executor`.
    pub(crate) async fn reserve(executor: &'a E) -> Result<Self, Closed> {
        executor.acquire_permit().await?;
        Ok(Self { executor })
    }

    /// Keeps the permit for the task that the caller submits now.
    pub(crate) fn consume(self) -> &'a E {
        ManuallyDrop::new(self).executor
    }
}

impl<E: Bounded> Drop for Permit<'_, E> {
    fn drop(&mut self) {
        self.executor.release_permit();
    }
}

impl<E: Bounded> fmt::Debug for Permit<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

// ===== impl OwnedPermit =====

impl<E: Bounded> OwnedPermit<E> {
    /// Waits for a permit of `executor`.
    pub(crate) async fn reserve(executor: E) -> Result<Self, Closed> {
        executor.acquire_permit().await?;
        Ok(Self {
            executor,
            held: true,
        })
    }

    /// Submits a task through the methods of [`Permit`].
    pub(crate) fn submit_with<R>(mut self, submit: impl FnOnce(Permit<'_, E>) -> R) -> R {
        self.held = false;
        submit(Permit {
            executor: &self.executor,
        })
    }

    /// The executor that has granted the permit.
    pub fn executor(&self) -> &E {
        &self.executor
    }
}

impl<E: Bounded> Drop for OwnedPermit<E> {
    fn drop(&mut self) {
        if self.held {
            self.executor.release_permit();
        }
    }
}

impl<E: Bounded> fmt::Debug for OwnedPermit<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit").finish_non_exhaustive()
    }
}

// ===== impl PollReserve =====

impl<E: Bounded + Send + Sync + 'static> PollReserve<E> {
    /// Holds no permit yet.
    pub fn new(executor: E) -> Self {
        Self {
            executor,
            state: State::Idle,
        }
    }

    /// Waits for a permit and holds it until [`take_permit`](Self::take_permit). Returns ready at once while it
    /// holds one.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the executor is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// Between two polls, the place in the wait queue or the permit is kept. [`release`](Self::release) gives it up.
    pub fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let mut waiting = match mem::replace(&mut self.state, State::Idle) {
            State::Reserved(permit) => {
                self.state = State::Reserved(permit);
                return Poll::Ready(Ok(()));
            }
            State::Waiting(waiting) => waiting,
            State::Idle => self.wait(),
        };
        // Not stored while it is polled: if a waker panics, the next call starts again.
        match waiting.get_mut().as_mut().poll(cx) {
            Poll::Ready(permit) => {
                self.state = State::Reserved(permit?);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.state = State::Waiting(waiting);
                Poll::Pending
            }
        }
    }

    /// Takes the permit that [`poll_reserve`](Self::poll_reserve) has reserved.
    ///
    /// # Panics
    ///
    /// Panics if no permit is held, because `poll_reserve` has not returned `Ready(Ok(()))` since the last call.
    #[track_caller]
    pub fn take_permit(&mut self) -> OwnedPermit<E> {
        match mem::replace(&mut self.state, State::Idle) {
            State::Reserved(permit) => permit,
            State::Idle | State::Waiting(_) => {
                panic!("no permit is reserved: `poll_reserve` must be ready first")
            }
        }
    }

    /// Releases the permit, or stops waiting for one.
    pub fn release(&mut self) {
        self.state = State::Idle;
    }

    /// The executor.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    fn wait(&self) -> Waiting<E> {
        Unshared::new(Box::pin(OwnedPermit::reserve(self.executor.clone())))
    }
}

// A panic cannot leave it half changed: `poll_reserve` stores the state only after the poll.
impl<E: Bounded> UnwindSafe for PollReserve<E> {}
impl<E: Bounded> RefUnwindSafe for PollReserve<E> {}

/// The clone holds no permit.
impl<E: Bounded + Send + Sync + 'static> Clone for PollReserve<E> {
    fn clone(&self) -> Self {
        Self::new(self.executor.clone())
    }
}

impl<E: Bounded> fmt::Debug for PollReserve<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollReserve")
            .field("reserved", &matches!(self.state, State::Reserved(_)))
            .finish_non_exhaustive()
    }
}
