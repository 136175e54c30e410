//! [`Work`]: a task on its way to the executor that runs it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::block_on::block_on;
use super::run_context::RunContext;
use crate::task::{Fault, Polled, Ran, Stepped, Task};

/// A task on its way to the executor that runs it: see [`Spawn`](crate::Spawn).
///
/// It is a future, for runtimes, and it can be [run](Self::run) to its end on a thread. Dropping it cancels the
/// task.
///
/// # Examples
///
/// A custom overflow policy gets the task that a full pool does not accept:
///
/// ```
/// use std::sync::Arc;
///
/// use throng::blocking::Overflow;
/// use throng::BlockingPool;
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = BlockingPool::builder()
///     .max_threads(1)
///     .queue_capacity(0)
///     .overflow(Overflow::Custom(Arc::new(|work| drop(std::thread::spawn(|| work.run())))))
///     .build()?;
/// let tasks = [1, 2, 3].map(|n| pool.spawn_blocking(move || n));
/// let mut sum = 0;
/// for task in tasks {
///     sum += task.await?;
/// }
/// assert_eq!(sum, 6);
/// # Ok(()) }
/// ```
#[must_use = "dropping the work cancels it"]
pub struct Work {
    /// `None` once the task has ended.
    task: Option<Task<RunContext>>,
    /// The task is claimed, so only this value may access its job.
    started: bool,
}

impl Work {
    pub(crate) fn new(task: Task<RunContext>) -> Self {
        Self {
            task: Some(task),
            started: false,
        }
    }

    /// A task that may have been suspended, and resumed since.
    pub(crate) fn queued(task: Task<RunContext>) -> Self {
        Self {
            started: task.is_resumed(),
            task: Some(task),
        }
    }

    /// A future without a handle.
    pub(crate) fn future(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(Task::detached(Polled(future)))
    }

    /// Returns `true` if the task may block its thread.
    pub(crate) fn is_blocking(&self) -> bool {
        self.task.as_ref().is_some_and(Task::is_blocking)
    }

    /// Runs the task to its end on this thread, which it may block.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use throng::BlockingPool;
    /// use throng::blocking::Overflow;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Run what does not fit on the submitting thread, even inside a runtime.
    /// let pool = BlockingPool::builder()
    ///     .max_threads(1)
    ///     .queue_capacity(0)
    ///     .overflow(Overflow::Custom(Arc::new(|work| work.run())))
    ///     .build()?;
    /// let squares = [1, 2, 3].map(|n| pool.spawn_blocking(move || n * n));
    /// for (square, n) in squares.into_iter().zip(1..) {
    ///     assert_eq!(square.await?, n * n);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn run(self) {
        self.run_in(&mut RunContext::default());
    }

    /// Runs the task to its end in a context. Returns how it ended.
    pub(crate) fn run_in(mut self, context: &mut RunContext) -> Ran {
        if self.is_blocking() {
            return self
                .task
                .take()
                .map_or(Ran::Cancelled, |task| task.run(context));
        }
        block_on(|cx| self.advance(context, cx))
    }

    /// Returns the task if it has not been polled yet.
    pub(crate) fn into_task(mut self) -> Result<Task<RunContext>, Self> {
        match self.task.take() {
            Some(task) if !self.started => Ok(task),
            task => {
                self.task = task;
                Err(self)
            }
        }
    }

    /// Polls a future for the first time, on this thread, with a waker that does nothing. Returns it if it is pending,
    /// for an executor to run.
    ///
    /// No wake-up is lost: every executor polls a new task at once, and from then on the future has the waker of that
    /// poll.
    pub(crate) fn poll_once(mut self) -> Option<Self> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.advance(&mut RunContext::default(), &mut cx) {
            Poll::Ready(_) => None,
            Poll::Pending => Some(self),
        }
    }

    /// Polls a future on this thread. If it is pending after its first poll and can be suspended, suspends it.
    /// Otherwise returns a pending future, for an executor to run.
    pub(crate) fn poll_or_suspend(mut self) -> Stepped<Self> {
        match self.task.take() {
            Some(task) if !self.started && task.can_suspend() => {
                if !task.claim() {
                    return Stepped::Ended;
                }
                // SAFETY: the task was claimed above.
                let stepped = unsafe { task.poll_claimed_or_suspend(&mut RunContext::default()) };
                match stepped {
                    Stepped::Ended => Stepped::Ended,
                    Stepped::Suspended => Stepped::Suspended,
                    Stepped::Pending(task) => Stepped::Pending(Self {
                        task: Some(task),
                        started: true,
                    }),
                }
            }
            task => {
                self.task = task;
                self.poll_once().map_or(Stepped::Ended, Stepped::Pending)
            }
        }
    }

    /// Ends a task that no executor has accepted. Its handle reports the reason.
    pub(crate) fn reject(mut self, reason: &'static str) {
        let Some(task) = self.task.take() else { return };
        let fault = Fault::rejected(io::Error::other(reason));
        if self.started {
            // SAFETY: the task was claimed at the first poll, and is not used again.
            unsafe { task.fail_claimed(fault) };
        } else {
            task.fail(fault);
        }
    }

    fn advance(&mut self, context: &mut RunContext, cx: &mut Context<'_>) -> Poll<Ran> {
        let Some(task) = self.task.take() else {
            return Poll::Ready(Ran::Cancelled);
        };
        if !self.started && !task.claim() {
            return Poll::Ready(Ran::Cancelled);
        }
        self.started = true;
        // SAFETY: the task was claimed above, now or at an earlier poll.
        match unsafe { task.poll_claimed_or_return(context, cx) } {
            Ok(ran) => Poll::Ready(ran),
            Err(task) => {
                self.task = Some(task);
                Poll::Pending
            }
        }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.advance(&mut RunContext::default(), cx).map(drop)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        if self.started {
            // SAFETY: the task was claimed at the first poll, and is not used again.
            unsafe { task.fail_claimed(Fault::cancelled()) };
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("started", &self.started)
            .field("ended", &self.task.is_none())
            .finish()
    }
}
