//! What can go wrong with a task.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;

use super::Id;
use crate::task::{Fault, Held, Kind};
use crate::unwind::contain;

/// Why a task has no output.
///
/// The counterpart of [`tokio::task::JoinError`], which cannot be made outside of Tokio.
pub struct JoinError {
    id: Id,
    fault: Fault,
}

impl JoinError {
    pub(crate) fn new(id: Id, fault: Fault) -> Self {
        Self { id, fault }
    }

    pub(crate) fn into_fault(self) -> Fault {
        self.fault
    }

    /// The task's name.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Whether the task was aborted, or dropped by whoever should have run it (a runtime that was
    /// shut down, for instance).
    pub fn is_cancelled(&self) -> bool {
        matches!(self.fault.kind(), Kind::Cancelled)
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.fault.kind(), Kind::Panicked(_))
    }

    /// Whether the task was not accepted (a full queue), or there was nobody to run it (no runtime,
    /// or no thread; then [`source`](Error::source) is the system's error).
    pub fn is_rejected(&self) -> bool {
        matches!(self.fault.kind(), Kind::Rejected(_))
    }

    /// Whether the executor had been closed before the task came.
    pub fn is_closed(&self) -> bool {
        matches!(self.fault.kind(), Kind::Closed)
    }

    /// Whether the state that the task should have run on is poisoned by the panic of another.
    pub fn is_poisoned(&self) -> bool {
        matches!(self.fault.kind(), Kind::Poisoned)
    }

    /// Whether the task was the promise of a [`Slot`](crate::Slot) that was dropped, and had not been aborted.
    pub fn is_lost(&self) -> bool {
        matches!(self.fault.kind(), Kind::Lost)
    }

    /// Whether it was given up to wait for the task, since it would not have begun. Whoever waited is
    /// itself
    ///
    /// - a task of the same pool, all of whose threads wait likewise, and there may be no more: give the
    ///   pool more threads (`max_threads`), or do not wait inside of it;
    /// - a job of the same [`SerialExecutor`](crate::SerialExecutor), which runs no other before this
    ///   one has ended: do not wait inside of it.
    ///
    /// Return the handle, and await it outside. The task itself, if it was accepted, runs when it can.
    pub fn is_would_deadlock(&self) -> bool {
        matches!(self.fault.kind(), Kind::WouldDeadlock(_))
    }

    /// What the task panicked with.
    ///
    /// # Panics
    ///
    /// Panics if the task did not panic: see [`is_panic`](Self::is_panic).
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("the task did not panic: {error}"),
        }
    }

    /// What the task panicked with.
    ///
    /// # Errors
    ///
    /// Gives the error back if the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, Self> {
        if !self.is_panic() {
            return Err(self);
        }
        match self.fault.into_kind() {
            Kind::Panicked(payload) => Ok(payload.into_inner()),
            _ => unreachable!("it was a panic above"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match self.fault.kind() {
            Kind::Cancelled => write!(f, "task {id} was cancelled"),
            Kind::Panicked(payload) => match &payload.message {
                Some(message) => write!(f, "task {id} panicked with message {message:?}"),
                None => write!(f, "task {id} panicked"),
            },
            Kind::Rejected(why) => write!(f, "task {id} was rejected: {why}"),
            Kind::Closed => write!(f, "task {id} came after its executor was closed"),
            Kind::Poisoned => write!(
                f,
                "task {id} was not run: an earlier one panicked and left the state poisoned"
            ),
            Kind::Lost => write!(f, "task {id} was lost: its slot was dropped unfulfilled"),
            Kind::WouldDeadlock(Held::Thread) => write!(
                f,
                "task {id} would never begin: a task of its own pool waits for it, all threads wait likewise, \
                 and no more may be created; raise `max_threads`, or do not wait inside the pool"
            ),
            Kind::WouldDeadlock(Held::State) => write!(
                f,
                "task {id} would never begin: a job of its own executor waits for it, which runs one at a time; \
                 await the handle outside of the job"
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
            Kind::Rejected(why) => Some(why),
            _ => None,
        }
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        let kind = match error.fault.kind() {
            Kind::Rejected(why) => why.kind(),
            Kind::WouldDeadlock(_) => io::ErrorKind::Deadlock,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

// ===== impl TrySpawnError =====

/// Why a task was not accepted, with the task.
#[non_exhaustive]
pub enum TrySpawnError<F> {
    /// There is no room: wait for it (`reserve`), or shed load.
    Full(F),
    /// The executor has been closed.
    Closed(F),
    /// There is no thread to run it, and the system refused a new one.
    NoThread(F, io::Error),
    /// The state that it should run on is poisoned by the panic of another.
    Poisoned(F),
}

impl<F> TrySpawnError<F> {
    /// The task.
    pub fn into_inner(self) -> F {
        match self {
            Self::Full(f) | Self::Closed(f) | Self::NoThread(f, _) | Self::Poisoned(f) => f,
        }
    }

    /// The same reason, with something else instead of the task.
    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> TrySpawnError<G> {
        match self {
            Self::Full(task) => TrySpawnError::Full(f(task)),
            Self::Closed(task) => TrySpawnError::Closed(f(task)),
            Self::NoThread(task, why) => TrySpawnError::NoThread(f(task), why),
            Self::Poisoned(task) => TrySpawnError::Poisoned(f(task)),
        }
    }

    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Whether the executor has been closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// The task, and what its handle will say of it.
    pub(crate) fn into_fault(self) -> (F, Fault) {
        match self {
            Self::Full(f) => (
                f,
                Fault::rejected(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "the queue is full",
                )),
            ),
            Self::Closed(f) => (f, Fault::closed()),
            Self::NoThread(f, why) => (f, Fault::rejected(why)),
            Self::Poisoned(f) => (f, Fault::poisoned()),
        }
    }

    /// What the handle of the task will say of it, which is dropped.
    pub(crate) fn drop_task(self) -> Fault {
        let (f, fault) = self.into_fault();
        contain(|| drop(f));
        fault
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("no room for another task; wait for it with `reserve`"),
            Self::Closed(_) => f.write_str("the executor has been closed"),
            Self::NoThread(_, why) => write!(f, "no thread to run the task: {why}"),
            Self::Poisoned(_) => {
                f.write_str("a job panicked and left the state poisoned; see `clear_poison`")
            }
        }
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::NoThread(_, why) => write!(f, "NoThread(.., {why:?})"),
            Self::Poisoned(_) => f.write_str("Poisoned(..)"),
        }
    }
}

impl<F> Error for TrySpawnError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoThread(_, why) => Some(why),
            _ => None,
        }
    }
}

