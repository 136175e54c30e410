//! The steps of a task on its page, its children, and the forms that change them.

use std::time::Duration;

use axum::response::Html;
use maud::{Markup, html};
use serde::Deserialize;
use throng::durable::{AttemptError, Status, StepKind, TaskId, TaskWait};

use super::table::Column::{Number, Text};
use super::table::{cell, number, row_head, table};
use super::text::{ago, block, count, dash, duration, line, name, optional_duration};
use super::{Frame, hidden};
use crate::form_text::encoded;
use crate::operations::MAX_STEP_NAME_BYTES;
use crate::redact::Document;
use crate::views::task::TaskView;
use crate::views::tasks::code_of;
use crate::views::workflow::{ChildView, StepView, WorkflowView};
use crate::visit::StoreVisit;

/// The effect of the last operation on a workflow, from the URL to which it has led. Texts of the URL are never shown.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WorkflowNotice {
    replayed: Option<String>,
    signalled: Option<String>,
}

impl WorkflowNotice {
    pub(super) fn text(&self) -> Option<&'static str> {
        match (self.replayed.as_deref(), self.signalled.as_deref()) {
            (Some(effect), _) => Some(replayed(effect)),
            (None, Some(effect)) => signalled(effect),
            (None, None) => None,
        }
    }
}

/// Returns what a replay has done or, if it was refused, the reason and the remedy.
fn replayed(effect: &str) -> &'static str {
    match effect {
        "yes" => "The task runs again from the step.",
        "already" => {
            "Nothing was changed: the task was already replayed from this step, and has not stored it since. Wait for its next run."
        }
        "no_such_step" => {
            "Nothing was changed: the task has no step with this name. Another replay may have removed it. Choose a step of the timeline."
        }
        "key_held" => {
            "Nothing was changed: another task holds the key of this one. Wait until that task has ended or cancel it, and repeat the replay."
        }
        "unreadable" => {
            "Nothing was changed: a part of the task is lost, or a newer version of throng has written it. Update the dashboard to the version of \
             the workers, or check the store with `throng doctor`."
        }
        "not_in" => {
            "Nothing was changed: the task has started or ended meanwhile. If it is running, wait for the end of its run, and \
             then repeat the replay."
        }
        _ => {
            "Nothing was changed. Look at the status and the steps of the task before you repeat the replay."
        }
    }
}

/// Returns what a signal has done, or why it was not sent and what to do instead.
fn signalled(effect: &str) -> Option<&'static str> {
    match effect {
        "yes" => Some("The signal was sent."),
        "already" => Some(
            "Nothing was changed: the task has already received this signal, or has given up waiting for it. To send another value, first \
             replay the task from the step of the signal.",
        ),
        _ => None,
    }
}

/// The beginning of the name of a step that has spawned children.
const SPAWN: &str = "spawn:";

/// Asks whether to replay a task from a step.
pub(crate) fn confirmation(visit: &StoreVisit, view: &TaskView, step: &str) -> Html<String> {
    let path = path(visit, view.task.id);
    Frame::of_store(visit, "Confirm").page(html! {
        h2 { "Replay from here?" }
        p { "The task " code.id { (view.task.id) } " runs again from its step " code { (line(step)) } "." }
        p.warning { (removal(step)) }
        form.operation method="post" action={ (path) "/replay-from" } {
            (hidden("step", &encoded(step)))
            button.danger { "Replay from here" }
            " " a href=(path) { "Back" }
        }
    })
}

/// Returns what a replay from a step removes. A child may have ended before the step that records its spawn was stored.
fn removal(step: &str) -> &'static str {
    match step.starts_with(SPAWN) {
        true => {
            "This step, the ends of its children, and everything after the first of these are removed, signals included, and cannot be restored."
        }
        false => {
            "This step and all later ones are removed, signals included, and cannot be restored."
        }
    }
}

/// Shows what a suspended task waits for.
pub(super) fn waits(workflow: &WorkflowView) -> Markup {
    html! {
        @for wait in &workflow.waits_for { p { "This task waits for " (wait_text(wait)) "." } }
    }
}

