//! [`WaitReason`]: why no worker claims a waiting task.

use std::fmt;

use serde::Serialize;

use super::overview::{Overview, QueueOverview};
use crate::durable::{Status, TaskInfo};

/// The reason why no worker claims a waiting task: see [`Overview::wait_reason`]. It is displayed as a clause, such as `its queue is
/// paused`, and serialised as `queue_paused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// The type is [paused](crate::durable::TaskTypes::pause).
    TypePaused,
    /// The queue is [paused](crate::durable::Queue::pause).
    QueuePaused,
    /// No live worker serves the queue.
    QueueUnserved,
    /// The queue runs as many tasks as its [limit](crate::durable::QueueSettings::max_running) allows.
    LimitReached,
    /// Live workers serve the queue, but none of them has registered the type.
    TypeUnserved,
}

impl Overview {
    /// Returns why no worker claims a task. Returns `None` if the task does not wait, or if this overview does not show a reason: the task
    /// may wait because others are before it, or for the rate limit of its queue.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore, TaskId};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let id = TaskId::new();
    /// let admin = client.admin();
    /// if let Some(detail) = admin.task(id).await?
    ///     && let Some(reason) = admin.overview().await?.wait_reason(&detail.task)
    /// {
    ///     println!("{id} waits: {reason}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn wait_reason(&self, task: &TaskInfo) -> Option<WaitReason> {
        if task.status != Status::Waiting {
            return None;
        }
        let mut types = self.types.iter().filter(|it| it.name == task.name);
        if types.clone().any(|it| it.is_paused) {
            return Some(WaitReason::TypePaused);
        }
        let is_unknown = types.any(|it| it.queue == task.queue && !it.is_served);
        let by_type = is_unknown.then_some(WaitReason::TypeUnserved);
        self.wait_reason_in_queue(task.queue.as_deref()).or(by_type)
    }

    fn wait_reason_in_queue(&self, name: Option<&str>) -> Option<WaitReason> {
        let mut queues = self.queues.iter();
        match queues.find(|it| it.name.as_deref() == name) {
            Some(queue) => queue.wait_reason(),
            None => self.has_all_queues().then_some(WaitReason::QueueUnserved),
        }
    }

    /// Returns `true` if each queue that a live worker serves is listed.
    fn has_all_queues(&self) -> bool {
        !self.has_more_queues && self.missing_partitions.is_empty()
    }
}

impl QueueOverview {
    fn wait_reason(&self) -> Option<WaitReason> {
        let limit = self.info.settings.running_limit();
        if self.info.is_paused {
            Some(WaitReason::QueuePaused)
        } else if self.sessions == 0 {
            Some(WaitReason::QueueUnserved)
        } else if limit.is_some_and(|limit| self.info.running >= u64::from(limit)) {
            Some(WaitReason::LimitReached)
        } else {
            None
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TypePaused => "its type is paused",
            Self::QueuePaused => "its queue is paused",
            Self::QueueUnserved => "no live worker serves its queue",
            Self::LimitReached => "its queue runs as many tasks as its limit allows",
            Self::TypeUnserved => "no live worker of its queue has registered its type",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::admin::overview::{OverviewDraft, QueueDraft};
    use crate::durable::queue::name::QueueName;
    use crate::durable::{QueueSettings, TaskId};

    /// Returns a task in the default queue.
    fn task(status: Status) -> TaskInfo {
        TaskInfo {
            id: TaskId::new(),
            status,
            name: Some("job".into()),
            queue: None,
            group: None,
            failures: None,
            crashes: None,
            ready_for: None,
            due_in: None,
            fencing_token: None,
            kept_for: None,
            running_for: None,
            took: None,
            age: None,
            reason: None,
            error: None,
        }
    }

    /// Returns an overview with a default queue that a worker serves.
    fn served() -> Overview {
        let queue = QueueDraft {
            sessions: 1,
            ..QueueDraft::default()
        };
        let mut draft = OverviewDraft::default();
        draft.queues.insert(QueueName::DEFAULT, queue);
        draft.finish()
    }

    #[test]
    fn a_queue_at_its_limit_is_the_reason() {
        let mut overview = served();
        let info = &mut overview.queues[0].info;
        (info.settings, info.running) = (QueueSettings::new().max_running(2), 1);
        assert_eq!(overview.wait_reason(&task(Status::Waiting)), None);
        overview.queues[0].info.running = 2;
        let reason = overview.wait_reason(&task(Status::Waiting));
        assert_eq!(reason, Some(WaitReason::LimitReached));
        assert_eq!(overview.wait_reason(&task(Status::Running)), None);
    }

    #[test]
    fn a_queue_is_unserved_only_if_the_overview_has_all_queues() {
        let task = task(Status::Waiting);
        let mut overview = OverviewDraft::default().finish();
        let reason = overview.wait_reason(&task);
        assert_eq!(reason, Some(WaitReason::QueueUnserved));
        overview.missing_partitions.push(1);
        assert_eq!(overview.wait_reason(&task), None);
    }
}
