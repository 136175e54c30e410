//! Adds the steps of a task to its details, and the children and waits that they tell of.

use std::time::Duration;

use super::detail::TaskDetail;
use super::excerpt::Excerpt;
use super::task_step::{TaskChild, TaskStep, TaskWait};
use crate::durable::envelope::open_output;
use crate::durable::store::{Backend, ChildEnd, StepName, StepReplay, StoredStep, TaskState};
use crate::durable::workflow::awaited::{self, AwaitedSteps};
use crate::durable::workflow::spawned_children::SpawnedChildren;
use crate::durable::{Status, StepKind, TaskId};

/// The time by which the end of a sleep may differ from the time at which the task is due: a run measures the first, and a store the
/// second.
const MAX_DEVIATION: Duration = Duration::from_secs(60);

/// Adds the steps to the details of a task. The text describes the steps for which the task waits, if it does.
pub(super) fn add_steps(
    store: &dyn Backend,
    detail: &mut TaskDetail,
    stored: &[StoredStep],
    waits_for: Option<&str>,
) {
    detail.children = children(store, detail.task.id, stored);
    detail.steps = stored.iter().filter_map(step).collect();
    if detail.task.status != Status::Delayed {
        return;
    }
    detail.waits_for = match waits_for.map(awaited::decode) {
        Some(awaited) => {
            let waits = awaited.into_iter().filter_map(|it| wait(detail, it));
            waits.collect()
        }
        // Without a description, the task waits for no signal and no child, so only sleeps can be left.
        None => current_sleeps(detail),
    };
}

fn step(stored: &StoredStep) -> Option<TaskStep> {
    let (kind, name) = StepName::split(&stored.name)?;
    let has_value = match kind {
        StepKind::Child => false,
        StepKind::Signal => !stored.value.is_empty(),
        _ => true,
    };
    let duration: Option<u64> = match kind {
        StepKind::Sleep | StepKind::Timeout => serde_json::from_slice(&stored.value).ok(),
        _ => None,
    };
    let value = match kind {
        StepKind::Replay => StepReplay::step_of(&stored.value),
        _ => &stored.value,
    };
    Some(TaskStep {
        kind,
        name: name.to_owned(),
        age: stored.age,
        value: has_value.then(|| Excerpt::new(value, value.len())),
        left: duration.map(|it| Duration::from_millis(it).saturating_sub(stored.age)),
    })
}

/// Returns the children that were spawned, in that order, and then those that have ended although no step says that they were spawned.
fn children(store: &dyn Backend, parent: TaskId, stored: &[StoredStep]) -> Vec<TaskChild> {
    let mut ends: Vec<_> = stored.iter().filter_map(ended_child).collect();
    let mut children = Vec::new();
    for (name, value) in stored.iter().filter_map(spawn) {
        let Ok(spawned) = serde_json::from_slice::<SpawnedChildren>(value) else {
            continue;
        };
        let ids = spawned.ids(store, parent, name).unwrap_or_default();
        children.extend(ids.into_iter().map(|id| child(id, Some(&spawned.name))));
    }
    for child in &mut children {
        if let Some(at) = ends.iter().position(|end| end.id == child.id) {
            let name = child.name.take();
            *child = TaskChild {
                name,
                ..ends.remove(at)
            };
        }
    }
    children.append(&mut ends);
    children
}

fn spawn(stored: &StoredStep) -> Option<(&str, &[u8])> {
    match StepName::split(&stored.name)? {
        (StepKind::Spawn, name) => Some((name, &stored.value)),
        _ => None,
    }
}

fn ended_child(stored: &StoredStep) -> Option<TaskChild> {
    let (StepKind::Child, id) = StepName::split(&stored.name)? else {
        return None;
    };
    let mut child = child(id.parse().ok()?, None);
    child.age = Some(stored.age);
    match ChildEnd::decode(&stored.value)? {
        ChildEnd::Ended(state) => {
            child.end = Some(state.status());
            match state {
                TaskState::Done(sealed) => child.output = output(&sealed),
                TaskState::Dead { error, .. } => child.error = Some(error),
                _ => {}
            }
        }
        ChildEnd::TooLarge(_) => child.end = Some(Status::Done),
    }
    Some(child)
}

fn output(sealed: &[u8]) -> Option<Excerpt> {
    let opened = open_output(sealed)?;
    Some(Excerpt::new(opened.bytes, opened.bytes.len()))
}

fn child(id: TaskId, name: Option<&str>) -> TaskChild {
    TaskChild {
        id,
        name: name.map(String::from),
        end: None,
        age: None,
        output: None,
        error: None,
    }
}

/// Returns `None` for a sleep that the task does not have.
fn wait(detail: &TaskDetail, awaited: AwaitedSteps) -> Option<TaskWait> {
    let left = |kind: StepKind, name: &str| {
        let mut steps = detail.steps.iter();
        let step = steps.find(|step| step.kind == kind && step.name == name);
        step.and_then(|step| step.left)
    };
    Some(match awaited {
        // The task may be due before the sleep ends.
        AwaitedSteps::Sleep(name) => {
            let (_, name) = StepName::split(name.as_str())?;
            TaskWait::Sleep {
                name: name.to_owned(),
                left: left(StepKind::Sleep, name)?,
            }
        }
        AwaitedSteps::Signal(name) => {
            let name = StepName::split(name.as_str()).map_or("", |(_, name)| name);
            TaskWait::Signal {
                name: name.to_owned(),
                left: left(StepKind::Timeout, name),
            }
        }
        // Some of them may have ended since.
        AwaitedSteps::Children(number) => {
            let left = detail.children.iter().filter(|child| child.end.is_none());
            TaskWait::Children {
                number: number.min(left.count() as u32),
            }
        }
    })
}

/// Returns the sleeps that end when the task is due. Other sleeps are over, or the run did not wait for their end.
fn current_sleeps(detail: &TaskDetail) -> Vec<TaskWait> {
    let due_in = detail.task.due_in.unwrap_or_default();
    let sleeps = detail.steps.iter();
    let sleeps = sleeps.filter(|step| step.kind == StepKind::Sleep);
    let current = sleeps.filter_map(|step| {
        let left = step.left.filter(|left| !left.is_zero())?;
        (left.abs_diff(due_in) <= MAX_DEVIATION).then(|| TaskWait::Sleep {
            name: step.name.clone(),
            left,
        })
    });
    current.collect()
}