fn wait_text(wait: &TaskWait) -> Markup {
    match wait {
        TaskWait::Sleep { name, left, .. } => html! {
            "the end of its sleep " code { (line(name)) } ", in " (duration(*left))
        },
        TaskWait::Signal { name, left, .. } => html! {
            "the signal " code { (line(name)) }
            @if let Some(left) = left { ", for at most " (duration(*left)) }
        },
        TaskWait::Children { number: 1, .. } => html! { "a child" },
        TaskWait::Children { number, .. } => html! { (count(u64::from(*number))) " children" },
        _ => html! { "something that this version does not know" },
    }
}

/// Returns the link to the parent.
pub(super) fn parent(visit: &StoreVisit, workflow: &WorkflowView) -> Option<Markup> {
    let id = workflow.parent?;
    Some(html! { a href=(path(visit, id)) { code.id { (id) } } })
}

/// Returns the forms that send a signal, if the task may wait for one. A name that a text field would change or hide has a form of its own.
pub(super) fn signal_forms(visit: &StoreVisit, view: &TaskView) -> Markup {
    let workflow = &view.workflow;
    let awaited = workflow.waits_for.iter().filter_map(|wait| match wait {
        TaskWait::Signal { name, .. } => Some(&**name),
        _ => None,
    });
    let (plain, odd): (Vec<_>, Vec<_>) = awaited.partition(|name| is_plain(name));
    let name = plain.first().copied().unwrap_or_default();
    html! {
        @if workflow.is_used() && !view.task.status.is_final() {
            @for name in odd {
                (signal_form(visit, view.task.id, &html! {
                    (hidden("awaited", &encoded(name)))
                    span { "signal " code { (line(name)) } }
                }))
            }
            (signal_form(visit, view.task.id, &html! {
                label { "signal " input name="name" maxlength=(MAX_STEP_NAME_BYTES) required value=(name); }
            }))
        }
    }
}

/// Returns `true` if a text field shows this name as it is. Such a field has neither line breaks nor other control characters.
fn is_plain(name: &str) -> bool {
    line(name) == name
}

fn signal_form(visit: &StoreVisit, id: TaskId, name: &Markup) -> Markup {
    html! {
        form.operation method="post" action={ (path(visit, id)) "/signal" } {
            (name)
            label { "value as JSON " input name="value" placeholder="null"; }
            button { "Send signal" }
        }
    }
}

/// Returns the children and the timeline.
pub(super) fn sections(visit: &StoreVisit, view: &TaskView) -> Markup {
    html! {
        (children(visit, &view.workflow))
        @if view.workflow.is_used() { (timeline(visit, view)) }
    }
}

fn children(visit: &StoreVisit, workflow: &WorkflowView) -> Markup {
    let rows = workflow.children.iter().map(|it| child(visit, it));
    let rows: Vec<_> = rows.collect();
    let columns = [
        Text("Child"),
        Text("Type"),
        Text("End"),
        Text("Result"),
        Number("Known"),
    ];
    let (ended, all) = (workflow.ended_child_count, workflow.child_count);
    let caption = format!(
        "Children: {} of {} have ended",
        count(ended as u64),
        count(all as u64)
    );
    html! {
        @if !rows.is_empty() { (table(&caption, &columns, &rows, "")) }
        @if all > rows.len() { p.muted { "The other children are not shown." } }
    }
}

fn child(visit: &StoreVisit, child: &ChildView) -> Markup {
    let end = child.end.map(|end| code_of(&end));
    html! {
        (row_head("Child", html! { a href=(path(visit, child.id)) { code.id { (child.id) } } }))
        (cell("Type", name(child.name.as_deref())))
        (cell("End", html! {
            @match &end {
                Some(end) => span.state.(end) { (end) },
                None => span.muted { "not known" },
            }
        }))
        (cell("Result", html! {
            @if let Some(error) = &child.error { (block(error)) } @else { (value(child.output.as_ref())) }
        }))
        (number("Known", html! { @match child.age { Some(age) => (ago(Some(age))), None => (dash()) } }))
    }
}

