//! The page of one task.

use axum::response::Html;
use maud::{Markup, html};
use serde::Deserialize;
use throng::durable::{AttemptError, Refusal, Runner, Status, TaskInfo, WaitReason};

use super::table::Column::{Number, Text};
use super::table::{cell, fact_list, link, number, row_head, table};
use super::text::{ago, block, count, counted, duration, line, name, optional_duration, queue};
use super::workflow::{self, WorkflowNotice};
use super::{Frame, workers};
use crate::operations::action::TaskAction;
use crate::redact::Document;
use crate::views::Answer;
use crate::views::task::TaskView;
use crate::views::tasks::code_of;
use crate::visit::StoreVisit;

/// The effect of the last operation, from the URL to which it has led. Texts of the URL are never shown.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TaskNotice {
    did: Option<TaskAction>,
    effect: Option<String>,
    #[serde(flatten)]
    workflow: WorkflowNotice,
}

/// The refusals for which a notice has a sentence.
const REFUSALS: [Refusal; 4] = [
    Refusal::KeyHeld,
    Refusal::Replaceable,
    Refusal::OtherPartition,
    Refusal::Unreadable,
];

pub(crate) fn page(
    visit: &StoreVisit,
    answer: &Answer<TaskView>,
    notice: &TaskNotice,
) -> Html<String> {
    let view = &answer.data;
    Frame::of_store(visit, "Task").page(html! {
        @if let Some(notice) = notice.text() { p.notice role="status" { (notice) } }
        p {
            code.id { (view.task.id) } " "
            strong { (name(view.task.name.as_deref())) } " "
            (state(&view.task))
        }
        (workflow::waits(&view.workflow))
        @if view.task.status == Status::Waiting { (wait(visit, view.wait_reason)) }
        @if visit.visit.can_operate {
            (operations(visit, view))
            (workflow::signal_forms(visit, view))
        }
        (facts(visit, view))
        (same_type(visit, &view.task))
        @if let Some(damage) = &view.damage { p.warning { "Damaged: " (block(damage)) } }
        @if let Some(error) = view.error.as_deref().filter(|it| !it.is_empty()) { h2 { "Last error" } pre { (block(error)) } }
        (workflow::sections(visit, view))
        @if !view.workflow.is_used() { (errors(&view.errors)) }
        (document("Payload", view.payload.as_ref()))
        (document("Progress", view.progress.as_ref()))
        (document("Output", view.output.as_ref()))
    })
}

/// Returns the page that says that a task was deleted.
pub(crate) fn gone(visit: &StoreVisit) -> Html<String> {
    Frame::of_store(visit, "Task").page(html! {
        p.notice role="status" { "The dead letter was deleted." }
        p { a href={ (visit.base()) "/dead" } { "Go to the dead letters" } }
    })
}

impl TaskNotice {
    /// Returns `true` if the operation has deleted the task, so that there is no page for it.
    pub(crate) fn is_deletion(&self) -> bool {
        self.did == Some(TaskAction::Delete) && self.effect.as_deref() == Some("yes")
    }

    fn text(&self) -> Option<String> {
        if let Some(text) = self.workflow.text() {
            return Some(text.into());
        }
        let (did, effect) = (self.did?.done(), self.effect.as_deref()?);
        let refusal = REFUSALS.iter().find(|refusal| code_of(refusal) == effect);
        Some(match (effect, refusal) {
            ("yes", _) => {
                format!("The task was {did}. A running task stops when its worker notices this.")
            }
            ("already", _) => {
                String::from("Nothing was changed: the task is already in this queue.")
            }
            (_, Some(refusal)) => format!("The task was not {did}: {refusal}."),
            _ => format!(
                "The task was not {did}, because its status has changed meanwhile. Reload the page to see it."
            ),
        })
    }
}

/// Says why a task waits, with a link to where an operator can do something about it.
fn wait(visit: &StoreVisit, reason: Option<WaitReason>) -> Markup {
    let Some(reason) = reason else {
        return html! {
            p.muted {
                "Other tasks may be before this one, or the rate limit of its queue delays it. "
                a href={ (visit.base()) "#part-warnings" } { "Why do tasks wait?" }
            }
        };
    };
    let (title, path) = match reason {
        WaitReason::TypePaused | WaitReason::TypeUnserved => ("Go to the types", "/types"),
        _ => ("Go to the queues", "/queues"),
    };
    html! {
        p.warning { "This task waits because " (reason) ". " a href={ (visit.base()) (path) } { (title) } }
    }
}

