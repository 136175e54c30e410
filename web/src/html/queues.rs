//! The pages of queues and of types.

use axum::response::Html;
use maud::{Markup, html};
use throng::durable::{QueueOverview, QueueSettings, TypeOverview};

use super::table::Column::{Number, Text};
use super::table::{cell, link, main_table, number, row_head, table};
use super::text::{count, dash, duration, optional_duration, queue, word};
use super::{Frame, name_form};
use crate::views::Answer;
use crate::views::queues::{QueuesView, TypesView};
use crate::visit::StoreVisit;

pub(crate) fn queues(visit: &StoreVisit, answer: &Answer<QueuesView>) -> Html<String> {
    let view = &answer.data;
    Frame::of_store(visit, "Queues").page(html! {
        (missing(&view.missing_partitions))
        (queue_table(visit, &view.queues))
        @if view.has_more { p.muted { "The store has more queues." } }
        p.muted { "A named queue is listed if it has limits, if it is or was paused, or if a live worker serves it." }
    })
}

pub(crate) fn types(visit: &StoreVisit, answer: &Answer<TypesView>) -> Html<String> {
    let view = &answer.data;
    let columns = [
        Text("Type"),
        Text("Queue"),
        Text("State"),
        Number("Started"),
        Number("Done"),
        Number("Retried"),
        Number("Died"),
        Number("Mean run"),
        Text("Operations"),
    ];
    let rows: Vec<_> = view
        .types
        .iter()
        .map(|it| type_row(visit, view, it))
        .collect();
    Frame::of_store(visit, "Types").page(html! {
        (missing(&view.missing_partitions))
        (table("Types, and their runs of the last hour", &columns[..columns.len() - usize::from(!visit.visit.can_operate)], &rows,
            "No runs have started within the last hour, and no tasks wait for a type that no worker knows."))
        @if view.has_more { p.muted { "The store has more types." } }
        p.muted { "The numbers of runs lag by about ten seconds." }
    })
}

/// Returns the table of queues, for below a heading.
pub(crate) fn queue_table(visit: &StoreVisit, queues: &[QueueOverview]) -> Markup {
    let columns = [
        Text("Queue"),
        Text("State"),
        Number("Waiting"),
        Number("Oldest"),
        Number("Running"),
        Text("Limits"),
        Number("Workers"),
        Text("Operations"),
    ];
    let rows: Vec<_> = queues.iter().map(|it| queue_row(visit, it)).collect();
    let columns = &columns[..columns.len() - usize::from(!visit.visit.can_operate)];
    main_table("Queues", columns, &rows, "There are no queues.")
}

fn queue_row(visit: &StoreVisit, it: &QueueOverview) -> Markup {
    let name = it.name.as_deref();
    let tasks = format!("{}/tasks/waiting", visit.base());
    let tasks = link(&tasks, &[("queue", name.unwrap_or_default())]);
    html! {
        (row_head("Queue", html! { a href=(tasks) { (queue(name)) } }))
        (cell("State", queue_state(it)))
        (number("Waiting", count(it.info.waiting)))
        (number("Oldest", optional_duration(it.oldest_waiting)))
        (number("Running", count(it.info.running)))
        (cell("Limits", limits(&it.info.settings)))
        (number("Workers", count(it.sessions)))
        @if visit.visit.can_operate {
            // The default queue cannot be paused.
            (cell("Operations", html! {
                @if let Some(name) = name { (pause_or_resume(visit, "queues", name, it.info.is_paused)) }
            }))
        }
    }
}

fn type_row(visit: &StoreVisit, view: &TypesView, it: &TypeOverview) -> Markup {
    let (name, runs) = (it.name.as_deref(), &it.last_hour);
    let ended = runs.done + runs.retried + runs.died + runs.cancelled;
    let mean = runs
        .run_time
        .checked_div(u32::try_from(ended).unwrap_or(u32::MAX));
    html! {
        (row_head("Type", html! {
            @match name {
                Some(name) => a href=(link(&format!("{}/tasks/waiting", visit.base()), &[("name", name)])) { (word(name)) },
                None => span.muted { "all others" },
            }
        }))
        (cell("Queue", queue(it.queue.as_deref())))
        (cell("State", type_state(it, view.paused_queues.contains(&it.queue))))
        (number("Started", count(runs.started)))
        (number("Done", count(runs.done)))
        (number("Retried", count(runs.retried)))
        (number("Died", count(runs.died)))
        (number("Mean run", optional_duration(mean)))
        @if visit.visit.can_operate {
            (cell("Operations", html! {
                @if let Some(name) = name { (pause_or_resume(visit, "types", name, it.is_paused)) }
            }))
        }
    }
}

/// Returns the button that pauses or resumes a queue, a type or a schedule.
pub(crate) fn pause_or_resume(
    visit: &StoreVisit,
    what: &str,
    name: &str,
    is_paused: bool,
) -> Markup {
    let (operation, title) = match is_paused {
        true => ("resume", "Resume"),
        false => ("pause", "Pause"),
    };
    name_form(&format!("{}/{what}/{operation}", visit.base()), name, title)
}

fn queue_state(queue: &QueueOverview) -> Markup {
    match (queue.info.is_paused, queue.sessions) {
        (true, _) => html! { span.state.paused { "paused" } },
        (false, 0) if queue.info.waiting == 0 => html! { span.state { "unused" } },
        (false, 0) => html! { span.state.unserved { "not served" } },
        (false, _) => html! { span.state.live { "served" } },
    }
}

fn type_state(it: &TypeOverview, is_queue_paused: bool) -> Markup {
    match (it.is_paused, it.is_served) {
        (true, _) => html! { span.state.paused { "paused" } },
        (false, true) if is_queue_paused => html! { span.state.paused { "queue paused" } },
        (false, false) => html! { span.state.unserved { "not served" } },
        (false, true) => html! { span.state.live { "served" } },
    }
}

fn limits(settings: &QueueSettings) -> Markup {
    let running = settings.running_limit();
    let running = running.map(|tasks| format!("{tasks} at once"));
    let rate = settings.rate_limit().map(|rate| {
        format!(
            "one start per {}, bursts of {}",
            duration(rate.interval()),
            rate.burst_size()
        )
    });
    let limits: Vec<_> = running.into_iter().chain(rate).collect();
    match limits.is_empty() {
        true => dash(),
        false => html! { (limits.join("; ")) },
    }
}

/// Returns a warning if some partitions do not answer.
pub(crate) fn missing(partitions: &[usize]) -> Markup {
    html! {
        @if !partitions.is_empty() {
            p.warning { (format!("The partitions {partitions:?} do not answer. Their data is missing here. Check their servers.")) }
        }
    }
}
