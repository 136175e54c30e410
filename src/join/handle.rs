//! The handle of a task.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::pool_thread::{Origin, Wait, help};
use super::spawn::Parker;
use super::{AbortHandle, AbortOnDropHandle, Id, JoinError, TrySpawnError};
use crate::sync::Unshared;
use crate::task::{Fault, JoinRef, Outcome};

/// A handle to a task, which is also the future of its output.
///
/// It keeps the contract of [`tokio::task::JoinHandle`]: the task runs whether or not the handle is
/// polled, dropping the handle detaches the task, and a panic of the task is an error here. In
/// addition, it can be [waited for](Self::blocking_join) by a thread that is not async.
///
/// A handle may be complete at birth (a job that ran inline, a task that was refused). Then it costs
/// no allocation, and is ready at its first poll, unless the polling task has used up its
/// [cooperative budget](tokio::task::coop): polling charges the budget also when it is ready, so that
/// a loop over ready handles still yields to other tasks.
///
/// # Chains of handles
///
/// Dropping the handle of a task that has ended drops the task's output, which may hold the handle of
/// another task, and so on. Such drops are nested, and a long chain of them would overflow the stack. So a
/// drop that is nested more than 16 deep is deferred: the `drop` of that handle returns first, and its output
/// is dropped later on the same thread, before the outermost drop of the chain returns. The order of deferred
/// drops is unspecified, and a panic in one of them is not propagated.
///
/// # Cancel safety
///
/// The handle may be polled in `select!`, and dropped, at any time. Nothing is lost: the task goes
/// on, and only its output is dropped.
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
    inner: Inner<T>,
}

enum Inner<T> {
    Ready(Unshared<Outcome<T>>),
    /// With those whose threads or jobs must not wait for the task while nobody runs it.
    Waiting(JoinRef<T>, Option<Origin>),
    /// The outcome has been taken.
    Taken,
}

/// The output of a task owns all that it refers to (`'static`), since its handle may defer the drop.
impl<T: 'static> JoinHandle<T> {
    #[inline]
    pub(crate) fn ready(outcome: Outcome<T>) -> Self {
        Self {
            id: Id::next(),
            inner: Inner::Ready(Unshared::new(outcome)),
        }
    }

    #[inline]
    pub(crate) fn failed(fault: Fault) -> Self {
        Self::ready(Err(fault))
    }

    /// The handle of a task that was not accepted.
    pub(crate) fn refused<F>(error: TrySpawnError<F>) -> Self {
        Self::failed(error.drop_task())
    }
}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn waiting(join_ref: JoinRef<T>) -> Self {
        Self {
            id: Id::next(),
            inner: Inner::Waiting(join_ref, None),
        }
    }

    /// A handle of a task for which not everybody may [wait](super::pool_thread).
    #[inline]
    pub(crate) fn hosted(id: Id, join_ref: JoinRef<T>, origin: Origin) -> Self {
        Self {
            id,
            inner: Inner::Waiting(join_ref, Some(origin)),
        }
    }

    /// The handle of a task whose outcome has been taken.
    pub(super) fn taken(id: Id) -> Self {
        Self {
            id,
            inner: Inner::Taken,
        }
    }

    /// The task's name.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Ends the task, if it has not started: its closure, and what it captured, are dropped at once,
    /// on this thread. A closure that is running runs to its end.
    ///
    /// The handle then says [`is_cancelled`](JoinError::is_cancelled), unless the task came first.
    pub fn abort(&self) {
        if let Inner::Waiting(join_ref, _) = &self.inner {
            join_ref.abort();
        }
    }

    /// A handle that can only abort, and that can be cloned and kept after this one is gone.
    ///
    /// # Panics
    ///
    /// Panics if the task already has 16 million handles.
    pub fn abort_handle(&self) -> AbortHandle {
        let cell = match &self.inner {
            Inner::Waiting(join_ref, _) => Some(join_ref.abort_ref()),
            Inner::Ready(_) | Inner::Taken => None,
        };
        AbortHandle::new(self.id, cell)
    }

    /// A handle that [aborts](Self::abort) the task when it is dropped, instead of detaching it: for
    /// tasks that nobody needs any more when nobody waits.
    pub fn cancel_on_drop(self) -> AbortOnDropHandle<T> {
        AbortOnDropHandle::new(self)
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        match &self.inner {
            Inner::Waiting(join_ref, _) => join_ref.is_complete(),
            Inner::Ready(_) | Inner::Taken => true,
        }
    }

    /// Blocks this thread until the task has ended.
    ///
    /// For threads that are not async. On a thread that polls tasks it holds up all of them, and may
    /// wait for ever for one that only this thread could run: `.await` the handle there.
    ///
    /// On a thread of the [`BlockingPool`](crate::BlockingPool) that has the task, it runs the task itself
    /// if nobody has begun it.
    ///
    /// # Errors
    ///
    /// As awaiting the handle: also [`is_would_deadlock`](JoinError::is_would_deadlock), where the wait would
    /// never end.
    ///
    /// # Panics
    ///
    /// Panics if the handle has been polled to its end before.
    pub fn blocking_join(mut self) -> Result<T, JoinError> {
        let parker = Parker::new();
        let mut cx = Context::from_waker(parker.waker());
        loop {
            // Not through `Future::poll`: a thread has no budget to tick.
            match self.poll_outcome(&mut cx, Wait::Blocked) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => parker.park(),
            }
        }
    }

    /// Takes the handle apart, to await the task without it. `Err` if the task was complete at birth; `None` if its
    /// outcome has been taken.
    pub(crate) fn into_join_ref(self) -> Result<JoinRef<T>, Option<Outcome<T>>> {
        match self.inner {
            Inner::Waiting(join_ref, _) => Ok(join_ref),
            Inner::Ready(outcome) => Err(Some(outcome.into_inner())),
            Inner::Taken => Err(None),
        }
    }

    #[inline]
    fn poll_outcome(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Result<T, JoinError>> {
        let outcome = match self.inner {
            Inner::Waiting(..) => ready!(self.poll_watch(cx, wait)),
            Inner::Ready(_) | Inner::Taken => self.take(),
        };
        Poll::Ready(outcome.map_err(|fault| JoinError::new(self.id, fault)))
    }

    /// Not inlined: what polls a handle that was ready at birth has no use for it.
    #[inline(never)]
    fn poll_watch(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Outcome<T>> {
        if let Inner::Waiting(join_ref, origin) = &mut self.inner {
            if let Err(fault) = help(*origin, join_ref, wait) {
                self.inner = Inner::Taken;
                return Poll::Ready(Err(fault));
            }
            if origin.is_some_and(Origin::is_soon) {
                join_ref.linger();
            }
            ready!(join_ref.poll_complete(cx));
        }
        Poll::Ready(self.take())
    }

    /// The outcome of a task that has ended.
    #[inline]
    fn take(&mut self) -> Outcome<T> {
        match mem::replace(&mut self.inner, Inner::Taken) {
            Inner::Ready(outcome) => outcome.into_inner(),
            Inner::Waiting(join_ref, _) => join_ref.into_outcome(),
            Inner::Taken => panic!("`JoinHandle` polled after it was ready"),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let outcome = ready!(self.poll_outcome(cx, Wait::Polling));
        coop.made_progress();
        Poll::Ready(outcome)
    }
}

// The outcome is moved, never pinned.
impl<T> Unpin for JoinHandle<T> {}

// As Tokio's: a panic cannot leave the handle half changed, and the task's state is the task's.
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
