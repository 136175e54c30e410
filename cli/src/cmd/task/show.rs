//! `throng task show`: shows one task.

use throng::durable::{
    AttemptError, DeadReason, Excerpt, KeyState, Priority, Runner, Status, TaskDetail, TaskId,
    TaskInfo,
};

use super::steps::{children, timeline, waits};
use super::why::why_waiting;
use crate::cmd::queue::queue_name;
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Line, Output, dash, hex};
use crate::store::Session;

/// Shows one task.
pub(crate) async fn show(session: &Session, id: TaskId, out: &mut Output) -> Result<(), Failure> {
    let detail = session.ask(session.client.admin().task(id)).await?;
    let detail = detail.ok_or_else(|| absent(id))?;
    let mut lines = lines(&detail);
    if let Some(reason) = why_waiting(session, &detail.task).await? {
        let after = lines.iter().position(|(name, _)| *name == "when");
        lines.insert(after.map_or(lines.len(), |it| it + 1), ("waits", reason));
    }
    out.record(&detail, &lines)
}

/// Returns the failure of a task that is not there.
pub(crate) fn absent(id: TaskId) -> Failure {
    Failure::Nothing(format!(
        "the store has no task {id}: it was never stored, or its end is no longer kept"
    ))
}

/// Returns the lines that describe a task. A value that the store does not know has no line.
pub(crate) fn lines(detail: &TaskDetail) -> Vec<Line> {
    let task = &detail.task;
    let lines = [
        ("id", Some(task.id.to_string())),
        ("status", Some(status_name(task.status).into())),
        ("type", task.name.clone()),
        ("version", detail.version.map(|it| it.to_string())),
        ("queue", queue_of(task)),
        ("group", task.group.clone()),
        (
            "priority",
            detail.priority.map(|it| priority_name(it).into()),
        ),
        ("key", detail.key.map(key_state)),
        // A suspended task may be due later than it continues.
        ("when", detail.waits_for.is_empty().then(|| when(task))),
        ("run time", task.took.map(short)),
        (
            "kept",
            task.kept_for.map(|it| format!("for {} more", short(it))),
        ),
        ("failures", task.failures.map(|it| it.to_string())),
        ("crashes", task.crashes.map(|it| it.to_string())),
        ("reason", task.reason.map(|it| it.to_string())),
        ("error", detail.error.clone()),
        ("worker", detail.runner.as_ref().map(runner)),
        ("fencing token", task.fencing_token.map(|it| it.to_string())),
        (
            "lease",
            detail.lease_left.map(|it| format!("{} left", short(it))),
        ),
        (
            "cancel",
            detail.is_cancel_requested.then(|| "requested".into()),
        ),
        ("progress", detail.progress.as_ref().map(excerpt)),
        ("payload", detail.payload.as_ref().map(excerpt)),
        ("output", detail.output.as_ref().map(excerpt)),
        ("parent", detail.parent.map(|it| it.to_string())),
        ("damage", detail.damage.clone()),
    ];
    let lines = lines
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)));
    let lines = lines.chain(waits(detail)).chain(children(detail));
    lines.chain(timeline(detail)).collect()
}

/// A store does not know the queue of a task that has succeeded or was cancelled.
fn queue_of(task: &TaskInfo) -> Option<String> {
    let is_known = !matches!(task.status, Status::Done | Status::Cancelled);
    is_known.then(|| queue_name(task.queue.as_deref()))
}

fn key_state(state: KeyState) -> String {
    match state {
        KeyState::Held => "held".into(),
        KeyState::Released => "released".into(),
        other => format!("{other:?}"),
    }
}

fn runner(runner: &Runner) -> String {
    let process = runner
        .process
        .as_deref()
        .map(|it| format!(" ({it})"))
        .unwrap_or_default();
    let suspect = if runner.is_suspect {
        ", which did not renew its lease in time"
    } else {
        ""
    };
    format!("session {}{process}{suspect}", runner.session)
}

pub(super) fn attempt(error: &AttemptError) -> String {
    let took = error
        .took
        .map(|it| format!(" after {}", short(it)))
        .unwrap_or_default();
    let age = short(error.age);
    format!("{}{took}, {age} ago: {}", error.attempt, error.error)
}

/// Returns a text, or hexadecimal digits, and the number of bytes that are missing.
pub(super) fn excerpt(excerpt: &Excerpt) -> String {
    let text = match excerpt.as_str() {
        Some(text) => text.to_owned(),
        None => hex(&excerpt.bytes),
    };
    match excerpt.is_whole() {
        true => text,
        false => format!("{text} .. ({} bytes in all)", excerpt.len),
    }
}

/// Returns the time that matters for a task with its status.
pub(crate) fn when(task: &TaskInfo) -> String {
    let text = match task.status {
        Status::Waiting => task.ready_for.map(|it| format!("ready for {}", short(it))),
        Status::Delayed => task.due_in.map(|it| format!("due in {}", short(it))),
        Status::Running => task
            .running_for
            .map(|it| format!("running for {}", short(it))),
        Status::Done | Status::Cancelled | Status::Dead => {
            task.age.map(|it| format!("ended {} ago", short(it)))
        }
        _ => None,
    };
    text.unwrap_or_else(dash)
}

pub(crate) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Absent => "absent",
        Status::Waiting => "waiting",
        Status::Delayed => "delayed",
        Status::Running => "running",
        Status::Done => "done",
        Status::Dead => "dead",
        Status::Cancelled => "cancelled",
        _ => "other",
    }
}

fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "high",
        Priority::Normal => "normal",
        Priority::Low => "low",
    }
}

/// Returns a word for the reason of a dead letter.
pub(crate) fn reason_name(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Fatal => "fatal",
        DeadReason::Attempts => "attempts",
        DeadReason::Crashes => "crashes",
        DeadReason::Unreadable => "unreadable",
        DeadReason::OutputTooLarge => "output too large",
        DeadReason::Damaged => "damaged",
        _ => "other",
    }
}
