//! [`TaskError`]: why a run did not succeed, and what follows.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a run of a task did not succeed, and what follows.
///
/// The operator `?` converts any error into one after which the task is tried again, after the delay of its
/// [`Retry`](crate::durable::DurableTask::RETRY). For this reason, the type does not implement [`Error`] itself; its
/// [`source`](Self::source) does.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::TaskError;
///
/// fn tick(reply: &str) -> Result<u32, TaskError> {
///     match reply {
///         "no such card" => Err(TaskError::fatal("the card does not exist")),
///         "slow down" => Err(TaskError::retry_after("told to", Duration::from_secs(60))),
///         "closed" => Err(TaskError::snooze(Duration::from_secs(3600))),
///         amount => Ok(amount.parse()?),
///     }
/// }
/// # assert!(tick("7").is_ok() && tick("?").is_err());
/// ```
pub struct TaskError {
    pub(crate) next: Next,
    /// The time for which the group of the task is held, or `None` if it is not held.
    pub(crate) group_hold: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The step that follows a run that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Retry,
    RetryAfter(Duration),
    Fatal,
    Snooze(Duration),
    /// The run waits for a step, or for the end of a sleep.
    Wait,
}

impl TaskError {
    /// The run has failed. The task is tried again after the delay of its
    /// [`Retry`](crate::durable::DurableTask::RETRY).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::TaskError;
    ///
    /// fn check(status: u16) -> Result<(), TaskError> {
    ///     match status {
    ///         200..300 => Ok(()),
    ///         status => Err(TaskError::retry(format!("the server answered with status {status}"))),
    ///     }
    /// }
    /// # assert!(check(204).is_ok() && check(503).is_err());
    /// ```
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Next::Retry, Some(error.into()))
    }

    /// The run has failed. The task is tried again after `wait`, if an attempt is left and would begin within the
    /// [total time](crate::Retry::max_elapsed).
    ///
    /// # Examples
    ///
    /// See [`TaskError`].
    pub fn retry_after(error: impl Into<Box<dyn Error + Send + Sync>>, wait: Duration) -> Self {
        Self::new(Next::RetryAfter(wait), Some(error.into()))
    }

    /// The task has failed for good, and becomes a dead letter.
    ///
    /// # Examples
    ///
    /// See [`TaskError`].
    pub fn fatal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Next::Fatal, Some(error.into()))
    }

    /// The task cannot be done now, and runs again after `wait`. No attempt is counted, and the
    /// [total time](crate::Retry::max_elapsed) does not limit `wait`.
    ///
    /// # Examples
    ///
    /// See [`TaskError`].
    pub fn snooze(wait: Duration) -> Self {
        Self::new(Next::Snooze(wait), None)
    }

    /// The run has asked for something that the task must wait for.
    pub(crate) fn wait() -> Self {
        Self::new(Next::Wait, None)
    }

    /// Also holds the [group](super::SpawnOptions::group) of the task: until `wait` is over, no task of the group starts in any process.
    /// Tasks of the group that are running continue, and other groups are not affected. If the task has no group, this has no effect.
    ///
    /// The hold replaces an earlier hold of the group, even one that would last longer. A `wait` of zero ends the earlier hold.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use throng::durable::TaskError;
    ///
    /// // A service has answered a request for this customer with the status 429.
    /// fn too_many_requests(retry_after: Duration) -> TaskError {
    ///     TaskError::retry_after("429 Too Many Requests", retry_after).and_hold_group(retry_after)
    /// }
    /// # drop(too_many_requests(Duration::ZERO));
    /// ```
    #[must_use]
    pub fn and_hold_group(mut self, wait: Duration) -> Self {
        self.group_hold = Some(wait);
        self
    }

    /// Returns the underlying error. A [snooze](Self::snooze) has none, nor has the error of a run that [waits](super::TaskContext::sleep).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::durable::TaskError;
    ///
    /// let error = TaskError::from("7x".parse::<u32>().unwrap_err());
    /// assert!(error.source().is_some_and(|source| source.is::<std::num::ParseIntError>()));
    /// assert!(TaskError::snooze(Duration::from_secs(60)).source().is_none());
    /// ```
    pub fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    fn new(next: Next, source: Option<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            next,
            group_hold: None,
            source,
        }
    }

    /// Returns the error and its sources in one line.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source().and_then(Error::source);
        while let Some(error) = next {
            text.push_str(": ");
            text.push_str(&error.to_string());
            next = error.source();
        }
        text
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(error) => error.fmt(f),
            None if self.next == Next::Wait => f.write_str("the task waits"),
            None => f.write_str("it cannot be done now"),
        }
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError")
            .field("next", &self.next)
            .field("group_hold", &self.group_hold)
            .field("source", &self.source)
            .finish()
    }
}
