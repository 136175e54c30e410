//! The changes that an operator makes to single tasks, and the answers of a store.

use crate::durable::admin::refusal::Refusal;
use crate::durable::queue::name::QueueName;

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
