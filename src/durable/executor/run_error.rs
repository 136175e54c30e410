//! [`RunError`]: the error of a run in layers.

use std::error::Error;
use std::fmt;
use std::iter;

use super::run_fn::snoozed_if_deadlock;
use crate::durable::TaskError;
use crate::durable::task_error::Next;

/// The reason why an attempt did not succeed: the [`TaskError`] of a run, or the error of a layer. This needs the feature `tower`.
///
/// Unlike `TaskError`, this type implements [`Error`]. It has the message and the sources of the error from which it was made.
///
/// # Examples
///
/// A layer can count the runs that have failed, and those of them that have exceeded the limit of a `TimeoutLayer`:
///
/// ```
/// use throng::durable::RunError;
///
/// #[derive(Default)]
/// struct Failures {
///     counted: u32,
///     timed_out: u32,
/// }
///
/// impl Failures {
///     fn count(&mut self, error: &RunError) {
///         if error.is_snooze() {
///             return;
///         }
///         self.counted += 1;
///         if error.task_error().source().is_some_and(|it| it.is::<tower::timeout::error::Elapsed>()) {
///             self.timed_out += 1;
///         }
///     }
/// }
/// # use throng::durable::TaskError;
/// # let mut failures = Failures::default();
/// # failures.count(&TaskError::snooze(std::time::Duration::ZERO).into());
/// # failures.count(&TaskError::retry(tower::timeout::error::Elapsed::new()).into());
/// # assert_eq!((failures.counted, failures.timed_out), (1, 1));
/// ```
pub struct RunError {
    error: TaskError,
    is_unreadable: bool,
}

/// An error of any layer.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

impl RunError {
    /// Returns the error of a task that cannot be decoded.
    pub(crate) fn unreadable(reason: String) -> Self {
        Self {
            error: TaskError::fatal(reason),
            is_unreadable: true,
        }
    }

    /// Returns the error of a layer. If it is a `RunError`, or has one among its sources, it keeps the meaning of that `RunError`.
    pub(crate) fn of_layer(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let sources = iter::successors(error.source(), |&error| error.source());
        let meaning = sources
            .filter_map(|error| error.downcast_ref::<Self>())
            .next();
        let meaning = meaning.map(|it| (it.error.next, it.error.group_hold, it.is_unreadable));
        let mut error = Self::from(TaskError::retry(error));
        if let Some((next, group_hold, is_unreadable)) = meaning {
            error.error.next = next;
            error.error.group_hold = group_hold;
            error.is_unreadable = is_unreadable;
        }
        error
    }

    /// Returns the underlying error. For a task that cannot be decoded, this is the reason.
    ///
    /// # Examples
    ///
    /// See [`RunError`].
    pub fn task_error(&self) -> &TaskError {
        &self.error
    }

    /// Returns `true` if the task is not tried again: the run has returned [`TaskError::fatal`], or the task [cannot be
    /// decoded](Self::is_unreadable).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{RunError, TaskError};
    ///
    /// assert!(RunError::from(TaskError::fatal("no such mailbox")).is_fatal());
    /// assert!(!RunError::from(TaskError::retry("no connection")).is_fatal());
    /// ```
    pub fn is_fatal(&self) -> bool {
        self.error.next == Next::Fatal
    }

    /// Returns `true` if the task runs later and no attempt is counted: the run has returned [`TaskError::snooze`], it
    /// [waits](crate::durable::TaskContext::sleep), or it [must not wait for another run](crate::durable::DurableError::is_would_deadlock).
    ///
    /// # Examples
    ///
    /// See [`RunError`].
    pub fn is_snooze(&self) -> bool {
        matches!(self.error.next, Next::Snooze(_) | Next::Wait)
    }

    /// Returns `true` if the task cannot be [decoded](crate::durable::DurableTask::decode).
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    pub(crate) fn into_task_error(self) -> TaskError {
        self.error
    }
}

impl From<TaskError> for RunError {
    fn from(error: TaskError) -> Self {
        Self {
            error: snoozed_if_deadlock(error),
            is_unreadable: false,
        }
    }
}

impl Error for RunError {
    /// The message of this error is that of the underlying error, so the sources begin after that error.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source().and_then(Error::source)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunError")
            .field("error", &self.error)
            .field("is_unreadable", &self.is_unreadable)
            .finish()
    }
}
