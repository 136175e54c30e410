//! [`JoinError`]: why a task has no output.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;

use super::id::Id;
use crate::task::{Fault, FaultKind, Held};

/// A task has no output.
///
/// It is the counterpart of [`tokio::task::JoinError`], which other crates cannot create, and it tells more:
/// besides cancelled tasks and panics, there are tasks that were not accepted or could not run.
///
/// | method | the task |
/// | --- | --- |
/// | [`is_cancelled`](Self::is_cancelled) | was aborted, or dropped by its executor |
/// | [`is_panic`](Self::is_panic) | panicked |
/// | [`is_rejected`](Self::is_rejected) | was not accepted: a full queue, no thread, no runtime |
/// | [`is_closed`](Self::is_closed) | was submitted to a closed executor |
/// | [`is_poisoned`](Self::is_poisoned) | would have run on a poisoned state |
/// | [`is_lost`](Self::is_lost) | was a [`Slot`](crate::Slot) that was dropped |
/// | [`is_would_deadlock`](Self::is_would_deadlock) | would never have started while its handle was awaited |
///
/// It converts into an [`io::Error`], as Tokio's does, and Tokio's error converts into it.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() {
/// let error = throng::spawn_blocking(|| panic!("on purpose")).await.unwrap_err();
/// assert!(error.is_panic());
/// assert_eq!(error.into_panic().downcast_ref(), Some(&"on purpose"));
/// # }
/// ```
pub struct JoinError {
    id: Id,
    fault: Fault,
}

impl JoinError {
    pub(crate) fn new(id: Id, fault: Fault) -> Self {
        Self { id, fault }
    }

    /// Returns the id of the task.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns `true` if the task was aborted, or was dropped by its executor before it ended, such as by a runtime
    /// that shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().threads(1).build()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// pool.execute(move || released.recv().unwrap_or_default());
    /// let queued = pool.spawn(|| ());
    /// queued.abort();
    /// assert!(queued.await.unwrap_err().is_cancelled());
    /// # drop(release);
    /// # Ok(()) }
    /// ```
    pub fn is_cancelled(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Cancelled)
    }

    /// Returns `true` if the task panicked.
    ///
    /// # Examples
    ///
    /// See [`JoinError`].
    pub fn is_panic(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Panicked(_))
    }

    /// Returns `true` if the task was not accepted because a queue was full, or if there was no thread or no
    /// runtime to run it. The [`source`](Error::source) is an [`io::Error`] with the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = throng::ComputePool::builder().max_outstanding(1).build()?;
    /// let permit = pool.reserve().await?;
    /// let error = pool.spawn(|| ()).await.unwrap_err();
    /// assert!(error.is_rejected() && error.source().is_some());
    /// # drop(permit);
    /// # Ok(()) }
    /// ```
    pub fn is_rejected(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Rejected(_))
    }

    /// Returns `true` if the task was submitted after its executor had been closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let pool = throng::ComputePool::new();
    /// pool.close();
    /// assert!(pool.spawn(|| 7).await.unwrap_err().is_closed());
    /// # }
    /// ```
    pub fn is_closed(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Closed)
    }

    /// Returns `true` if the task did not run because a job before it panicked and left the state of its
    /// [`SerialExecutor`](crate::SerialExecutor) poisoned.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let count = throng::SerialExecutor::new(0);
    /// let failed: Result<(), _> = count.submit(|_| panic!("on purpose")).await;
    /// assert!(failed.unwrap_err().is_panic());
    /// // Later jobs do not run, because this one may have left the state half changed.
    /// assert!(count.submit(|n| *n).await.unwrap_err().is_poisoned());
    /// # }
    /// ```
    pub fn is_poisoned(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Poisoned)
    }

    /// Returns `true` if the task was a [`Slot`](crate::Slot) that was dropped without being completed or aborted.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (jobs, mut done) = throng::CompletionStream::<()>::builder().build()?;
    /// drop(jobs.slot(()).await?);
    /// let completed = done.next().await.expect("one is outstanding");
    /// assert!(completed.outcome.unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub fn is_lost(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::Lost)
    }

    /// Returns `true` if the wait for the task would never have ended, because the task could not start while its
    /// handle was awaited. The code that awaited the handle was itself one of these:
    ///
    /// - A task of the same pool, whose other threads all wait as well, and which may not create more. Raise
    ///   `max_threads`, or do not wait inside the pool.
    /// - A job of the same [`SerialExecutor`](crate::SerialExecutor), which runs one job at a time. Return the
    ///   handle from the job, and await it outside.
    ///
    /// The task itself, if it was accepted, runs later.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let count = throng::SerialExecutor::new(0);
    /// let again = count.clone();
    /// let waited = count.submit(move |_| again.submit(|n| *n).blocking_join()).await?;
    /// assert!(waited.unwrap_err().is_would_deadlock());
    /// # Ok(()) }
    /// ```
    pub fn is_would_deadlock(&self) -> bool {
        matches!(self.fault.kind(), FaultKind::WouldDeadlock(_))
    }

    /// Returns the payload of the task's panic.
    ///
    /// # Panics
    ///
    /// Panics if the task did not panic: see [`is_panic`](Self::is_panic).
    ///
    /// # Examples
    ///
    /// ```should_panic
    /// # #[tokio::main] async fn main() {
    /// let task = throng::spawn_blocking(|| -> u32 { panic!("on purpose") });
    /// match task.await {
    ///     Ok(sum) => println!("{sum}"),
    ///     // Resume the panic on this thread.
    ///     Err(error) => std::panic::resume_unwind(error.into_panic()),
    /// }
    /// # }
    /// ```
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("the task did not panic: {error}"),
        }
    }

    /// Returns the payload of the task's panic.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the task did not panic.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let task = throng::spawn_blocking(|| panic!("on purpose"));
    /// let error = task.await.unwrap_err();
    /// let payload = error.try_into_panic().expect("it panicked");
    /// assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    /// # Ok(()) }
    /// ```
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, Self> {
        if !self.is_panic() {
            return Err(self);
        }
        match self.fault.into_kind() {
            FaultKind::Panicked(payload) => Ok(payload.into_inner()),
            _ => unreachable!("it was a panic above"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match self.fault.kind() {
            FaultKind::Cancelled => write!(f, "task {id} was cancelled"),
            FaultKind::Panicked(payload) => match &payload.message {
                Some(message) => write!(f, "task {id} panicked with message {message:?}"),
                None => write!(f, "task {id} panicked"),
            },
            FaultKind::Rejected(why) => write!(f, "task {id} was rejected: {why}"),
            FaultKind::Closed => write!(f, "task {id} was submitted to a closed executor"),
            FaultKind::Poisoned => write!(
                f,
                "task {id} did not run: an earlier job panicked and left the state poisoned"
            ),
            FaultKind::Lost => write!(f, "task {id} was lost: its slot was dropped"),
            FaultKind::WouldDeadlock(Held::Thread) => write!(
                f,
                "task {id} would never begin: a task of its own pool waits for it, as do all other threads, \
                 and the pool may not create more; raise `max_threads`, or do not wait inside the pool"
            ),
            FaultKind::WouldDeadlock(Held::State) => write!(
                f,
                "task {id} would never begin: a job of its own executor waits for it, and the executor runs \
                 one job at a time; await the handle outside of the job"
            ),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({:?}: {self})", self.id)
    }
}

impl Error for JoinError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.fault.kind() {
            FaultKind::Rejected(why) => Some(why),
            _ => None,
        }
    }
}

