//! The lists of tasks.

use axum::response::Html;
use maud::{Markup, html};
use throng::durable::TaskInfo;

use super::table::Column::{Number, Text};
use super::table::{Column, cell, main_table, number, optional_count, pager, row_head};
use super::text::{
    ago, count, counted, dash, duration, error_of, name, optional_duration, queue, word,
};
use super::{Frame, hidden};
use crate::operations::action::TaskAction;
use crate::views::tasks::{DEFAULT_QUEUE, TaskList, TasksView, code_of};
use crate::views::{Answer, since_1970};
use crate::visit::StoreVisit;

pub(crate) fn page(visit: &StoreVisit, answer: &Answer<TasksView>) -> Html<String> {
    let view = &answer.data;
    let title = match view.list {
        TaskList::Dead => "Dead letters",
        _ => "Tasks",
    };
    let path = path(visit, view.list);
    let limit = view.limit.to_string();
    let fields = [
        ("name", view.name.as_deref().unwrap_or_default()),
        ("queue", view.queue.as_deref().unwrap_or_default()),
        ("error", view.error.as_deref().unwrap_or_default()),
        ("limit", limit.as_str()),
    ];
    Frame::of_store(visit, title).page(html! {
        @if view.list != TaskList::Dead { (tabs(visit, view.list)) }
        (filter(&path, view))
        (examined(answer))
        (selection(visit, view))
        @if view.list != TaskList::Next { (pager(&path, &fields, answer)) }
        (all_that_match(visit, answer))
    })
}

fn path(visit: &StoreVisit, list: TaskList) -> String {
    match list {
        TaskList::Dead => format!("{}/dead", visit.base()),
        list => format!("{}/tasks/{}", visit.base(), list.code()),
    }
}

fn tabs(visit: &StoreVisit, current: TaskList) -> Markup {
    html! {
        nav.tabs aria-label="Lists of tasks" {
            @for list in TaskList::TABS {
                a href=(path(visit, list)) aria-current=[(list == current).then_some("page")] { (list.code()) }
            }
        }
    }
}

fn filter(path: &str, view: &TasksView) -> Markup {
    html! {
        form.filter action=(path) {
            @if view.list != TaskList::Next {
                label { "Type " input name="name" value=(view.name.as_deref().unwrap_or_default()); }
            }
            @if view.list.has_queues() {
                label { "Queue " input name="queue" list="queues" value=(view.queue.as_deref().unwrap_or_default()); }
                datalist id="queues" { option value=(DEFAULT_QUEUE) {} }
            }
            @if view.list == TaskList::Dead {
                label { "Error contains " input name="error" value=(view.error.as_deref().unwrap_or_default()); }
            }
            button { "Filter" }
            @if view.has_filter() { a href=(path) { "Clear" } }
        }
    }
}

/// Returns how many tasks were examined, since an empty page need not be the end.
fn examined(answer: &Answer<TasksView>) -> Markup {
    let view = &answer.data;
    let reasons = view.reasons.iter();
    let reasons: Vec<_> = reasons
        .map(|(reason, tasks)| format!("{} {tasks}", reason.replace('_', " ")))
        .collect();
    html! {
        p.muted {
            @if let Some(examined) = answer.examined {
                (counted(view.tasks.len() as u64, "task")) " on this page, out of " (count(examined as u64)) " examined for it."
                @if answer.next.is_some() { " The list continues on the next page." }
            } @else {
                "The tasks that have been ready for the longest time. Those of a higher priority may start first."
            }
            @if !reasons.is_empty() { " By reason: " (reasons.join(", ")) "." }
            @if let Some(retention) = &view.retention {
                " The store keeps a dead letter for " (duration(retention.dead_for))
                ", and at most " (count(retention.dead_most)) " of them."
            }
        }
    }
}

/// The table and, for operators, the form that applies an action to selected tasks.
fn selection(visit: &StoreVisit, view: &TasksView) -> Markup {
    let can_select = visit.visit.can_operate && !view.actions.is_empty() && !view.tasks.is_empty();
    html! {
        @if can_select {
            form.selection method="post" action={ (visit.base()) "/bulk/confirm" } {
                (hidden("list", view.list.code()))
                (task_table(visit, view, true))
                fieldset.operation {
                    legend { "With the selected tasks" }
                    (action_buttons(&view.actions, false))
                }
            }
        } @else {
            (task_table(visit, view, false))
        }
    }
}

