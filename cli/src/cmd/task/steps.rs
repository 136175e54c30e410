//! What `throng task show` prints about the steps of a task, its children and its attempts.

use std::time::Duration;

use throng::durable::{StepKind, TaskChild, TaskDetail, TaskStep, TaskWait};

use super::show::{attempt, excerpt, status_name};
use crate::duration::short;
use crate::out::{Line, dash};

/// Returns the lines that say what a suspended task waits for.
pub(super) fn waits(detail: &TaskDetail) -> impl Iterator<Item = Line> {
    detail.waits_for.iter().map(|it| ("waits for", wait(it)))
}

fn wait(wait: &TaskWait) -> String {
    match wait {
        TaskWait::Sleep { name, left, .. } => format!("the sleep `{name}`, for {}", short(*left)),
        TaskWait::Signal { name, left, .. } => {
            let limit = left.map(|left| format!(", for at most {}", short(left)));
            format!("the signal `{name}`{}", limit.unwrap_or_default())
        }
        TaskWait::Children { number: 1, .. } => "a child".into(),
        TaskWait::Children { number, .. } => format!("{number} children"),
        other => format!("{other:?}"),
    }
}

/// Returns a line for each child.
pub(super) fn children(detail: &TaskDetail) -> impl Iterator<Item = Line> {
    detail.children.iter().map(|it| ("child", child(it)))
}

fn child(child: &TaskChild) -> String {
    let name = child.name.clone().unwrap_or_else(dash);
    let end = child.end.map_or("has not ended", status_name);
    let output = child.output.as_ref().map(excerpt);
    let result = output.or_else(|| child.error.clone());
    let result = result.map(|result| format!(": {result}"));
    format!("{} {name}, {end}{}", child.id, result.unwrap_or_default())
}

/// Returns a line for each step and for each attempt that has failed, the oldest first.
pub(super) fn timeline(detail: &TaskDetail) -> Vec<Line> {
    let attempts = detail.errors.iter();
    let attempts = attempts.map(|it| (it.age, ("attempt", attempt(it))));
    let steps = detail.steps.iter();
    let steps = steps.map(|it| (it.age, ("step", step(detail, it))));
    let mut events: Vec<(Duration, Line)> = attempts.chain(steps).collect();
    // Those of the same time stay in their order.
    events.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    events.into_iter().map(|(_, line)| line).collect()
}

fn step(detail: &TaskDetail, step: &TaskStep) -> String {
    let (name, age) = (step.full_name(), short(step.age));
    let value = match step.kind {
        StepKind::Sleep | StepKind::Timeout => rest(step),
        StepKind::Signal if step.value.is_none() => "it has not arrived in time".into(),
        StepKind::Child => {
            let child = detail.children.iter();
            let child = child.clone().find(|it| it.id.to_string() == step.name);
            let end = child.and_then(|child| child.end);
            end.map_or_else(dash, |end| status_name(end).into())
        }
        _ => step.value.as_ref().map_or_else(dash, excerpt),
    };
    format!("{name}, {age} ago: {value}")
}

fn rest(step: &TaskStep) -> String {
    match step.left {
        Some(left) if left.is_zero() => "it is over".into(),
        Some(left) => format!("{} left", short(left)),
        None => step.value.as_ref().map_or_else(dash, excerpt),
    }
}
