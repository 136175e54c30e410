//! The charts of the overview. Without the script, a chart is its caption and its table.

use std::time::{Duration, SystemTime};

use maud::{Markup, html};
use serde_json::{Value, json};

use super::text::duration;
use crate::views::charts::{Chart, ChartLine, ChartRange, ChartUnit};

/// The maximum number of rows in the table of a chart.
const MAX_ROWS: usize = 30;

/// Makes the charts, and the links to other periods. `page` is the URL of the page.
pub(crate) fn section(page: &str, charts: &[Chart; 2]) -> Markup {
    let range = charts[0].range;
    html! {
        section aria-label="Charts" {
            ul.tabs aria-label="Period of the charts" {
                @for other in ChartRange::ALL {
                    li {
                        a href={ (page) "?range=" (other.param()) } aria-current=[(other == range).then_some("true")] {
                            (other.title())
                        }
                    }
                }
                li.muted {
                    "Times are in UTC."
                    @if range != ChartRange::Minutes { " The numbers are approximate." }
                }
            }
            div.charts { @for chart in charts { (figure(chart)) } }
        }
    }
}

fn figure(chart: &Chart) -> Markup {
    let window = chart.range.length().as_secs();
    html! {
        figure id=(chart.id) data-chart=(data(chart)) data-window=(window) data-millis=[chart.unit.millis()] {
            figcaption {
                b { (chart.title) }
                @if chart.unit.millis().is_none() { " " small { (chart.unit.title()) } }
                @for line in &chart.lines {
                    " " span.series.(line.class) { span { (line.name) " " b { (latest(chart.unit, line)) } } }
                }
                " " small.at { (chart.range.last()) }
            }
            div.plot {}
            details { summary { "Data as a table" } div tabindex="0" { (table(chart)) } }
        }
    }
}

/// Returns the numbers of a chart as the script reads them: the times, and then the values of each line.
pub(crate) fn data(chart: &Chart) -> Value {
    let lines = chart.lines.iter().map(|line| json!(line.values));
    std::iter::once(json!(chart.times)).chain(lines).collect()
}

fn table(chart: &Chart) -> Markup {
    let step = chart.times.len().div_ceil(MAX_ROWS).max(1);
    let rows = (0..chart.times.len()).rev().step_by(step);
    html! {
        table {
            caption { (chart.title) ", " (chart.unit.title()) }
            thead {
                tr { th scope="col" { "Time (UTC)" } @for line in &chart.lines { th.num scope="col" { (line.name) } } }
            }
            tbody {
                @for row in rows {
                    tr {
                        th scope="row" { (time(chart.times[row])) }
                        @for line in &chart.lines { td.num { (number(line.values[row])) } }
                    }
                }
            }
        }
    }
}

/// Returns the last value of a line. A time is printed as in the tiles.
fn latest(unit: ChartUnit, line: &ChartLine) -> String {
    let value = line.values.last().copied().flatten();
    match (value, unit.millis()) {
        (Some(value), Some(millis)) => {
            let millis = (value * f64::from(millis)) as u64;
            duration(Duration::from_millis(millis))
        }
        _ => number(value),
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn time(seconds: u64) -> Markup {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    html! { time datetime=(text) { (text[11..19]) } }
}