// ===== impl TryRunError =====

/// Why a job was not run at once, with the job.
#[non_exhaustive]
pub enum TryRunError<F> {
    /// Another job is running, or waits to.
    Busy(F),
    /// The executor has been closed.
    Closed(F),
    /// A job panicked and left the state poisoned.
    Poisoned(F),
}

impl<F> TryRunError<F> {
    /// The job.
    pub fn into_inner(self) -> F {
        match self {
            Self::Busy(f) | Self::Closed(f) | Self::Poisoned(f) => f,
        }
    }
}

impl<F> fmt::Display for TryRunError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "the executor is busy; `submit` queues the job",
            Self::Closed(_) => "the executor has been closed",
            Self::Poisoned(_) => "a job panicked and left the state poisoned; see `clear_poison`",
        })
    }
}

impl<F> fmt::Debug for TryRunError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "Busy(..)",
            Self::Closed(_) => "Closed(..)",
            Self::Poisoned(_) => "Poisoned(..)",
        })
    }
}

impl<F> Error for TryRunError<F> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every predicate, and whether it holds.
    fn kinds(error: &JoinError) -> [(&'static str, bool); 7] {
        [
            ("cancelled", error.is_cancelled()),
            ("panic", error.is_panic()),
            ("rejected", error.is_rejected()),
            ("closed", error.is_closed()),
            ("poisoned", error.is_poisoned()),
            ("lost", error.is_lost()),
            ("would deadlock", error.is_would_deadlock()),
        ]
    }

    #[test]
    fn one_who_would_deadlock_is_told_what_to_do() {
        let error = JoinError::new(Id::next(), Fault::would_deadlock(Held::Thread));
        let holds = kinds(&error).into_iter().filter(|(_, holds)| *holds);
        assert_eq!(
            holds.collect::<Vec<_>>(),
            [("would deadlock", true)],
            "{error}"
        );
        let text = error.to_string();
        assert!(text.starts_with(&format!("task {} would never begin", error.id())));
        assert!(text.ends_with("raise `max_threads`, or do not wait inside the pool"));
        assert!(!text.contains("  "), "{text}");
        assert!(error.source().is_none());

        let error = error.try_into_panic().unwrap_err();
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Deadlock);
    }
}