/// The kind is that of the source for a task that was rejected, `Deadlock` for a wait that would never have ended,
/// and otherwise `Other`.
impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        let kind = match error.fault.kind() {
            FaultKind::Rejected(why) => why.kind(),
            FaultKind::WouldDeadlock(_) => io::ErrorKind::Deadlock,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// So that `?` works on handles of both crates in one function.
///
/// The error gets an id of this crate, because the number in Tokio's id is not public. There is no conversion in the
/// other direction: only Tokio can create its error.
///
/// # Examples
///
/// ```
/// use throng::JoinError;
///
/// async fn sum() -> Result<u32, JoinError> {
///     Ok(tokio::spawn(async { 1 }).await? + throng::spawn_blocking(|| 2).await?)
/// }
/// # #[tokio::main] async fn main() { assert_eq!(sum().await.unwrap(), 3) }
/// ```
impl From<tokio::task::JoinError> for JoinError {
    fn from(error: tokio::task::JoinError) -> Self {
        let fault = match error.try_into_panic() {
            Ok(payload) => Fault::panicked(payload),
            Err(_cancelled) => Fault::cancelled(),
        };
        Self::new(Id::next(), fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the predicates that hold.
    fn kinds(error: &JoinError) -> Vec<&'static str> {
        let kinds = [
            ("cancelled", error.is_cancelled()),
            ("panic", error.is_panic()),
            ("rejected", error.is_rejected()),
            ("closed", error.is_closed()),
            ("poisoned", error.is_poisoned()),
            ("lost", error.is_lost()),
            ("would deadlock", error.is_would_deadlock()),
        ];
        let holds = kinds.into_iter().filter(|(_, holds)| *holds);
        holds.map(|(name, _)| name).collect()
    }

    #[test]
    fn an_error_for_a_wait_that_would_deadlock_says_what_to_do() {
        for (held, advice) in [
            (
                Held::Thread,
                "raise `max_threads`, or do not wait inside the pool",
            ),
            (Held::State, "await the handle outside of the job"),
        ] {
            let error = JoinError::new(Id::next(), Fault::would_deadlock(held));
            assert_eq!(kinds(&error), ["would deadlock"], "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("task {} would never begin", error.id())));
            assert!(text.ends_with(advice), "{text}");
            assert!(!text.contains("  "), "{text}");
            assert!(error.source().is_none());

            let error = error.try_into_panic().unwrap_err();
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Deadlock);
        }
    }
}
