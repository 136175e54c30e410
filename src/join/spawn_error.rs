//! [`TrySpawnError`]: why a task was not accepted.

use std::error::Error;
use std::fmt;
use std::io;

use crate::sync::Unshared;
use crate::task::Fault;
use crate::unwind::contain;

/// A task was not accepted. The error returns what was submitted.
///
/// Besides the reasons that have a method, a state may be poisoned, or the system may have refused a thread. The
/// message names the reason, and the [`source`](Error::source) is the error of the system.
///
/// `F` is the closure or the future, often with a tag; for `reserve`, where there is none, it is `()`. It can only
/// be taken [out](Self::into_inner), not borrowed. So the error is [`Sync`] even if `F` is not, and [`Send`] if
/// `F` is: the operator `?` converts it into a `Box<dyn Error + Send + Sync>`, or into an `anyhow::Error`, whatever
/// the closure captures.
///
/// # Examples
///
/// Shed load if the pool is full, and report any other reason:
///
/// ```
/// use throng::BlockingPool;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let pool = BlockingPool::builder().max_threads(2).build()?;
/// match pool.try_spawn_blocking(|| 6 * 7) {
///     Ok(task) => assert_eq!(task.blocking_join()?, 42),
///     Err(error) if error.is_full() => println!("busy, try again later"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
pub struct TrySpawnError<F> {
    task: Unshared<F>,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Full,
    Busy,
    Closed,
    NoThread(io::Error),
    Poisoned,
}

impl<F> TrySpawnError<F> {
    fn new(task: F, reason: Reason) -> Self {
        Self {
            task: Unshared::new(task),
            reason,
        }
    }

    pub(crate) fn full(task: F) -> Self {
        Self::new(task, Reason::Full)
    }

    pub(crate) fn busy(task: F) -> Self {
        Self::new(task, Reason::Busy)
    }

    pub(crate) fn closed(task: F) -> Self {
        Self::new(task, Reason::Closed)
    }

    pub(crate) fn no_thread(task: F, why: io::Error) -> Self {
        Self::new(task, Reason::NoThread(why))
    }

    pub(crate) fn poisoned(task: F) -> Self {
        Self::new(task, Reason::Poisoned)
    }

    /// Returns what was submitted.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = throng::BlockingPool::new();
    /// pool.close();
    /// let refused = pool.try_spawn_blocking(|| 7).unwrap_err();
    /// assert!(refused.is_closed() && !refused.is_full());
    /// // The closure can still run elsewhere.
    /// let closure = refused.into_inner();
    /// assert_eq!(closure(), 7);
    /// ```
    pub fn into_inner(self) -> F {
        self.task.into_inner()
    }

    /// Returns `true` if there was no room: a queue or another bound was full. Submit again later, wait with `reserve`,
    /// or shed load.
    ///
    /// For [`SerialExecutor::try_run`](crate::SerialExecutor::try_run), which never queues, it also means that the
    /// executor is busy: another job is running or queued. `reserve` does not wait until the executor is idle, but only
    /// until its queue has capacity; to wait for the other jobs, [`submit`](crate::SerialExecutor::submit) the job
    /// instead.
    ///
    /// # Examples
    ///
    /// See [`TrySpawnError`].
    pub fn is_full(&self) -> bool {
        matches!(self.reason, Reason::Full | Reason::Busy)
    }

    /// Returns `true` if the executor was closed.
    ///
    /// # Examples
    ///
    /// See [`into_inner`](Self::into_inner).
    pub fn is_closed(&self) -> bool {
        matches!(self.reason, Reason::Closed)
    }

    /// Changes what the error returns.
    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> TrySpawnError<G> {
        TrySpawnError::new(f(self.task.into_inner()), self.reason)
    }

    /// Returns the task, and the fault that its handle reports.
    pub(crate) fn into_fault(self) -> (F, Fault) {
        let fault = match self.reason {
            Reason::Full | Reason::Busy => Fault::rejected(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the queue is full",
            )),
            Reason::Closed => Fault::closed(),
            Reason::NoThread(why) => Fault::rejected(why),
            Reason::Poisoned => Fault::poisoned(),
        };
        (self.task.into_inner(), fault)
    }

    /// Drops the task, and returns the fault that its handle reports.
    pub(crate) fn drop_task(self) -> Fault {
        let (task, fault) = self.into_fault();
        contain(|| drop(task));
        fault
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Full => f.write_str("the queue is full; `reserve` waits for capacity"),
            Reason::Busy => f.write_str("the executor is busy; `submit` queues the job"),
            Reason::Closed => f.write_str("the executor is closed"),
            Reason::NoThread(why) => write!(f, "there is no thread to run the task: {why}"),
            Reason::Poisoned => f.write_str(POISONED),
        }
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::NoThread(why) => write!(f, "NoThread(.., {why:?})"),
            reason => write!(f, "{reason:?}(..)"),
        }
    }
}

impl<F> Error for TrySpawnError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.reason {
            Reason::NoThread(why) => Some(why),
            _ => None,
        }
    }
}

const POISONED: &str = "a job panicked and left the state poisoned; see `clear_poison`";