/// An event of a timeline.
enum TimelineEvent<'a> {
    Attempt(&'a AttemptError),
    Step(&'a StepView),
}

impl TimelineEvent<'_> {
    fn age(&self) -> Duration {
        match self {
            Self::Attempt(error) => error.age,
            Self::Step(step) => step.age,
        }
    }
}

/// Returns the steps and the attempts that have failed, the oldest first.
fn timeline(visit: &StoreVisit, view: &TaskView) -> Markup {
    let attempts = view.errors.iter().map(TimelineEvent::Attempt);
    let steps = view.workflow.steps.iter().map(TimelineEvent::Step);
    let mut events: Vec<_> = attempts.chain(steps).collect();
    // Those of the same time stay in their order.
    events.sort_by_key(|event| std::cmp::Reverse(event.age()));
    let can_replay = visit.visit.can_operate
        && matches!(
            view.task.status,
            Status::Waiting | Status::Delayed | Status::Dead
        );
    let mut columns = vec![Text("Event"), Text("Name"), Text("Value"), Number("Time")];
    if can_replay {
        columns.push(Text("Replay"));
    }
    let row = |event: &TimelineEvent<'_>| match event {
        TimelineEvent::Attempt(error) => attempt(error, can_replay),
        TimelineEvent::Step(step) => step_row(visit, view, step, can_replay),
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    let missing = view.workflow.step_count - view.workflow.steps.len();
    html! {
        @if missing > 0 { p.muted { (count(missing as u64)) " earlier steps are not shown." } }
        (table("Timeline, the oldest event first", &columns, &rows, ""))
    }
}

fn attempt(error: &AttemptError, has_button: bool) -> Markup {
    html! {
        (row_head("Event", html! { "attempt " (count(u64::from(error.attempt))) }))
        (cell("Name", html! { span.muted { "failed after " (optional_duration(error.took)) } }))
        (cell("Value", block(&error.error)))
        (number("Time", ago(Some(error.age))))
        @if has_button { (cell("Replay", dash())) }
    }
}

fn step_row(visit: &StoreVisit, view: &TaskView, step: &StepView, can_replay: bool) -> Markup {
    html! {
        (row_head("Event", step.kind.to_string()))
        (cell("Name", line(&step.name)))
        (cell("Value", step_value(step)))
        (number("Time", ago(Some(step.age))))
        @if can_replay {
            @if view.workflow.can_replay_from(step) {
                (cell("Replay", replay_button(visit, view.task.id, step)))
            } @else {
                (cell("Replay", dash()))
            }
        }
    }
}

fn replay_button(visit: &StoreVisit, id: TaskId, step: &StepView) -> Markup {
    html! {
        form method="post" action={ (path(visit, id)) "/replay-from/confirm" } {
            (hidden("step", &encoded(&step.full_name())))
            button { "Replay from here" }
        }
    }
}

fn step_value(step: &StepView) -> Markup {
    match (step.kind, step.left) {
        (StepKind::Sleep | StepKind::Timeout, Some(Duration::ZERO)) => html! { "over" },
        (StepKind::Sleep | StepKind::Timeout, Some(left)) => html! { (duration(left)) " left" },
        (StepKind::Signal, _) if step.value.is_none() => html! { "not arrived in time" },
        _ => value(step.value.as_ref()),
    }
}

/// Returns a value, or the reason why it is not shown.
fn value(document: Option<&Document>) -> Markup {
    html! {
        @match document {
            None => (dash()),
            Some(document) => {
                @if let Some(text) = &document.text { code { (block(text)) } }
                @if let Some(note) = document.note { span.muted { "Not shown. " (note) } }
            }
        }
    }
}

fn path(visit: &StoreVisit, id: TaskId) -> String {
    format!("{}/task/{id}", visit.base())
}
