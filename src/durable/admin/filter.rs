//! [`TaskFilter`]: selects the tasks of a list.

use std::time::{Duration, SystemTime};

use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::CheckedFilter;
use crate::durable::{Status, TaskInfo};

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
    /// The selected queue. `None` selects all queues, and `Some(None)` the default queue.
    queue: Option<Option<String>>,
    until: Option<SystemTime>,
    has_failed: bool,
    worker: Option<u64>,
}

impl TaskFilter {
    /// Returns a filter that selects all tasks with this status. [`Admin::tasks`](crate::durable::Admin::tasks) refuses
    /// [`Status::Absent`].
    ///
    /// # Examples
    ///
    /// See [`TaskFilter`].
    pub fn new(status: Status) -> Self {
        Self {
            status,
            name: None,
            queue: None,
            until: None,
            has_failed: false,
            worker: None,
        }
    }

    /// Selects only tasks with this [name](crate::durable::DurableTask::NAME). Tasks whose [name](crate::durable::TaskInfo::name) the store
    /// has not kept do not match.
    ///
    /// # Examples
    ///
    /// See [`Admin`](crate::durable::Admin).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects only tasks of this named [queue](crate::durable::Queue). A store does not keep the queues of tasks that have succeeded or
    /// were cancelled, so [`Admin::tasks`](crate::durable::Admin::tasks) refuses a filter with one of these statuses and a queue.
    ///
    /// # Examples
    ///
    /// See [`TaskFilter`].
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(Some(queue.into()));
        self
    }

    /// Selects only tasks of the default queue. The restrictions of [`queue`](Self::queue) apply.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{Status, TaskFilter};
    ///
    /// let waiting = TaskFilter::new(Status::Waiting).default_queue();
    /// # drop(waiting);
    /// ```
    #[must_use]
    pub fn default_queue(mut self) -> Self {
        self.queue = Some(None);
        self
    }

    /// Selects only delayed tasks that wait for another attempt after a failure. [`Admin::tasks`](crate::durable::Admin::tasks) refuses
    /// this for tasks with another status.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{Status, TaskFilter};
    ///
    /// let retrying_mails = TaskFilter::new(Status::Delayed).retrying().name("mail.send");
    /// # drop(retrying_mails);
    /// ```
    #[must_use]
    pub fn retrying(mut self) -> Self {
        self.has_failed = true;
        self
    }

    /// Selects only tasks that the worker with this [session](crate::durable::WorkerInfo::session) runs.
    /// [`Admin::tasks`](crate::durable::Admin::tasks) refuses this for tasks that are not running.
    ///
    /// With Redis, a page examines the running tasks of all workers. If the filter also selects a named [queue](Self::queue), it examines
    /// only those in the partition of that queue. With other stores, it examines only the tasks of the worker.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::{Status, TaskFilter};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// for worker in client.admin().workers(None, 10).await?.workers {
    ///     let running = TaskFilter::new(Status::Running).worker(worker.session);
    ///     let page = client.admin().tasks(&running, None, 10).await?;
    ///     println!("{} runs {:?}", worker.host, page.tasks);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn worker(mut self, session: u64) -> Self {
        self.worker = Some(session);
        self
    }

    /// Selects only tasks that already existed at this time, which is usually the time at which a page was
    /// [read](crate::durable::TaskPage::now). A [bulk change](crate::durable::Admin::change_all) then leaves out tasks that came later.
    ///
    /// - *Dead letters, and tasks that have succeeded or were cancelled*: those that ended at or before this time. Their
    ///   [age](crate::durable::TaskInfo::age) is in whole milliseconds, and does not grow while no executor runs on the store. So a task
    ///   that ended in the millisecond before this time, or shortly before such a period, may be left out. One that ended in a later
    ///   millisecond is never selected.
    /// - *Waiting, delayed and running tasks*: those that were spawned at or before this time. A store does not record when a task was
    ///   spawned, but a [new](crate::durable::TaskId::new) id contains the time, in milliseconds, by the clock of the process that spawned
    ///   the task. If that clock differs from the clock of the store, the selection is off by the difference. An id that was
    ///   [derived](crate::durable::TaskId::derive), or chosen in another way, contains no time, so its task is never selected.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::{Status, TaskChange, TaskFilter};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let dead = TaskFilter::new(Status::Dead).name("mail.send");
    /// let page = client.admin().tasks(&dead, None, 50).await?;
    /// // An operator looks at the page, and decides to replay all of these tasks.
    /// let mut replay = client.admin().change_all(dead.until(page.now), TaskChange::Replay);
    /// while let Some(part) = replay.next().await {
    ///     println!("{} more tasks are replayed", part?.changed);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(time);
        self
    }

    /// Returns `true` if a task of a page that was read at `now` already existed at the time of the filter.
    pub(super) fn was_there(&self, task: &TaskInfo, now: SystemTime) -> bool {
        let Some(until) = self.until else {
            return true;
        };
        match task.status {
            Status::Dead | Status::Done | Status::Cancelled => {
                task.age.is_some_and(|age| had_ended(age, now, until))
            }
            _ => {
                let created = task.id.created();
                created.is_some_and(|time| SystemTime::UNIX_EPOCH + time <= until)
            }
        }
    }

    /// Returns the time of [`until`](Self::until) in milliseconds since 1970.
    pub(super) fn until_millis(&self) -> Option<u64> {
        let until = self.until?;
        let since = until.duration_since(SystemTime::UNIX_EPOCH);
        Some(millis(since.unwrap_or_default()))
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Returns the filter in the form in which stores accept it, or the reason why it is invalid.
    pub(crate) fn checked(&self) -> Result<CheckedFilter, String> {
        let name = |queue: &Option<String>| match queue {
            Some(name) => QueueName::new(name),
            None => Ok(QueueName::DEFAULT),
        };
        let queue = self.queue.as_ref().map(name).transpose()?;
        if self.has_failed && self.status != Status::Delayed {
            return Err(format!(
                "only delayed tasks can be retrying, and the filter selects {:?} tasks: remove `retrying` from the filter",
                self.status
            ));
        }
        if self.worker.is_some() && self.status != Status::Running {
            return Err(format!(
                "no worker runs {:?} tasks: remove `worker` from the filter",
                self.status
            ));
        }
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
                has_failed: self.has_failed,
                session: self.worker,
            }),
        }
    }
}

/// Returns `true` if a task with this age, in a page that was read at `now`, had ended at a time. The age and the time since then are
/// measured by different clocks, in whole milliseconds, so the age may be too high by almost one.
fn had_ended(age: Duration, now: SystemTime, at: SystemTime) -> bool {
    // At a time in the future, all tasks that have ended will have ended.
    now.duration_since(at).map_or(true, |since| age > since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_may_have_ended_later_had_not_ended() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let millis = Duration::from_millis;
        for (age, at, had) in [
            (10, now - millis(9), true),
            (10, now - millis(10), false),
            (1, now, true),
            (0, now, false),
            (0, now + millis(1), true),
        ] {
            assert_eq!(had_ended(millis(age), now, at), had, "{age} {at:?}");
        }
    }
}
