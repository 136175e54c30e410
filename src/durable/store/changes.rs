//! The changes that an operator makes to single tasks, and the answers of a store.

use super::{Backend, CheckedFilter, ListTasks};
use crate::durable::admin::refusal::Refusal;
use crate::durable::clock::millis;
use crate::durable::failure::Failure;
use crate::durable::queue::name::QueueName;
use crate::durable::{TaskId, TaskPage};

/// A change of tasks: see [`TaskChange`](crate::durable::TaskChange).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Waiting and delayed tasks are cancelled at once. Running tasks are cancelled when their worker reports that they have stopped.
    Cancel,
    /// Delayed tasks become due now, in the order of the request.
    RunNow,
    /// Waiting and delayed tasks move to this queue. Waiting ones go behind those that wait there.
    MoveTo(QueueName),
    /// Dead letters wait for a worker again.
    Replay,
    /// Dead letters are removed.
    Delete,
}

/// The effect of a change on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeAnswer {
    Changed,
    /// The task is already in the state that the change would produce.
    Same,
    /// There is no such task, or the change does not apply to its status.
    OtherStatus,
    Refused(Refusal),
}

/// A request to move the next waiting tasks that match to another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoveWaiting {
    /// Its status is `Waiting`.
    pub(crate) filter: CheckedFilter,
    /// If this is a time, in milliseconds since 1970, only tasks whose ids contain a time that is not later.
    pub(crate) until: Option<u64>,
    pub(crate) queue: QueueName,
    /// The position at which the previous part has ended. It may come from an untrusted source.
    pub(crate) after: Option<Vec<u8>>,
    /// The approximate number of tasks of a part.
    pub(crate) limit: usize,
}

/// The effect of a request that has moved some tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedPart {
    /// The number of tasks that have moved, apart from those that have an answer.
    pub(crate) changed: u64,
    /// The answers about single tasks.
    pub(crate) answers: Vec<ChangeAnswer>,
    pub(crate) examined: usize,
    /// The position at which the next part begins, if there is one.
    pub(crate) next: Option<Vec<u8>>,
}

impl MoveWaiting {
    /// Returns the request for the page of tasks after a position.
    pub(crate) fn page(&self, after: Option<Vec<u8>>) -> ListTasks {
        ListTasks {
            filter: self.filter.clone(),
            after,
            limit: self.limit,
        }
    }

    /// Returns the tasks of a page that move.
    pub(crate) fn selected(&self, page: &TaskPage) -> Vec<TaskId> {
        let ids = page.tasks.iter().map(|task| task.id);
        ids.filter(|id| self.is_selected(*id)).collect()
    }

    fn is_selected(&self, id: TaskId) -> bool {
        self.until
            .is_none_or(|until| id.created().is_some_and(|created| millis(created) <= until))
    }
}

/// Moves the tasks of the next page of a list, in a store that finds a task by its id.
pub(crate) async fn move_listed(
    store: &dyn Backend,
    request: MoveWaiting,
) -> Result<Option<MovedPart>, Failure> {
    let Some(page) = store.list(request.page(request.after.clone())).await? else {
        return Ok(None);
    };
    let ids = request.selected(&page);
    let answers = match ids.is_empty() {
        true => Vec::new(),
        false => store.change(ids, Change::MoveTo(request.queue)).await?,
    };
    let next = page
        .next
        .map(|next| next.position_in(request.filter.status));
    Ok(Some(MovedPart {
        changed: 0,
        answers,
        examined: page.examined,
        next: next.transpose().ok().flatten(),
    }))
}

#[cfg(any(test, feature = "sqlite-unbundled", feature = "test-util"))]
impl ChangeAnswer {
    /// Returns the answer for a task that was changed if this is `true`.
    pub(crate) fn changed_if(is_changed: bool) -> Self {
        match is_changed {
            true => Self::Changed,
            false => Self::OtherStatus,
        }
    }
}
