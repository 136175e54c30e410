//! [`TaskFilter`]: selects the tasks of a list.

use crate::durable::Status;
use crate::durable::queue::name::QueueName;
use crate::durable::store::CheckedFilter;

/// Selects the tasks of a list: see [`Admin::tasks`](crate::durable::Admin::tasks).
///
/// # Examples
///
/// ```
/// use throng::durable::{Status, TaskFilter};
///
/// let delayed_mails = TaskFilter::new(Status::Delayed).queue("mail");
/// # drop(delayed_mails);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFilter {
    status: Status,
    name: Option<String>,
    queue: Option<String>,
}

impl TaskFilter {
    /// Returns a filter that selects all tasks with this status. [`Admin::tasks`](crate::durable::Admin::tasks) refuses
    /// [`Status::Absent`].
    pub fn new(status: Status) -> Self {
        Self {
            status,
            name: None,
            queue: None,
        }
    }

    /// Selects only tasks with this [name](crate::durable::DurableTask::NAME). Tasks whose [name](crate::durable::TaskInfo::name) the store
    /// has not kept do not match.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects only tasks of this named [queue](crate::durable::Queue). A store does not keep the queues of tasks that have succeeded or
    /// were cancelled, so [`Admin::tasks`](crate::durable::Admin::tasks) refuses a filter with one of these statuses and a queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Returns the filter in the form in which stores accept it, or the reason why it is invalid.
    pub(crate) fn checked(&self) -> Result<CheckedFilter, String> {
        let queue = self.queue.as_deref().map(QueueName::new).transpose()?;
        match (self.status, &queue) {
            (Status::Absent, _) => Err(String::from(
                "absent tasks cannot be listed: choose another status",
            )),
            (Status::Done | Status::Cancelled, Some(_)) => Err(format!(
                "the store does not keep the queues of {:?} tasks: remove `queue` from the filter",
                self.status
            )),
            (status, _) => Ok(CheckedFilter {
                status,
                name: self.name.clone(),
                queue,
            }),
        }
    }
}
