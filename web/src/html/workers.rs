//! The pages of workers and of schedules.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::response::Html;
use maud::{Markup, html};
use throng::durable::{TaskInfo, WorkerInfo};

use super::queues::{missing, pause_or_resume};
use super::table::Column::{Number, Text};
use super::table::{
    cell, fact_list, link, main_table, number, optional_count, pager, row_head, table,
};
use super::text::{
    ago, count, counted, dash, duration, line, name, optional_duration, optional_time, queue,
};
use super::{Frame, name_form};
use crate::views::Answer;
use crate::views::schedules::{ScheduleRow, SchedulesView};
use crate::views::tasks::code_of;
use crate::views::workers::{WorkerView, WorkersView};
use crate::visit::StoreVisit;

pub(crate) fn workers(visit: &StoreVisit, answer: &Answer<WorkersView>) -> Html<String> {
    let columns = [
        Text("Worker"),
        Text("State"),
        Text("Queue"),
        Number("Permits"),
        Text("Types"),
        Number("Started"),
        Number("Last seen"),
        Text("Version"),
    ];
    let rows = answer.data.workers.iter();
    let rows: Vec<_> = rows.map(|it| worker_row(visit, it)).collect();
    Frame::of_store(visit, "Workers").page(html! {
        (missing(&answer.data.missing_partitions))
        p.muted { "An executor that serves several queues counts as several workers." }
        (main_table("Workers", &columns, &rows, "No worker is registered. Tasks wait until one starts."))
        (pager(&format!("{}/workers", visit.base()), &[], answer))
    })
}

fn worker_row(visit: &StoreVisit, it: &WorkerInfo) -> Markup {
    html! {
        (row_head("Worker", html! {
            a href=(path(visit, it.session)) { (line(&it.program)) " on " (line(&it.host)) } " "
            span.muted { "process " (it.process) }
        }))
        (cell("State", state(it)))
        (cell("Queue", queue(it.queue.as_deref())))
        (number("Permits", count(it.permits as u64)))
        (cell("Types", types(it)))
        (number("Started", ago(Some(it.started))))
        (number("Last seen", it.last_seen.map_or_else(dash, |it| html! { (last_seen(it)) })))
        (cell("Version", line(&it.crate_version)))
    }
}

fn types(it: &WorkerInfo) -> Markup {
    html! {
        details {
            summary { (count((it.types.len() + it.other_types) as u64)) }
            (type_list(it))
        }
    }
}

/// Returns the URL of the page of a worker.
pub(crate) fn path(visit: &StoreVisit, session: u64) -> String {
    format!("{}/workers/{session}", visit.base())
}

fn state(it: &WorkerInfo) -> Markup {
    let code = code_of(&it.state);
    html! { span.state.(code) { (code) } }
}

pub(crate) fn worker(visit: &StoreVisit, answer: &Answer<WorkerView>) -> Html<String> {
    let worker = &answer.data.worker;
    let examined = answer.examined.unwrap_or_default() as u64;
    Frame::of_store(visit, "Worker").page(html! {
        p { strong { (line(&worker.program)) " on " (line(&worker.host)) } " " (state(worker)) }
        (worker_facts(visit, worker))
        (running_tasks(visit, &answer.data.running))
        @if answer.next.is_some() { p.muted { "Examined " (counted(examined, "running task")) " for this page. The list continues on the next page." } }
        (pager(&path(visit, worker.session), &[], answer))
        h2 { "Types " span.muted { (count((worker.types.len() + worker.other_types) as u64)) } }
        (type_list(worker))
    })
}

fn worker_facts(visit: &StoreVisit, it: &WorkerInfo) -> Markup {
    let waiting = link(
        &format!("{}/tasks/waiting", visit.base()),
        &[("queue", it.queue.as_deref().unwrap_or_default())],
    );
    let shown = |text: String| Some(html! { (text) });
    fact_list([
        (
            "Queue",
            Some(html! { a href=(waiting) { (queue(it.queue.as_deref())) } }),
        ),
        ("Permits", shown(count(it.permits as u64))),
        ("Process", shown(it.process.to_string())),
        ("Session", shown(it.session.to_string())),
        ("Started", shown(format!("{} ago", duration(it.started)))),
        (
            "Last seen",
            it.last_seen.and_then(|it| shown(last_seen(it))),
        ),
        ("Version of throng", shown(line(&it.crate_version))),
        (
            "Layouts",
            it.layouts.as_ref().and_then(|it| shown(layouts(it))),
        ),
    ])
}