/// Returns the state of a task as a word.
pub(crate) fn state(task: &TaskInfo) -> Markup {
    let code = code_of(&task.status);
    html! { span.state.(code) { (code) } }
}

fn operations(visit: &StoreVisit, view: &TaskView) -> Markup {
    let path =
        |action: TaskAction| format!("{}/task/{}/{}", visit.base(), view.task.id, action.code());
    html! {
        div.operation {
            @for &action in &view.actions {
                form method="post" action=(path(action)) {
                    @if action == TaskAction::Move {
                        label { "to the queue " input name="to" placeholder="(default)"; }
                    }
                    button class=[action.is_destructive().then_some("danger")] { (action.title()) }
                }
            }
        }
    }
}

fn facts(visit: &StoreVisit, view: &TaskView) -> Markup {
    let task = &view.task;
    let shown = |text: Option<String>| text.map(|text| html! { (text) });
    let numbers = |number: Option<u32>| shown(number.map(|number| count(u64::from(number))));
    let times = |time| shown(Option::map(time, duration));
    let facts = [
        ("Queue", Some(queue(task.queue.as_deref()))),
        ("Parent", workflow::parent(visit, &view.workflow)),
        ("Group", shown(task.group.as_deref().map(line))),
        ("Priority", shown(view.priority.map(|it| code_of(&it)))),
        ("Key", shown(view.key.map(|it| code_of(&it)))),
        ("Failures", numbers(task.failures)),
        ("Crashes", numbers(task.crashes)),
        ("Ready for", times(task.ready_for)),
        // A suspended task may be due later than it continues.
        (
            "Due in",
            times(task.due_in).filter(|_| view.workflow.waits_for.is_empty()),
        ),
        ("Running for", times(task.running_for)),
        ("Run time", times(task.took)),
        (
            "Ended",
            shown(task.age.map(|age| format!("{} ago", duration(age)))),
        ),
        (
            "Reason",
            shown(task.reason.map(|reason| reason.to_string())),
        ),
        ("Kept for", times(task.kept_for)),
        (
            "Fencing token",
            shown(task.fencing_token.map(|token| token.to_string())),
        ),
        ("Lease left", times(view.lease_left)),
        ("Worker", view.runner.as_ref().map(|it| runner(visit, it))),
        (
            "Cancellation",
            view.is_cancel_requested.then(|| html! { "requested" }),
        ),
        (
            "Version of the type",
            shown(view.version.map(|it| it.to_string())),
        ),
    ];
    fact_list(facts)
}

/// Links to the other tasks of the type.
fn same_type(visit: &StoreVisit, task: &TaskInfo) -> Markup {
    let waiting = format!("{}/tasks/waiting", visit.base());
    html! {
        @if let Some(name) = task.name.as_deref() {
            p { a href=(link(&waiting, &[("name", name)])) { "Waiting tasks of this type" } }
        }
    }
}

fn runner(visit: &StoreVisit, runner: &Runner) -> Markup {
    html! {
        a href=(workers::path(visit, runner.session)) {
            @if let Some(process) = &runner.process { (line(process)) } @else { "session " (runner.session) }
        }
        @if runner.is_suspect { " " span.state.suspect { "suspect" } }
    }
}

fn errors(errors: &[AttemptError]) -> Markup {
    let rows = errors.iter().map(|it| {
        html! {
            (row_head("Attempt", count(u64::from(it.attempt))))
            (cell("Error", block(&it.error)))
            (number("Took", optional_duration(it.took)))
            (number("Ended", ago(Some(it.age))))
        }
    });
    let columns = [
        Text("Attempt"),
        Text("Error"),
        Number("Took"),
        Number("Ended"),
    ];
    let rows: Vec<_> = rows.collect();
    html! {
        @if !rows.is_empty() { (table("Errors of attempts, the oldest first", &columns, &rows, "")) }
    }
}

fn document(title: &str, document: Option<&Document>) -> Markup {
    html! {
        @if let Some(document) = document {
            h2 { (title) " " span.muted { (counted(document.len as u64, "byte")) } }
            @if let Some(text) = &document.text { pre { code { (block(text)) } } }
            @if let Some(note) = document.note {
                p.muted { "This value is not shown, since it cannot be searched for confidential data. " (note) }
            }
        }
    }
}
