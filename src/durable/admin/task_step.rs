//! [`TaskStep`], [`TaskChild`] and [`TaskWait`]: the steps of a task in detail.

use std::time::Duration;

use serde::Serialize;

use super::excerpt::Excerpt;
use super::json;
use crate::durable::store::StepName;
use crate::durable::{Status, StepKind, TaskId};

/// A step of a task: see [`TaskDetail::steps`](crate::durable::TaskDetail::steps).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskStep {
    /// The kind of the step, which determines what it records.
    pub kind: StepKind,
    /// The name of the step among those of its kind.
    pub name: String,
    /// The time since the step was stored.
    #[serde(serialize_with = "json::millis")]
    pub age: Duration,
    /// The beginning of the value, which is JSON in most cases. It is `None` for the end of a child, which is in
    /// [`TaskDetail::children`](crate::durable::TaskDetail::children), and for a signal that has not arrived in time.
    pub value: Option<Excerpt>,
    /// The time that is left of a sleep, or of the timeout of a signal: zero if it is over. It is `None` for other steps.
    #[serde(serialize_with = "json::optional_millis")]
    pub left: Option<Duration>,
}

impl TaskStep {
    /// Returns the kind and the name, as in `sleep:pause`. No other step of the task has the same full name:
    /// see [`TaskChange::ReplayFrom`](crate::durable::TaskChange::ReplayFrom).
    ///
    /// # Examples
    ///
    /// See [`TaskChange::replay_from`](crate::durable::TaskChange::replay_from).
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.kind, self.name)
    }

    /// Returns `true` if this text names the step in a [replay](crate::durable::TaskChange::ReplayFrom). It is the full name or, for a
    /// [`Step`](StepKind::Step) whose name does not begin with a kind, the name.
    pub fn is_named(&self, text: &str) -> bool {
        StepName::parse(text).is_ok_and(|name| name.as_str() == self.full_name())
    }
}

/// A child of a task: see [`TaskDetail::children`](crate::durable::TaskDetail::children).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskChild {
    /// The id of the child.
    pub id: TaskId,
    /// The [name](crate::durable::DurableTask::NAME) of the type of the child, or `None` if the step that says so is missing.
    pub name: Option<String>,
    /// The status of the child at its end, or `None` if the task has no step that says that it has ended.
    /// It is [`Absent`](Status::Absent) if the end was no longer kept when the task looked for it.
    pub end: Option<Status>,
    /// The time since the end was stored as a step of the task.
    #[serde(serialize_with = "json::optional_millis")]
    pub age: Option<Duration>,
    /// The beginning of the output of a child that has succeeded, or `None` if the output was too large for a step.
    pub output: Option<Excerpt>,
    /// The error of a child that has failed for good.
    pub error: Option<String>,
}

/// A wait of a suspended task: see [`TaskDetail::waits_for`](crate::durable::TaskDetail::waits_for).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum TaskWait {
    /// The end of a [sleep](crate::durable::TaskContext::sleep).
    #[non_exhaustive]
    Sleep {
        /// The name of the sleep.
        name: String,
        /// The rest of the sleep.
        #[serde(serialize_with = "json::millis")]
        left: Duration,
    },
    /// A [signal](crate::durable::TaskContext::signal).
    #[non_exhaustive]
    Signal {
        /// The name of the signal.
        name: String,
        /// The time after which the task no longer waits for it, or `None` if it waits without a limit.
        #[serde(serialize_with = "json::optional_millis")]
        left: Option<Duration>,
    },
    /// The ends of [children](crate::durable::TaskContext::join).
    #[non_exhaustive]
    Children {
        /// The number of children that have not ended.
        number: u32,
    },
}