fn last_seen(time: Duration) -> String {
    match time.as_secs() {
        0 => String::from("now"),
        _ => format!("{} ago", duration(time)),
    }
}

fn layouts(known: &RangeInclusive<i64>) -> String {
    let (oldest, newest) = (known.start(), known.end());
    match oldest == newest {
        true => newest.to_string(),
        false => format!("{oldest} to {newest}"),
    }
}

fn running_tasks(visit: &StoreVisit, tasks: &[TaskInfo]) -> Markup {
    let rows = tasks.iter().map(|task| {
        let link = format!("{}/task/{}", visit.base(), task.id);
        html! {
            (row_head("Task", html! { a.id href=(link) { (task.id) } }))
            (cell("Type", name(task.name.as_deref())))
            (number("Failures", optional_count(task.failures)))
            (number("Crashes", optional_count(task.crashes)))
            (number("Running for", optional_duration(task.running_for)))
        }
    });
    let columns = [
        Text("Task"),
        Text("Type"),
        Number("Failures"),
        Number("Crashes"),
        Number("Running for"),
    ];
    let rows: Vec<_> = rows.collect();
    table(
        "Running tasks",
        &columns,
        &rows,
        "This worker runs none of the tasks that were examined for this page.",
    )
}

fn type_list(it: &WorkerInfo) -> Markup {
    html! {
        ul {
            @for name in &it.types { li { (line(name)) } }
            @if it.other_types > 0 { li { "and " (counted(it.other_types as u64, "other")) } }
        }
    }
}

pub(crate) fn schedules(visit: &StoreVisit, answer: &Answer<SchedulesView>) -> Html<String> {
    let columns = [
        Text("Schedule"),
        Text("State"),
        Text("Type"),
        Text("Queue"),
        Text("When"),
        Text("Next"),
        Text("Last"),
        Number("Started"),
        Number("Skipped"),
        Text("Operations"),
    ];
    let columns = &columns[..columns.len() - usize::from(!visit.visit.can_operate)];
    let rows = answer.data.schedules.iter();
    let rows: Vec<_> = rows.map(|it| schedule_row(visit, it)).collect();
    Frame::of_store(visit, "Schedules").page(html! {
        (main_table("Schedules", columns, &rows, "There are no schedules. A program defines them with DurableClient::schedule."))
        (pager(&format!("{}/schedules", visit.base()), &[], answer))
    })
}

fn schedule_row(visit: &StoreVisit, it: &ScheduleRow) -> Markup {
    html! {
        (row_head("Schedule", name(Some(&it.name))))
        (cell("State", schedule_state(it)))
        (cell("Type", name(Some(&it.task))))
        (cell("Queue", queue(it.queue.as_deref())))
        (cell("When", line(&it.when)))
        (cell("Next", optional_time(it.next_tick)))
        (cell("Last", last(visit, it)))
        (number("Started", count(it.started)))
        (number("Skipped", count(it.skipped)))
        @if visit.visit.can_operate {
            (cell("Operations", html! {
                (pause_or_resume(visit, "schedules", &it.name, it.is_paused))
                (name_form(&format!("{}/schedules/fire", visit.base()), &it.name, "Fire now"))
            }))
        }
    }
}

fn schedule_state(it: &ScheduleRow) -> Markup {
    html! {
        @match (&it.stuck, it.is_paused) {
            (Some(reason), _) => { span.state.stuck { "stuck" } " " (line(reason)) }
            (None, true) => span.state.paused { "paused" },
            (None, false) => span.state.live { "active" },
        }
    }
}

/// Returns the last time at which the schedule has fired, with a link to the task.
fn last(visit: &StoreVisit, it: &ScheduleRow) -> Markup {
    let time = optional_time(it.last_tick);
    match it.last_task {
        Some(id) => html! { a href={ (visit.base()) "/task/" (id) } { (time) } },
        None => time,
    }
}
