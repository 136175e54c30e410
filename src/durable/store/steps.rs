//! The steps of tasks: values that runs, signals and timers have stored, and that later runs read.

use std::time::Duration;

use super::{Epoch, MAX_BATCH_BYTES};
use crate::durable::TaskId;

/// The maximum size in bytes of the value of a step.
pub(crate) const MAX_STEP_BYTES: usize = 64 << 10;

/// The maximum number of steps of a task.
pub(crate) const MAX_STEPS: u32 = 4096;

/// The maximum size in bytes of the steps of a task, with their names.
pub(crate) const MAX_TOTAL_STEP_BYTES: usize = 1 << 20;

/// The maximum size in bytes of the name that a program gives to a step.
pub(crate) const MAX_STEP_NAME_BYTES: usize = 128;

// So one step always fits into a request.
const _: () = assert!(MAX_STEP_BYTES + 2 * MAX_STEP_NAME_BYTES <= MAX_BATCH_BYTES);

/// What a step records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// The output of a closure.
    Step,
    /// The end of a sleep.
    Sleep,
    /// The value of a signal, or that none has arrived in time.
    Signal,
    /// The time for which a task waits for a signal.
    Timeout,
    /// The number of children that were spawned together.
    Spawn,
}

/// The stored name of a step, which begins with its kind. A task has at most one step with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StepName(String);

impl StepKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Step => "step:",
            Self::Sleep => "sleep:",
            Self::Signal => "signal:",
            Self::Timeout => "timeout:",
            Self::Spawn => "spawn:",
        }
    }
}

impl StepName {
    /// Returns the name of a step to which a program gives this name, or an error that says how long it may be.
    pub(crate) fn new(kind: StepKind, name: &str) -> Result<Self, String> {
        match name.len() {
            1..=MAX_STEP_NAME_BYTES => Ok(Self(format!("{}{name}", kind.prefix()))),
            len => Err(format!(
                "the name of a step has 1 to {MAX_STEP_NAME_BYTES} bytes, and this one has {len}: {name:?}"
            )),
        }
    }

    /// Returns the name of the step that records how a child has ended.
    pub(crate) fn of_child(child: TaskId) -> Self {
        Self(format!("child:{child}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A step that the run of a task stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewStep {
    pub(crate) id: TaskId,
    /// The epoch of the run.
    pub(crate) epoch: Epoch,
    pub(crate) name: StepName,
    /// At most [`MAX_STEP_BYTES`].
    pub(crate) value: Vec<u8>,
}

impl NewStep {
    /// Returns the size of the step in a request, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.name.as_str().len() + self.value.len()
    }
}

/// The answer to a [`NewStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepAnswer {
    Stored,
    /// The task has a step with this name. This is its value.
    Found(Vec<u8>),
    /// The task is not held under this epoch.
    Refused,
    /// The step would exceed [`MAX_STEPS`] or [`MAX_TOTAL_STEP_BYTES`].
    Full,
}

/// The answer to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAnswer {
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
            StepAnswer::Refused => Self::Absent,
            StepAnswer::Full => Self::Full,
        }
    }
}

/// A step of a task, as a store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredStep {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
    /// The time since it was stored.
    pub(crate) age: Duration,
}

/// Returns `true` if a task with this number of steps, of this size in bytes, can have a further step of this size.
pub(crate) fn has_room(steps: u32, bytes: usize, added: usize) -> bool {
    steps < MAX_STEPS && bytes + added <= MAX_TOTAL_STEP_BYTES
}
