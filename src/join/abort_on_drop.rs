//! A handle that takes its task with it.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{AbortHandle, Id, JoinError, JoinHandle};
use crate::drops::drop_nested;

/// A handle that aborts its task when it is dropped: see [`JoinHandle::cancel_on_drop`].
///
/// The counterpart of `AbortOnDropHandle` in `tokio_util::task`, with the same contract: it is the
/// future of the task's output, and when it is dropped, the task is [aborted](JoinHandle::abort). A
/// task that has not started never does, and what it captured is dropped at once; a closure that is
/// running runs to its end, and its output is dropped.
///
/// Tasks may hold each other's handles in their captures and outputs. Dropping the first handle of such a
/// chain aborts all its tasks before the drop returns. Its stack depth is bounded, however long the chain is:
/// deep in the chain, a task is aborted some time after the drop of its handle, instead of at once.
///
/// So whatever drops the future ends the task, too: a time-out, the branch of a `select!` that lost,
/// or a `CancellationToken` of `tokio_util`, whose `run_until_cancelled` takes the handle. A closure
/// that should end early when it is running already gets a clone of the token, and looks at
/// `is_cancelled` now and then.
///
/// # Cancel safety
///
/// Dropping it aborts the task: that is what it is for. In `select!`, poll it by `&mut` to keep the
/// task.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc::channel;
///
/// use throng::BlockingPool;
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder().max_threads(1).build()?;
/// let (finish, finished) = channel::<()>();
/// // The only thread is busy, so that the next task has to wait.
/// let busy = pool.spawn_blocking(move || finished.recv());
/// let query = pool.spawn_blocking(|| "rows").cancel_on_drop();
/// let task = query.abort_handle();
///
/// let shutdown = CancellationToken::new();
/// let canceller = shutdown.clone();
/// tokio::spawn(async move { canceller.cancel() });
///
/// let rows = shutdown.run_until_cancelled(query).await;
/// assert!(rows.is_none());
/// // It left the queue, although nobody aborted it.
/// assert!(task.is_finished());
/// # drop(finish);
/// # assert!(busy.await?.is_err());
/// # Ok(()) }
/// ```
#[must_use = "dropping the handle aborts its task at once"]
pub struct AbortOnDropHandle<T>(JoinHandle<T>);

impl<T> AbortOnDropHandle<T> {
    /// A handle that aborts the task when it is dropped: the same as [`JoinHandle::cancel_on_drop`].
    pub fn new(handle: JoinHandle<T>) -> Self {
        Self(handle)
    }

    /// The task's name.
    pub fn id(&self) -> Id {
        self.0.id()
    }

    /// Ends the task, as [`JoinHandle::abort`] does.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// A handle that can only abort, and that can be cloned and kept after this one is gone.
    pub fn abort_handle(&self) -> AbortHandle {
        self.0.abort_handle()
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// The handle of a task that goes on when it is dropped.
    pub fn detach(mut self) -> JoinHandle<T> {
        // What is left has nothing to abort.
        let taken = JoinHandle::taken(self.id());
        mem::replace(&mut self.0, taken)
    }

    /// Blocks this thread until the task has ended.
    ///
    /// As [`JoinHandle::blocking_join`], which says on which threads.
    ///
    /// # Errors
    ///
    /// As awaiting the handle.
    ///
    /// # Panics
    ///
    /// Panics if the handle has been polled to its end before.
    pub fn blocking_join(self) -> Result<T, JoinError> {
        self.detach().blocking_join()
    }
}

impl<T> Drop for AbortOnDropHandle<T> {
    fn drop(&mut self) {
        let taken = JoinHandle::taken(self.id());
        let handle = mem::replace(&mut self.0, taken);
        let abort = move || {
            handle.abort();
            drop(handle);
        };
        // SAFETY: a handle owns what it refers to, and the output of a task is `'static`, whatever lifetime
        // `T` has by now.
        unsafe { drop_nested(abort) };
    }
}

impl<T> Future for AbortOnDropHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
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
