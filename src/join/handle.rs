//! [`JoinHandle`]: awaits a task.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::abort_handle::AbortHandle;
use super::block_on::block_on;
use super::error::JoinError;
use super::id::Id;
use super::pool_thread::{Origin, Wait, prepare_to_join};
use super::small_value::SmallValue;
use super::spawn_error::TrySpawnError;
use crate::task::{Fault, JoinRef, Outcome};

/// A handle to a task, and the future of its output.
///
/// It keeps the contract of [`tokio::task::JoinHandle`]: the task runs whether or not the handle is polled,
/// dropping the handle detaches the task, and a panic of the task is an error of the handle. In addition, a thread
/// that is not async can [wait](Self::blocking_join) for it.
///
/// A handle may be ready from the start, if its job ran inline or its task was not accepted. Polling such a handle
/// also charges the [cooperative budget](tokio::task::coop) of the polling task, so a loop over ready handles still
/// yields to other tasks. A ready output of at most two words is stored in the handle, so that it costs no
/// allocation. The size of the handle does not depend on `T`, which may contain another handle of its own type.
///
/// # Chains of handles
///
/// Dropping the handle of a task that has ended drops the task's output, which may hold the handle of another
/// task, and so on. Such drops are nested, and a long chain of them would overflow the stack. So a drop that is
/// nested more than 16 deep is deferred: the `drop` of that handle returns first, and the output is dropped later
/// on the same thread, before the outermost drop of the chain returns. The order of deferred drops is unspecified.
///
/// # Cancel safety
///
/// The handle can be polled in `select!` and dropped at any time. The task continues to run, and only its output
/// is dropped.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let sum = throng::spawn_blocking(|| (1..=10).sum::<u32>()).await?;
/// assert_eq!(sum, 55);
/// # Ok(()) }
/// ```
pub struct JoinHandle<T> {
    id: Id,
    // `JoinHandle` has no `Drop`: the task is detached by `JoinRef`'s `Drop` (`task/join_ref.rs`).
    state: State<T>,
}

/// Its layout does not depend on `T`, so that a `T` may contain a handle of itself.
enum State<T> {
    /// The output existed when the handle was created.
    Ready(SmallValue<T>),
    /// The task was not accepted, or its job panicked before the handle was created.
    Failed(Fault),
    /// The origin, if there is one, determines how a thread must prepare to wait.
    Waiting(JoinRef<T>, Option<Origin>),
    /// The outcome was returned by an earlier poll.
    Taken,
}

impl<T: Send + 'static> JoinHandle<T> {
    /// A handle whose outcome exists already. A large output goes into a cell.
    #[inline]
    pub(crate) fn ready(outcome: Outcome<T>) -> Self {
        let state = match outcome.map(SmallValue::new) {
            Ok(Ok(small)) => State::Ready(small),
            Ok(Err(large)) => State::Waiting(JoinRef::completed(large), None),
            Err(fault) => State::Failed(fault),
        };
        Self::new(Id::next(), state)
    }
}

impl<T> JoinHandle<T> {
    #[inline]
    fn new(id: Id, state: State<T>) -> Self {
        Self { id, state }
    }

    #[inline]
    pub(crate) fn failed(fault: Fault) -> Self {
        Self::new(Id::next(), State::Failed(fault))
    }

    /// The handle of a task that was not accepted.
    pub(crate) fn refused<F>(error: TrySpawnError<F>) -> Self {
        Self::failed(error.drop_task())
    }

    #[inline]
    pub(crate) fn waiting(join_ref: JoinRef<T>) -> Self {
        Self::new(Id::next(), State::Waiting(join_ref, None))
    }

    /// The handle of a task that some threads must [prepare](super::pool_thread) to wait for.
    #[inline]
    pub(crate) fn with_origin(id: Id, join_ref: JoinRef<T>, origin: Origin) -> Self {
        Self::new(id, State::Waiting(join_ref, Some(origin)))
    }

    /// Takes the task out. What is left keeps the id.
    pub(super) fn take(&mut self) -> Self {
        let state = mem::replace(&mut self.state, State::Taken);
        Self::new(self.id, state)
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Aborts the task if it has not started. Its closure and its captures are dropped at once, on this thread, and
    /// the handle reports [`is_cancelled`](JoinError::is_cancelled). A closure that is running is not interrupted. A future that
    /// has started is dropped at its next await point.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::BlockingPool;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = BlockingPool::builder().max_threads(1).build()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// // Keep the only thread busy, so that the next task is queued.
    /// let busy = pool.spawn_blocking(move || released.recv());
    /// let queued = pool.spawn_blocking(|| unreachable!("it is aborted first"));
    /// queued.abort();
    /// assert!(queued.await.unwrap_err().is_cancelled());
    /// # drop(release);
    /// # assert!(busy.await?.is_err());
    /// # Ok(()) }
    /// ```
    pub fn abort(&self) {
        if let State::Waiting(join_ref, _) = &self.state {
            join_ref.abort();
        }
    }

    /// Returns a handle that can only abort the task, and that can outlive this one.
    ///
    /// # Panics
    ///
    /// Panics if the task already has 16 million handles.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let task = throng::spawn_blocking(|| 7);
    /// let abort = task.abort_handle();
    /// assert_eq!(abort.id(), task.id());
    /// assert_eq!(task.await?, 7);
    /// assert!(abort.is_finished());
    /// # Ok(()) }
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        let cell = match &self.state {
            State::Waiting(join_ref, _) => Some(join_ref.abort_ref()),
            State::Ready(_) | State::Failed(_) | State::Taken => None,
        };
        AbortHandle::new(self.id, cell)
    }

