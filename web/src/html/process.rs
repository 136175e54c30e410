//! The page of this process.

use axum::response::Html;
use maud::{Markup, html};

use super::Frame;
use super::table::Column::{Number, Text};
use super::table::{number, row_head, table};
use super::text::{count, duration, line};
use crate::views::Answer;
use crate::views::process::{PartGroup, PartNumber, PartValue, ProcessView};
use crate::visit::Visit;

pub(crate) fn page(visit: &Visit, answer: &Answer<ProcessView>) -> Html<String> {
    // With one store, the navigation leads back to it.
    let store = match &visit.shared.stores[..] {
        [store] => Some(&**store),
        _ => None,
    };
    Frame::new(visit, store, "Process").page(html! {
        p.muted { "The parts of the process that serves this dashboard." }
        @if answer.data.groups.is_empty() {
            p.muted { "The registry watches no part. A program adds parts with Registry::watch." }
        }
        @for group in &answer.data.groups { (group_table(group)) }
    })
}

/// Returns a table with a row for each number and a column for each part, since a part has more numbers than a process has parts.
fn group_table(group: &PartGroup) -> Markup {
    let mut columns = vec![Text("Number")];
    let titles: Vec<_> = group.parts.iter().map(|part| line(&part.name)).collect();
    columns.extend(titles.iter().map(|title| Number(title)));
    let rows = rows_of(group).into_iter().map(|(metric, label)| {
        let title = format!("{} {label}", short(metric));
        html! {
            (row_head("Number", title))
            @for (part, title) in group.parts.iter().zip(&titles) {
                @let found = part.numbers.iter().find(|it| it.metric == metric && label_of(it) == label);
                (number(title, found.map(|it| value(it.value)).unwrap_or_default()))
            }
        }
    });
    let rows: Vec<_> = rows.collect();
    html! { (table(group.kind, &columns, &rows, "")) }
}

/// Returns the metrics and labels that any part of the group has, in their order.
fn rows_of(group: &PartGroup) -> Vec<(&'static str, &'static str)> {
    let mut rows = Vec::new();
    for number in group.parts.iter().flat_map(|part| &part.numbers) {
        let row = (number.metric, label_of(number));
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

fn label_of(number: &PartNumber) -> &'static str {
    number.label.unwrap_or_default()
}

/// Returns the name of a metric in words, without the prefix of the crate.
fn short(metric: &str) -> String {
    let name = metric.strip_prefix("throng_").unwrap_or(metric);
    let name = name.strip_suffix("_total").unwrap_or(name);
    let name = name.strip_suffix("_seconds").unwrap_or(name);
    name.replace('_', " ")
}

fn value(value: PartValue) -> String {
    let seconds = |seconds: f64| {
        let time = std::time::Duration::try_from_secs_f64(seconds);
        duration(time.unwrap_or_default())
    };
    match value {
        PartValue::Count(number) => count(number),
        PartValue::Seconds(time) => seconds(time),
        PartValue::Times { count: 0, .. } => String::from("none"),
        PartValue::Times { mean, .. } => format!("{} on average", seconds(mean)),
    }
}
