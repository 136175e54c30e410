//! [`Refusal`]: why a task cannot be changed.

use std::fmt;

use serde::Serialize;

/// The reason why a task cannot be changed although its status allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The task is a dead letter whose [`Key`](crate::durable::Key) another task holds, so it cannot be replayed.
    KeyHeld,
    /// The task holds its [`Key`](crate::durable::Key) only until it starts. A spawn into its queue may replace it, so it cannot move to
    /// another queue.
    Replaceable,
    /// The store has several partitions, and the queue to which the task is to move is in another partition than the task.
    OtherPartition,
    /// The task is to be [replayed from a step](crate::durable::TaskChange::ReplayFrom) that it does not have.
    NoSuchStep,
    /// A part of the task is lost, or this version of the crate cannot read it.
    Unreadable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyHeld => "another task holds its key",
            Self::Replaceable => "a spawn into its queue may replace it until it starts",
            Self::OtherPartition => "it is in another partition than the target queue",
            Self::NoSuchStep => "it has no step with this name",
            Self::Unreadable => "a part of it cannot be read",
        })
    }
}
