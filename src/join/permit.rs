//! Permits: the right to submit one task to an executor that has a bound.
//!
//! An executor implements [`Bounded`]; [`Permit`] and [`PollReserve`] are written once, here.
//! The methods of a permit that submit a task are in the module of each executor.

use std::borrow::Cow;
use std::fmt;
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

/// The right to submit one task to the executor `E`.
///
/// The `reserve` method of an executor returns it. Dropping it releases the permit. A permit borrows its executor;
/// [`into_owned`](Self::into_owned) returns one that can be stored or sent to another task, a `Permit<'static, E>`.
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
    /// `None` once a task has used the permit.
    executor: Option<Cow<'a, E>>,
}

/// Reserves permits by polling, which is what `poll_ready` of a `tower::Service` needs.
///
/// Each poll that is ready returns another permit. `poll_ready` may be called again before `call`, so it must not poll
/// while it holds a permit: with a second one, the service would occupy two tasks' share of the executor, and where
/// there is only one permit, it would wait for itself.
///
/// # Examples
///
/// ```
/// use std::future::poll_fn;
/// use std::task::{Context, Poll, ready};
/// use throng::{BlockingPool, Closed, JoinHandle, Permit, PollReserve};
///
/// struct Squares {
///     reservation: PollReserve<BlockingPool>,
///     permit: Option<Permit<'static, BlockingPool>>,
/// }
///
/// impl Squares {
///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
///         if self.permit.is_none() {
///             self.permit = Some(ready!(self.reservation.poll_reserve(cx))?);
///         }
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, n: u64) -> JoinHandle<u64> {
///         let permit = self.permit.take().expect("`poll_ready` was ready");
///         permit.spawn_blocking(move || n * n)
///     }
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(1).queue_capacity(0).build()?;
/// let mut squares = Squares { reservation: PollReserve::new(pool), permit: None };
/// for _ in 0..2 {
///     // The pool has a single permit: the second call finds it held.
///     poll_fn(|cx| squares.poll_ready(cx)).await?;
/// }
/// assert_eq!(squares.call(7).await?, 49);
/// # Ok(()) }
/// ```
pub struct PollReserve<E: Bounded + 'static> {
    executor: E,
    /// `Some` while it waits.
    waiting: Option<AcquireFuture<E>>,
}

/// It is only polled through `&mut`, so it need not be `Sync`.
type AcquireFuture<E> =
    Unshared<Pin<Box<dyn Future<Output = Result<Permit<'static, E>, Closed>> + Send>>>;

// ===== impl Permit =====

impl<'a, E: Bounded> Permit<'a, E> {
    /// Waits for a permit of `executor`.
    pub(crate) async fn reserve(executor: &'a E) -> Result<Self, Closed> {
        executor.acquire_permit().await?;
        Ok(Self {
            executor: Some(Cow::Borrowed(executor)),
        })
    }

    /// Keeps the permit for the task that the caller submits now.
    pub(crate) fn consume(mut self) -> Cow<'a, E> {
        self.executor.take().expect("a permit is used once")
    }

    /// Returns a permit that owns a clone of its executor, so that it can be stored or sent to another task.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let total = SerialExecutor::builder().queue_capacity(10).build(0)?;
    /// let permit = total.reserve().await?.into_owned();
    /// let task = tokio::spawn(async move { permit.submit(|total| *total += 1).await });
    /// task.await??;
    /// # Ok(()) }
    /// ```
    pub fn into_owned(self) -> Permit<'static, E>
    where
        E: 'static,
    {
        Permit {
            executor: Some(Cow::Owned(self.consume().into_owned())),
        }
    }
}

impl<E: Bounded> Drop for Permit<'_, E> {
    fn drop(&mut self) {
        if let Some(executor) = &self.executor {
            executor.release_permit();
        }
    }
}

impl<E: Bounded> fmt::Debug for Permit<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

// ===== impl PollReserve =====

impl<E: Bounded + Send + Sync + 'static> PollReserve<E> {
    /// Returns a value that does not wait yet.
    ///
    /// # Examples
    ///
    /// See [`PollReserve`].
    pub fn new(executor: E) -> Self {
        Self {
            executor,
            waiting: None,
        }
    }

    /// Polls for a permit, which owns a clone of the executor. Each poll that is ready returns another permit.
    ///
    /// # Errors
    ///
    /// [`Closed`] if the executor is closed, or is closed while this waits.
    ///
    /// # Cancel safety
    ///
    /// Between two polls, the position in the wait queue is kept. Dropping the `PollReserve` gives it up.
    ///
    /// # Examples
    ///
    /// See [`PollReserve`].
    pub fn poll_reserve(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit<'static, E>, Closed>> {
        // Not stored while it is polled: if a waker panics, the next call starts again.
        let mut waiting = self.waiting.take().unwrap_or_else(|| self.wait());
        let polled = waiting.get_mut().as_mut().poll(cx);
        if polled.is_pending() {
            self.waiting = Some(waiting);
        }
        polled
    }

    fn wait(&self) -> AcquireFuture<E> {
        let executor = self.executor.clone();
        Unshared::new(Box::pin(async move {
            executor.acquire_permit().await?;
            Ok(Permit {
                executor: Some(Cow::Owned(executor)),
            })
        }))
    }
}

// A panic cannot leave it half changed: `poll_reserve` stores the future only after the poll.
impl<E: Bounded + 'static> UnwindSafe for PollReserve<E> {}
impl<E: Bounded + 'static> RefUnwindSafe for PollReserve<E> {}

/// The clone does not wait.
impl<E: Bounded + Send + Sync + 'static> Clone for PollReserve<E> {
    fn clone(&self) -> Self {
        Self::new(self.executor.clone())
    }
}

impl<E: Bounded + 'static> fmt::Debug for PollReserve<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollReserve")
            .field("waiting", &self.waiting.is_some())
            .finish_non_exhaustive()
    }
}
