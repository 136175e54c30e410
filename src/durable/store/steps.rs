//! The steps of tasks: values that runs, signals and timers have stored, and that later runs read.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{Epoch, MAX_BATCH_BYTES};
use crate::durable::TaskId;

/// The maximum size in bytes of the value of a step.
pub const MAX_STEP_BYTES: usize = 64 << 10;

/// The maximum number of children that a task spawns.
pub const MAX_CHILDREN: u32 = 4096;

/// The maximum number of steps of a task. The ends of children count, but are stored in any case. So a task with the maximum number of
/// children can have as many other steps.
pub const MAX_STEPS: u32 = 2 * MAX_CHILDREN;

/// The maximum size in bytes of the steps of a task, with their names. The ends of children count, but are stored in any case.
pub const MAX_TOTAL_STEP_BYTES: usize = 2 << 20;

/// The maximum size in bytes of the steps of a task that the output of a child, or the error of a dead one, may fill. Beyond that, only the
/// kind of the end is stored, so that children leave room for other steps.
pub const MAX_BYTES_WITH_OUTPUTS: usize = MAX_TOTAL_STEP_BYTES / 2;

/// The maximum size in bytes of the name that a program gives to a step.
pub(crate) const MAX_STEP_NAME_BYTES: usize = 128;

// So one step always fits into a request.
const _: () = assert!(MAX_STEP_BYTES + 2 * MAX_STEP_NAME_BYTES <= MAX_BATCH_BYTES);

/// The kind of a [step](crate::durable::TaskContext::step), which determines what it records.
///
/// It is serialised as a word, such as `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// The output of a closure.
    Step,
    /// A sleep. It is stored when the sleep begins, and its value is the duration in milliseconds.
    Sleep,
    /// The value of a signal, or that none has arrived in time.
    Signal,
    /// The time for which a task waits for a signal.
    Timeout,
    /// The number of [children](crate::durable::TaskContext::spawn_all) that were spawned together, and the name of their type.
    Spawn,
    /// The end of a child. The name of the step is the id of the child.
    Child,
    /// An operator has [replayed](crate::durable::TaskChange::ReplayFrom) the task from a step. The value is the name of that step.
    Replay,
}

/// The stored name of a step, which begins with its kind. A task has at most one step with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepName(String);

impl StepKind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Step,
        Self::Sleep,
        Self::Signal,
        Self::Timeout,
        Self::Spawn,
        Self::Child,
        Self::Replay,
    ];

    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Step => "step:",
            Self::Sleep => "sleep:",
            Self::Signal => "signal:",
            Self::Timeout => "timeout:",
            Self::Spawn => "spawn:",
            Self::Child => "child:",
            Self::Replay => "replay:",
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix().trim_end_matches(':'))
    }
}

impl StepName {
    /// Returns the name of a step to which a program gives this name, or an error that says how long it may be.
    pub fn new(kind: StepKind, name: &str) -> Result<Self, String> {
        match name.len() {
            1..=MAX_STEP_NAME_BYTES => Ok(Self(format!("{}{name}", kind.prefix()))),
            len => Err(format!(
                "the name of a step has 1 to {MAX_STEP_NAME_BYTES} bytes, and this one has {len}: {name:?}"
            )),
        }
    }

    /// Returns the name of the step that records how a child has ended.
    pub fn of_child(child: TaskId) -> Self {
        Self(format!("{}{child}", StepKind::Child.prefix()))
    }

    /// Returns the name of the step that records a replay. It has the number of the first step that was removed, which makes it unique.
    #[cfg(any(
        test,
        feature = "redis",
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "test-util",
        feature = "unstable-store"
    ))]
    pub fn of_replay(number: u32) -> Self {
        Self(format!("{}{number}", StepKind::Replay.prefix()))
    }

    /// Reads the name that an operator has entered: it begins with the kind, as in `sleep:pause`, or is that of a [`StepKind::Step`].
    pub fn parse(text: &str) -> Result<Self, String> {
        match Self::split(text) {
            Some((kind, name)) => Self::new(kind, name),
            None => Self::new(StepKind::Step, text),
        }
    }

    /// Returns the kind and the rest of a stored name.
    pub fn split(stored: &str) -> Option<(StepKind, &str)> {
        let with = |kind: StepKind| Some((kind, stored.strip_prefix(kind.prefix())?));
        StepKind::ALL.into_iter().find_map(with)
    }

    /// Returns the stored name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A step that the run of a task stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    /// The task.
    pub id: TaskId,
    /// The epoch of the run.
    pub epoch: Epoch,
    /// The name of the step.
    pub name: StepName,
    /// At most [`MAX_STEP_BYTES`].
    pub value: Vec<u8>,
}

impl NewStep {
    /// Returns the size of the step in a request, in bytes.
    pub fn size(&self) -> usize {
        self.name.as_str().len() + self.value.len()
    }
}

/// The answer to a [`NewStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// The step is stored.
    Stored,
    /// The task has a step with this name. This is its value.
    Found(Vec<u8>),
    /// The task is not held under this epoch.
    Refused,
    /// The step would exceed [`MAX_STEPS`] or [`MAX_TOTAL_STEP_BYTES`].
    Full,
    /// The steps of the task cannot be read. Other steps of the request are not affected.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis answers for each step")
    )]
    Corrupt,
}

/// The answer to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAnswer {
    /// The signal is stored.
    Stored,
    /// The task has received a signal with this name before.
    Found,
    /// There is no such task, or it has ended.
    Absent,
    /// The signal would exceed [`MAX_STEPS`] or [`MAX_TOTAL_STEP_BYTES`].
    Full,
}

impl From<StepAnswer> for SignalAnswer {
    fn from(answer: StepAnswer) -> Self {
        match answer {
            StepAnswer::Stored => Self::Stored,
            StepAnswer::Found(_) => Self::Found,
            // A signal whose task is damaged fails, and has no answer.
            StepAnswer::Refused | StepAnswer::Corrupt => Self::Absent,
            StepAnswer::Full => Self::Full,
        }
    }
}

/// A step of a task, as a store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStep {
    /// The stored name of the step, which begins with its kind.
    pub name: String,
    /// The value of the step.
    pub value: Vec<u8>,
    /// The time since it was stored.
    pub age: Duration,
}

/// Returns `true` if a task with this number of steps, of this size in bytes, can have a further step of this size.
pub fn has_room(steps: u32, bytes: usize, added: usize) -> bool {
    steps < MAX_STEPS && bytes + added <= MAX_TOTAL_STEP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_names_a_step_with_its_kind_or_without() {
        let parse = |text: &str| StepName::parse(text).map(|name| name.0);
        assert_eq!(parse("sleep:pause"), Ok("sleep:pause".into()));
        assert_eq!(parse("charge"), Ok("step:charge".into()));
        assert_eq!(parse("a:b"), Ok("step:a:b".into()));
        assert_eq!(parse("step:sleep:pause"), Ok("step:sleep:pause".into()));
        assert!(parse("").is_err() && parse("sleep:").is_err());
        let longest = format!("timeout:{}", "x".repeat(MAX_STEP_NAME_BYTES));
        assert_eq!(parse(&longest), Ok(longest.clone()));
        assert!(parse(&(longest + "x")).is_err());
    }

    #[test]
    fn each_kind_is_found_in_a_stored_name() {
        for kind in StepKind::ALL {
            let name = StepName::new(kind, "a:b").unwrap();
            assert_eq!(StepName::split(name.as_str()), Some((kind, "a:b")));
        }
        assert_eq!(StepName::split("other:a"), None);
    }
}