    /// Returns `true` if the task has ended, whether with an output or with an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let task = throng::spawn_blocking(|| 7);
    /// while !task.is_finished() {
    ///     tokio::task::yield_now().await;
    /// }
    /// assert_eq!(task.await?, 7);
    /// # Ok(()) }
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.state {
            State::Waiting(join_ref, _) => join_ref.is_complete(),
            State::Ready(_) | State::Failed(_) | State::Taken => true,
        }
    }

    /// Blocks this thread until the task has ended, and returns its output.
    ///
    /// Call this from threads that are not async. On a thread of an async runtime, it blocks all tasks of that
    /// thread, and never returns if the task needs one of them: `.await` the handle there.
    ///
    /// On a thread of the [`BlockingPool`](crate::BlockingPool) that the task belongs to, it runs the task itself
    /// if no other thread has started it.
    ///
    /// # Errors
    ///
    /// The same errors as when the handle is awaited. [`is_would_deadlock`](JoinError::is_would_deadlock) tells a
    /// wait that would never end.
    ///
    /// # Panics
    ///
    /// Panics if the handle has already returned its output to a poll.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::BlockingPool::builder().max_threads(2).build()?;
    /// let halves = [1..=50, 51..=100].map(|half| pool.spawn_blocking(move || half.sum::<u32>()));
    /// let mut sum = 0;
    /// for half in halves {
    ///     sum += half.blocking_join()?;
    /// }
    /// assert_eq!(sum, 5050);
    /// # Ok(()) }
    /// ```
    pub fn blocking_join(mut self) -> Result<T, JoinError> {
        // Not through `Future::poll`, which charges a budget that only async tasks have.
        block_on(|cx| self.poll_outcome(cx, Wait::Block))
    }

    /// Returns the reference to the task, to await it without this handle. The error is the outcome if the handle was
    /// ready from the start, and `None` if an earlier poll has returned it.
    pub(crate) fn into_join_ref(self) -> Result<JoinRef<T>, Option<Outcome<T>>> {
        match self.state {
            State::Waiting(join_ref, _) => Ok(join_ref),
            State::Ready(output) => Err(Some(Ok(output.into_inner()))),
            State::Failed(fault) => Err(Some(Err(fault))),
            State::Taken => Err(None),
        }
    }

    #[inline]
    fn poll_outcome(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Result<T, JoinError>> {
        let outcome = match self.state {
            State::Waiting(..) => ready!(self.poll_waiting(cx, wait)),
            State::Ready(_) | State::Failed(_) | State::Taken => self.take_outcome(),
        };
        Poll::Ready(outcome.map_err(|fault| JoinError::new(self.id, fault)))
    }

    /// Not inlined, to keep the code small where handles are ready from the start.
    #[inline(never)]
    fn poll_waiting(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Outcome<T>> {
        if let State::Waiting(join_ref, origin) = &mut self.state {
            if let Err(fault) = prepare_to_join(*origin, join_ref, wait) {
                self.state = State::Taken;
                return Poll::Ready(Err(fault));
            }
            if origin.is_some_and(Origin::ends_soon) {
                join_ref.spin_briefly();
            }
            ready!(join_ref.poll_complete(cx));
        }
        Poll::Ready(self.take_outcome())
    }

    /// Returns the outcome of a task that has ended.
    #[inline]
    fn take_outcome(&mut self) -> Outcome<T> {
        match mem::replace(&mut self.state, State::Taken) {
            State::Ready(output) => Ok(output.into_inner()),
            State::Failed(fault) => Err(fault),
            State::Waiting(join_ref, _) => join_ref.into_outcome(),
            State::Taken => panic!("`JoinHandle` polled after it was ready"),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let outcome = ready!(self.poll_outcome(cx, Wait::Poll));
        coop.made_progress();
        Poll::Ready(outcome)
    }
}

// The output is moved, never pinned.
impl<T> Unpin for JoinHandle<T> {}

// As Tokio's: a panic cannot leave the handle half changed, and the state of the task is not the handle's.
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id)
            .field("finished", &self.is_finished())
            .finish()
    }
}
