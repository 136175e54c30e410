//! The changes that an operator makes to single tasks, and the answers of a store.

use super::{CheckedFilter, ListTasks, StepReplay};
use crate::durable::admin::refusal::Refusal;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::{TaskId, TaskInfo, TaskPage};

/// A change of tasks: see [`TaskChange`](crate::durable::TaskChange).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Waiting and delayed tasks are cancelled at once. Running tasks are cancelled when their worker reports that they have stopped.
    Cancel,
    /// Delayed tasks become due now, in the order of the request.
    RunNow,
    /// Waiting and delayed tasks move to this queue. Waiting ones go behind those that wait there.
    MoveTo(QueueName),
    /// Dead letters wait for a worker again.
    Replay,
    /// A step, and all later ones, are removed. Then waiting tasks stay where they are, delayed ones become due, and dead letters wait for
    /// a worker again. A new last step records this. So a request that is sent again changes nothing and gets the same answer, and a later
    /// run knows that the task has run before. If the last replay was from the same step, and the task has not stored that step since, a
    /// delayed task becomes due, and nothing is removed.
    ReplayFrom(StepReplay),
    /// Dead letters are removed.
    Delete,
}

/// The effect of a change on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeAnswer {
    /// The task has changed.
    Changed,
    /// The task is already in the state that the change would produce.
    Same,
    /// There is no such task, or the change does not apply to its status.
    OtherStatus,
    /// The change applies to the status of the task, but not to this task.
    Refused(Refusal),
}

/// A request to move the next waiting tasks that match to another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveWaiting {
    /// Its status is `Waiting`.
    pub filter: CheckedFilter,
    /// If this is a time, in milliseconds since 1970, only tasks whose ids contain a time that is not later.
    pub until: Option<u64>,
    /// The queue to which they move.
    pub queue: QueueName,
    /// The position at which the previous part has ended. It may come from an untrusted source.
    pub after: Option<Vec<u8>>,
    /// The approximate number of tasks of a part.
    pub limit: usize,
}

/// The effect of a request that has moved some tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedPart {
    /// The number of tasks that have moved, apart from those that have an answer.
    pub changed: u64,
    /// The answers about single tasks.
    pub answers: Vec<ChangeAnswer>,
    /// The number of tasks that were examined.
    pub examined: usize,
    /// The position at which the next part begins, if there is one.
    pub next: Option<Vec<u8>>,
}

impl MoveWaiting {
    /// Returns the request for the page of tasks after a position.
    pub fn page(&self, after: Option<Vec<u8>>) -> ListTasks {
        ListTasks {
            filter: self.filter.clone(),
            after,
            limit: self.limit,
        }
    }

    /// Returns the change of each task.
    pub fn change(&self) -> Change {
        Change::MoveTo(self.queue.clone())
    }

    /// Returns the part that consists of the tasks of a page, given the answers about them.
    pub fn part(&self, page: TaskPage, answers: Vec<ChangeAnswer>) -> MovedPart {
        let next = page.next.map(|next| next.position_in(self.filter.status));
        MovedPart {
            changed: 0,
            answers,
            examined: page.examined,
            next: next.transpose().ok().flatten(),
        }
    }

    /// Returns the tasks of a page that move.
    pub fn selected(&self, page: &TaskPage) -> Vec<TaskId> {
        let tasks = page.tasks.iter();
        let selected = tasks.filter(|task| !self.is_there(task) && self.is_early(task.id));
        selected.map(|task| task.id).collect()
    }

    /// Returns `true` if a task is already in the queue. The queue of a task without a name may be unknown.
    fn is_there(&self, task: &TaskInfo) -> bool {
        task.name.is_some() && task.queue.as_deref().unwrap_or_default() == self.queue.as_str()
    }

    fn is_early(&self, id: TaskId) -> bool {
        let is_early = |until| id.created().is_some_and(|created| millis(created) <= until);
        self.until.is_none_or(is_early)
    }
}

#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl ChangeAnswer {
    /// Returns the answer for a task that was changed if this is `true`.
    pub fn changed_if(is_changed: bool) -> Self {
        match is_changed {
            true => Self::Changed,
            false => Self::OtherStatus,
        }
    }
}