fn task_table(visit: &StoreVisit, view: &TasksView, can_select: bool) -> Markup {
    let mut columns = vec![];
    if can_select {
        columns.push(Text("Select"));
    }
    columns.extend([Text("Task"), Text("Type")]);
    columns.extend(columns_of(view.list));
    let rows = view.tasks.iter().map(|task| {
        let link = format!("{}/task/{}", visit.base(), task.id);
        html! {
            @if can_select {
                (cell("Select", html! {
                    input type="checkbox" name="id" value=(task.id) aria-label={ "Select " (task.id) };
                }))
            }
            (row_head("Task", html! { a.id href=(link) { (task.id) } }))
            (cell("Type", name(task.name.as_deref())))
            (cells(view.list, task))
        }
    });
    let rows: Vec<_> = rows.collect();
    main_table("Tasks", &columns, &rows, "This page has no tasks.")
}

fn columns_of(list: TaskList) -> Vec<Column<'static>> {
    let (queue, failures) = (Text("Queue"), Number("Failures"));
    match list {
        TaskList::Next | TaskList::Waiting => vec![queue, failures, Number("Ready for")],
        TaskList::Delayed | TaskList::Retrying => vec![queue, failures, Number("Due in")],
        TaskList::Running => vec![queue, failures, Number("Crashes"), Number("Running for")],
        TaskList::Done => vec![Number("Took"), Number("Ended"), Number("Kept for")],
        TaskList::Cancelled => vec![Number("Ended"), Number("Kept for")],
        TaskList::Dead => vec![
            queue,
            failures,
            Text("Reason"),
            Text("Error"),
            Number("Died"),
        ],
    }
}

/// Returns the cells of the columns that depend on the list.
fn cells(list: TaskList, task: &TaskInfo) -> Markup {
    html! {
        @if list.has_queues() {
            (cell("Queue", queue(task.queue.as_deref())))
            (number("Failures", optional_count(task.failures)))
        }
        @match list {
            TaskList::Next | TaskList::Waiting => (number("Ready for", optional_duration(task.ready_for))),
            TaskList::Delayed | TaskList::Retrying => (number("Due in", optional_duration(task.due_in))),
            TaskList::Running => {
                (number("Crashes", optional_count(task.crashes)))
                (number("Running for", optional_duration(task.running_for)))
            }
            TaskList::Done | TaskList::Cancelled => {
                @if list == TaskList::Done { (number("Took", optional_duration(task.took))) }
                (number("Ended", ago(task.age)))
                (number("Kept for", optional_duration(task.kept_for)))
            }
            TaskList::Dead => {
                (cell("Reason", task.reason.map_or_else(dash, |reason| word(&code_of(&reason).replace('_', " ")))))
                (cell("Error", error_of(task)))
                (number("Died", ago(task.age)))
            }
        }
    }
}

/// The form that applies an action to all tasks that match the filter and existed when this page was read.
fn all_that_match(visit: &StoreVisit, answer: &Answer<TasksView>) -> Markup {
    let view = &answer.data;
    // A head has no such form, because the action could also affect tasks that became ready after the page was read.
    let can_change = visit.visit.can_operate
        && view.list != TaskList::Next
        && !view.actions.is_empty()
        && !view.tasks.is_empty();
    html! {
        @if let Some(now) = answer.now.filter(|_| can_change) {
            form.operation method="post" action={ (visit.base()) "/bulk/confirm" } {
                (hidden("list", view.list.code()))
                (hidden("name", view.name.as_deref().unwrap_or_default()))
                (hidden("queue", view.queue.as_deref().unwrap_or_default()))
                (hidden("error", view.error.as_deref().unwrap_or_default()))
                (hidden("until_ms", &since_1970(now).to_string()))
                fieldset {
                    legend { "With all tasks that match" }
                    (action_buttons(&view.actions, true))
                }
            }
        }
    }
}

/// Returns the buttons of a form, and the field for the queue to which tasks move.
fn action_buttons(actions: &[TaskAction], is_all: bool) -> Markup {
    html! {
        @for action in actions.iter().filter(|action| **action != TaskAction::Move) {
            @let title = if is_all { action.title_of_all() } else { action.title() };
            button name="action" value=(action.code()) class=[action.is_destructive().then_some("danger")] { (title) }
        }
        @if actions.contains(&TaskAction::Move) {
            label { "to the queue " input name="to" placeholder="(default)"; }
            @let title = if is_all { TaskAction::Move.title_of_all() } else { TaskAction::Move.title() };
            button name="action" value="move" { (title) }
        }
    }
}
