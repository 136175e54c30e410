//! [`AbortOnDropHandle`]: a handle that aborts its task when it is dropped.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::JoinError;
use super::handle::JoinHandle;
use crate::drops::drop_nested;

impl<T> JoinHandle<T> {
    /// Returns a handle that [aborts](Self::abort) the task when it is dropped, instead of detaching it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::BlockingPool;
    /// use tokio::time::timeout;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(1).build()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// // Keep the only thread busy, so that the next task is queued.
    /// let busy = pool.spawn_blocking(move || released.recv());
    /// let query = pool.spawn_blocking(|| "rows").abort_on_drop();
    /// let abort = query.abort_handle();
    ///
    /// // The timeout drops the handle, so the task leaves the queue.
    /// assert!(timeout(Duration::from_millis(1), query).await.is_err());
    /// assert!(abort.is_finished());
    /// # drop(release);
    /// # assert!(busy.await?.is_err());
    /// # Ok(()) }
    /// ```
    pub fn abort_on_drop(self) -> AbortOnDropHandle<T> {
        AbortOnDropHandle(self)
    }
}

/// A handle that aborts its task when it is dropped: see [`JoinHandle::abort_on_drop`].
///
/// It is the counterpart of `AbortOnDropHandle` in `tokio_util::task`, with the same contract: it is the future of
/// the task's output, and dropping it [aborts](JoinHandle::abort) the task. A task that has not started never does,
/// and its captures are dropped at once. A closure that is running is not interrupted, and its output is dropped.
///
/// So the task ends with whatever drops the future: a timeout, a branch of `select!` that lost, or a
/// `CancellationToken` of `tokio_util`, whose `run_until_cancelled` takes the handle. To end a closure that is
/// already running, let it check a clone of the token from time to time.
///
/// Tasks may hold each other's handles in their captures and outputs. Dropping the first handle of such a chain
/// aborts all its tasks before the drop returns. The stack depth is bounded, however long the chain is: deep in the
/// chain, a task is aborted some time after the drop of its handle, instead of at once.
///
/// # Cancel safety
///
/// Dropping the handle aborts the task. To keep the task in a `select!`, poll the handle by `&mut`.
///
/// # Examples
///
/// ```
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let shutdown = CancellationToken::new();
/// let query = throng::spawn_blocking(|| "rows").abort_on_drop();
/// match shutdown.run_until_cancelled(query).await {
///     Some(rows) => assert_eq!(rows?, "rows"),
///     None => println!("aborted"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "dropping the handle aborts its task at once"]
pub struct AbortOnDropHandle<T>(JoinHandle<T>);

impl<T> AbortOnDropHandle<T> {
    /// Returns a handle that detaches the task when it is dropped, instead of aborting it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let query = throng::spawn_blocking(|| "rows").abort_on_drop();
    /// // From here on, dropping the handle lets the task run on.
    /// let query = query.detach();
    /// assert_eq!(query.await?, "rows");
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) -> JoinHandle<T> {
        // There is nothing left to abort.
        self.0.take()
    }
}

impl<T> Drop for AbortOnDropHandle<T> {
    fn drop(&mut self) {
        let handle = self.0.take();
        let abort = move || {
            handle.abort();
            drop(handle);
        };
        // SAFETY: a handle owns what it refers to, and the output of a task is `'static`, whatever lifetime `T` has
        // by now.
        unsafe { drop_nested(abort) };
    }
}

impl<T> Future for AbortOnDropHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// So that the methods that borrow a [`JoinHandle`], such as [`abort`](JoinHandle::abort), can be called.
impl<T> Deref for AbortOnDropHandle<T> {
    type Target = JoinHandle<T>;

    fn deref(&self) -> &JoinHandle<T> {
        &self.0
    }
}

impl<T> AsRef<JoinHandle<T>> for AbortOnDropHandle<T> {
    fn as_ref(&self) -> &JoinHandle<T> {
        &self.0
    }
}

impl<T> fmt::Debug for AbortOnDropHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortOnDropHandle")
            .field("id", &self.id())
            .field("finished", &self.is_finished())
            .finish()
    }
}
