//! [`SortedEntries`]: the rows that a store moves from its outbox.

use std::time::Duration;

use crate::durable::TaskId;
use crate::durable::envelope::{SHORT_ENVELOPE, seal_payload};
use crate::durable::outbox::body::decode_body;
use crate::durable::policy::Policy;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::NewTask;
use crate::durable::task::DEFAULT_RETENTION;

/// The name of the dead letters of rows that cannot be read.
const UNREADABLE_NAME: &str = "throng.unreadable-outbox-row";

/// The delay of a task that ends in the transaction that stores it. The delay keeps the task out of the lists of waiting tasks.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// A row of an outbox.
pub(crate) struct OutboxEntry {
    /// `None` if the column does not contain a task id.
    pub(crate) id: Option<TaskId>,
    pub(crate) body: Vec<u8>,
}

/// Rows that are to be moved.
#[derive(Default)]
pub(crate) struct SortedEntries {
    pub(crate) tasks: Vec<NewTask>,
    /// The tasks that become dead letters because their rows cannot be read, and the reasons.
    pub(crate) unreadable: Vec<(NewTask, String)>,
}

impl SortedEntries {
    pub(crate) fn of(entries: Vec<OutboxEntry>) -> Self {
        let mut sorted = Self::default();
        for entry in entries {
            match entry.read() {
                Ok(task) => sorted.tasks.push(task),
                Err(error) => sorted.unreadable.push((entry.into_unreadable(), error)),
            }
        }
        sorted
    }
}

impl OutboxEntry {
    fn read(&self) -> Result<NewTask, String> {
        let id = self.id.ok_or("its id is not a task id");
        let task = id
            .map_err(String::from)
            .and_then(|id| decode_body(id, &self.body));
        task.map_err(|error| format!("a row of the outbox cannot be read: {error}"))
    }

    /// Returns a task with the body as its payload.
    fn into_unreadable(self) -> NewTask {
        NewTask {
            id: self.id.unwrap_or_else(TaskId::new),
            name: UNREADABLE_NAME.into(),
            envelope: SHORT_ENVELOPE,
            version: 1,
            payload: seal_payload(1, None, Policy::DEFAULT, self.body),
            queue: QueueName::DEFAULT,
            group: None,
            priority: Priority::Normal,
            key: None,
            delay: SHORTEST_DELAY,
            retention: DEFAULT_RETENTION,
            max_crashes: 1,
            parent: None,
        }
    }
}

/// Returns the ended task that is stored instead of `task`. It tells handles of `task` that another task held the key.
pub(crate) fn ended_task(task: &NewTask) -> NewTask {
    NewTask {
        group: None,
        priority: Priority::Normal,
        key: None,
        delay: SHORTEST_DELAY,
        retention: task.retention.max(DEFAULT_RETENTION),
        ..task.clone()
    }
}
