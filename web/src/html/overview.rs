//! The page that summarises a store, and the list of stores.

use axum::response::Html;
use maud::{Markup, html};
use throng::durable::{FindingLevel, TaskInfo};

use super::queues::queue_table;
use super::table::Column::{Number, Text};
use super::table::{cell, main_table, number, row_head, table};
use super::text::{ago, block, count, duration, error_of, line, name};
use super::{Frame, charts};
use crate::views::Answer;
use crate::views::overview::{HealthView, OverviewView, SummaryView, Warning};
use crate::visit::{StoreVisit, Visit};

pub(crate) fn page(visit: &StoreVisit, answer: &Answer<OverviewView>) -> Html<String> {
    let view = &answer.data;
    Frame::of_store(visit, "Overview").live().page(html! {
        @let [(_, warnings), (_, numbers), (_, queues)] = parts(visit, &view.summary);
        (warnings)
        (numbers)
        (charts::section(&visit.base(), &view.charts))
        (queues)
        @if !view.dead.is_empty() { (dead_letters(visit, &view.dead)) }
    })
}

/// Makes the parts that change while the page is open. Each is an element with this id.
pub(crate) fn parts(visit: &StoreVisit, view: &SummaryView) -> [(&'static str, Markup); 3] {
    let queues = queue_table(visit, &view.overview.queues);
    [
        ("part-warnings", warnings(visit, &view.warnings)),
        ("part-numbers", tiles(view)),
        (
            "part-queues",
            html! { section #part-queues data-part { h2 { "Queues" } (queues) } },
        ),
    ]
}

/// Returns the first page of a dashboard with several stores.
pub(crate) fn stores(visit: &Visit, stores: &[(String, HealthView)]) -> Html<String> {
    let rows = stores.iter().map(|(store, health)| {
        html! {
            (row_head("Store", html! { a href={ (visit.root) "s/" (store) } { (store) } }))
            (cell("State", html! { span.state.(health.state) { (health.state) } }))
            (cell("Error", line(health.error.as_deref().unwrap_or_default())))
        }
    });
    let columns = [Text("Store"), Text("State"), Text("Error")];
    let rows: Vec<_> = rows.collect();
    Frame::new(visit, None, "Stores").page(main_table(
        "Stores",
        &columns,
        &rows,
        "There are no stores.",
    ))
}

/// Each warning leads to the page on which an operator can do something about it.
fn warnings(visit: &StoreVisit, warnings: &[Warning]) -> Markup {
    html! {
        div #part-warnings data-part {
            @for warning in warnings {
                p.warning.(warning.level) {
                    b { @if warning.level == FindingLevel::Error { "Error" } @else { "Warning" } }
                    " " (linked(visit, warning))
                    @if let Some((title, path)) = page_about(warning.id) {
                        " " a href={ (visit.base()) (path) } { (title) }
                    }
                }
            }
        }
    }
}

/// Returns the text of a warning, in which the ids of tasks are links.
fn linked(visit: &StoreVisit, warning: &Warning) -> Markup {
    let text = block(&warning.text);
    let mut rest = text.as_str();
    let mut parts = Vec::new();
    for id in &warning.tasks {
        if let Some((before, after)) = rest.split_once(&id.to_string()) {
            parts.push(html! { (before) a.id href={ (visit.base()) "/task/" (id) } { (id) } });
            rest = after;
        }
    }
    html! { @for part in &parts { (part) } (rest) }
}

/// Returns the title and the path of the page about a finding, given the id of the finding.
fn page_about(id: &str) -> Option<(&'static str, &'static str)> {
    let (subject, _) = id.split_once('.')?;
    match subject {
        "queues" => Some(("Go to the queues", "/queues")),
        "types" => Some(("Go to the types", "/types")),
        "workers" | "leases" => Some(("Go to the workers", "/workers")),
        "schedules" => Some(("Go to the schedules", "/schedules")),
        "dead_letters" => Some(("Go to the dead letters", "/dead")),
        _ => None,
    }
}

fn tiles(view: &SummaryView) -> Markup {
    let (counts, numbers) = (&view.overview.counts, &view.numbers);
    let oldest = numbers.oldest_waiting.map(duration);
    let bad = |number: u64| (number > 0).then_some("bad");
    let tiles = [
        (
            "Longest wait",
            oldest.unwrap_or_else(|| "\u{2013}".into()),
            None,
        ),
        ("Waiting", count(counts.waiting), None),
        ("Running", count(counts.running), None),
        ("Delayed", count(counts.delayed), None),
        ("Dead", count(counts.dead), bad(counts.dead)),
        ("Done, last hour", count(numbers.done_last_hour), None),
        ("Failed, last hour", count(numbers.failed_last_hour), None),
        ("Workers", count(numbers.workers), None),
    ];
    html! {
        dl.tiles #part-numbers data-part {
            @for (title, value, class) in tiles {
                div class=[class] { dt { (title) } dd { (value) } }
            }
        }
    }
}

fn dead_letters(visit: &StoreVisit, tasks: &[TaskInfo]) -> Markup {
    let rows = tasks.iter().map(|task| {
        let link = format!("{}/task/{}", visit.base(), task.id);
        html! {
            (row_head("Type", html! { a href=(link) { (name(task.name.as_deref())) } }))
            (cell("Error", error_of(task)))
            (number("Died", ago(task.age)))
        }
    });
    let columns = [Text("Type"), Text("Error"), Number("Died")];
    table(
        "Newest dead letters",
        &columns,
        &rows.collect::<Vec<_>>(),
        "",
    )
}
