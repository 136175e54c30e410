//! The pages that confirm and show a change of many tasks.

use axum::response::Html;
use maud::{Markup, html};

use super::text::{count, line, time};
use super::{Frame, hidden};
use crate::operations::action::TaskAction;
use crate::operations::bulk::BulkOrder;
use crate::operations::jobs::{BulkJob, BulkProgress, JobState};
use crate::views::tasks::TaskList;
use crate::visit::StoreVisit;

/// Asks whether an order is to be executed.
pub(crate) fn confirmation(visit: &StoreVisit, order: &BulkOrder) -> Html<String> {
    let title = order.action.title();
    Frame::of_store(visit, "Confirm").page(html! {
        h2 { (title) "?" }
        p { (sentence(visit, order)) }
        @if order.action == TaskAction::Delete { p.warning { "Deleted dead letters cannot be restored." } }
        form.operation method="post" action={ (visit.base()) "/bulk" } {
            @for (name, value) in order.fields() { (hidden(name, &value)) }
            @let class = if order.action.is_destructive() { "danger" } else { "primary" };
            button class=(class) { (title) }
            " " a href=(back(visit, order)) { "Back" }
        }
    })
}

/// Shows the progress of a bulk change.
pub(crate) fn job(visit: &StoreVisit, job: &BulkJob) -> Html<String> {
    let progress = job.progress();
    let order = &job.order;
    Frame::of_store(visit, "Bulk change").page(html! {
        p { strong { (order.action.title()) } ": " (sentence(visit, order)) }
        @let is_running = progress.state == JobState::Running;
        div #part-job data-part data-refresh[is_running] {
            (outcome(order, &progress))
            @if is_running { (controls(visit, job)) }
        }
        p { a href=(back(visit, order)) { "Back to the list" } }
    })
}

fn controls(visit: &StoreVisit, job: &BulkJob) -> Markup {
    html! {
        p { a href="" { "Refresh" } }
        @if visit.visit.can_operate {
            form.operation method="post" action={ (visit.base()) "/bulk/" (job.number) "/stop" } {
                button { "Stop" }
            }
        }
    }
}

fn outcome(order: &BulkOrder, progress: &BulkProgress) -> Markup {
    let state = match progress.state {
        JobState::Running => "running",
        JobState::Finished => "finished",
        JobState::Stopped => "stopped",
        JobState::Failed => "failed",
    };
    html! {
        p role="status" {
            span.state.(state) { (state) } ": "
            (count(progress.changed)) " " (order.action.done()) ", "
            (count(progress.unchanged)) " unchanged"
            @for (refusal, tasks) in &progress.refused { ", " (count(*tasks)) " refused: " (refusal) }
            ". Examined " (count(progress.examined as u64)) "."
        }
        @if let Some(error) = &progress.error { p.warning { (line(error)) } }
    }
}

/// Returns a sentence about the tasks that an order selects.
fn sentence(visit: &StoreVisit, order: &BulkOrder) -> Markup {
    html! {
        @match order.ids.len() {
            0 => (all_that_match(order)),
            1 => "The selected task",
            tasks => { "The " (count(tasks as u64)) " selected tasks" }
        }
        " in the store " strong { (visit.store.name) } "."
        @if order.action == TaskAction::Move {
            " They move to "
            @match &order.to {
                Some(queue) => { "the queue " strong { (line(queue)) } }
                None => "the default queue",
            }
            "."
        }
    }
}

fn all_that_match(order: &BulkOrder) -> Markup {
    let tasks = match order.list {
        Some(TaskList::Dead) => "dead letters".into(),
        Some(TaskList::Retrying) => "delayed tasks that have failed".into(),
        Some(list) => format!("{} tasks", list.code()),
        None => String::new(),
    };
    html! {
        "All " (tasks)
        @if let Some(name) = &order.name { " of the type " strong { (line(name)) } }
        @if let Some(queue) = &order.queue { " in the queue " strong { (line(queue)) } }
        @if let Some(error) = &order.error { " with an error that contains " strong { (line(error)) } }
        @if let Some(until) = order.until() {
            @if order.list == Some(TaskList::Dead) { " that died by " } @else { " that were spawned by " }
            (time(until))
        }
    }
}

fn back(visit: &StoreVisit, order: &BulkOrder) -> String {
    match order.list {
        None | Some(TaskList::Dead) => format!("{}/dead", visit.base()),
        Some(list) => format!("{}/tasks/{}", visit.base(), list.code()),
    }
}
