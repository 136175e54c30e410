//! The steps of a task, its children and its parent.

use std::time::Duration;

use serde::Serialize;
use throng::durable::{Status, StepKind, TaskChild, TaskDetail, TaskId, TaskStep, TaskWait};

use super::{millis, optional_millis};
use crate::redact::{Document, Redactor, Shown, ShownPart};

/// The steps, the waits, the children and the parent of a task. Most tasks have none.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowView {
    pub(crate) parent: Option<TaskId>,
    /// What a suspended task waits for.
    pub(crate) waits_for: Vec<TaskWait>,
    /// The last steps, in the order in which they were stored.
    pub(crate) steps: Vec<StepView>,
    /// The number of all steps.
    pub(crate) step_count: usize,
    /// The first children.
    pub(crate) children: Vec<ChildView>,
    /// The number of all children.
    pub(crate) child_count: usize,
    /// The number of the children whose ends the task knows.
    pub(crate) ended_child_count: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct StepView {
    pub(crate) kind: StepKind,
    pub(crate) name: String,
    #[serde(serialize_with = "millis")]
    pub(crate) age: Duration,
    pub(crate) value: Option<Document>,
    /// The rest of a sleep, or of the time for which the task waits for a signal.
    #[serde(serialize_with = "optional_millis")]
    pub(crate) left: Option<Duration>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChildView {
    pub(crate) id: TaskId,
    pub(crate) name: Option<String>,
    /// The status of the child at its end, or `None` if the task has no step that says that it has ended.
    pub(crate) end: Option<Status>,
    #[serde(serialize_with = "optional_millis")]
    pub(crate) age: Option<Duration>,
    pub(crate) output: Option<Document>,
    pub(crate) error: Option<String>,
}

/// The maximum number of steps, and of children, of a view.
const MAX_ROWS: usize = 200;

impl WorkflowView {
    pub(super) fn new(redactor: &Redactor, detail: &TaskDetail) -> Self {
        let (steps, children) = (&detail.steps, &detail.children);
        let last = &steps[steps.len().saturating_sub(MAX_ROWS)..];
        let first = &children[..children.len().min(MAX_ROWS)];
        Self {
            parent: detail.parent,
            waits_for: detail.waits_for.clone(),
            steps: last.iter().map(|it| step(redactor, detail, it)).collect(),
            step_count: steps.len(),
            children: first.iter().map(|it| child(redactor, it)).collect(),
            child_count: children.len(),
            ended_child_count: children.iter().filter(|it| it.end.is_some()).count(),
        }
    }

    /// Returns `true` if the task has steps or waits for some.
    pub(crate) fn is_used(&self) -> bool {
        self.step_count > 0 || !self.waits_for.is_empty()
    }

    /// Returns `false` if a replay from this step would repeat nothing. The record of a replay repeats the steps after it, and the last
    /// step has none.
    pub(crate) fn can_replay_from(&self, step: &StepView) -> bool {
        let is_last = self
            .steps
            .last()
            .is_some_and(|last| std::ptr::eq(last, step));
        step.kind != StepKind::Replay || !is_last
    }
}

impl StepView {
    /// Returns the kind and the name, as in `sleep:pause`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}:{}", self.kind, self.name)
    }
}

fn step(redactor: &Redactor, detail: &TaskDetail, step: &TaskStep) -> StepView {
    let (id, name) = (detail.task.id, detail.task.name.as_deref());
    let mut shown = Shown::new(id, name, ShownPart::Step);
    shown.step = Some(&step.name);
    let value = step.value.as_ref();
    StepView {
        kind: step.kind,
        name: step.name.clone(),
        age: step.age,
        value: match step.kind {
            // The fields of these tell all.
            StepKind::Sleep | StepKind::Timeout => None,
            // Its value is the name of a step.
            StepKind::Replay => value.map(|value| Document {
                len: value.len,
                text: value.as_str().map(String::from),
                note: None,
            }),
            _ => value.map(|value| redactor.step(&shown, value)),
        },
        left: step.left,
    }
}

fn child(redactor: &Redactor, child: &TaskChild) -> ChildView {
    let (id, name) = (child.id, child.name.as_deref());
    let shown = Shown::new(id, name, ShownPart::Output);
    let output = child.output.as_ref();
    let output = output.map(|it| redactor.step(&shown, it));
    let error = child.error.as_deref();
    ChildView {
        id,
        name: child.name.clone(),
        end: child.end,
        age: child.age,
        output,
        error: error.map(|error| redactor.error(id, name, error)),
    }
}
