//! The rows in the README's table of figures: the table, and an SVG chart of each row.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::points::{Point, Span, best_first};
use crate::report::number;

/// The README's rows: area, workload, the peer in Tokio's column, and a title.
#[rustfmt::skip]
const HEADLINES: [(&str, &str, &str, &str); 10] = [
    ("blocking", "throughput-1-max4", "tokio", "blocking closures, 1 submitter, 4 threads"),
    ("blocking", "throughput-4-max64", "tokio", "blocking closures, 4 submitters, 64 threads"),
    ("blocking", "round-trip-max4", "tokio", "blocking closure, spawn and await"),
    ("compute", "outside-1", "tokio", "tiny closures, 1 producer"),
    ("compute", "outside-4", "tokio", "tiny closures, 4 producers"),
    ("compute", "spawn-window-1000", "tokio", "tiny closures with handles"),
    ("serial", "uncontended", "tokio-mutex", "serial job, no contention"),
    ("serial", "t16-20ns", "tokio-mutex", "serial job, 16 tasks"),
    ("completion", "window-1000", "join-set", "completions, 1,000 futures in flight"),
    ("completion", "pool-window-1000", "join-set", "completions of closures on a pool"),
];

const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0xc2, 0x41, 0x0c);
const THEIRS: RGBColor = RGBColor(0x47, 0x55, 0x69);

/// Returns the filter that selects the rows of the charts.
pub(crate) fn filter() -> String {
    HEADLINES
        .map(|(area, workload, ..)| format!("^{area}/{workload}/"))
        .join("|")
}

/// Writes the charts into a directory, and returns the README's table.
pub(crate) fn write(points: &[Point], dir: &Path) -> Result<String, String> {
    let mut table = String::from(
        "| per closure, job or completion | throng | Tokio | best other |\n| --- | --- | --- | --- |\n",
    );
    for (area, workload, tokio, title) in HEADLINES {
        let points = best_first(points, area, workload);
        if points.is_empty() {
            return Err(format!("there are no figures of {area}/{workload}"));
        }
        let path = dir.join(format!("{area}-{workload}.svg"));
        draw(title, &points, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        table += &line(title, &points, tokio);
    }
    Ok(table)
}

/// Returns a line of the README's table.
fn line(title: &str, points: &[(&Point, &Span)], tokio: &str) -> String {
    let find = |is_it: &dyn Fn(&str) -> bool| points.iter().find(|(point, _)| is_it(&point.peer));
    let text = |point: Option<&(&Point, &Span)>| {
        point.map_or_else(|| "-".to_owned(), |(point, span)| point.text(span.median))
    };
    let best = find(&|peer| peer != "throng" && peer != tokio);
    let name = best.map_or("none", |(point, _)| &point.peer);
    format!(
        "| {title} | {} | {} | {} ({name}) |\n",
        text(find(&|peer| peer == "throng")),
        text(find(&|peer| peer == tokio)),
        text(best),
    )
}

/// Draws a point for each median, and a line from the minimum to the maximum. The axis is logarithmic, since peers differ by
/// orders of magnitude.
fn draw(title: &str, points: &[(&Point, &Span)], path: &Path) -> Result<(), Box<dyn Error>> {
    let rows = i32::try_from(points.len())?;
    let size = (720, 90 + 24 * rows.unsigned_abs());
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let axis = axis(points);
    let left = axis.start;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 17))
        .margin(10)
        .margin_left(150)
        .margin_right(80)
        .x_label_area_size(40)
        .build_cartesian_2d(axis.log_scale(), 0..rows + 1)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| number(*value))
        .x_desc(format!("{}, logarithmic; less is better", points[0].0.unit))
        .draw()?;
    let rows = || points.iter().zip((1..=rows).rev());
    chart.draw_series(rows().map(|((point, span), row)| {
        let ends = [(span.min, row), (span.max, row)];
        PathElement::new(ends, point.colour().stroke_width(2))
    }))?;
    chart.draw_series(
        rows().map(|((point, span), row)| {
            Circle::new((span.median, row), 4, point.colour().filled())
        }),
    )?;
    chart.draw_series(rows().map(|((point, _), row)| {
        EmptyElement::at((left, row)) + point.label(point.peer.clone(), -10, HPos::Right)
    }))?;
    chart.draw_series(rows().map(|((point, span), row)| {
        EmptyElement::at((span.max, row)) + point.label(point.text(span.median), 10, HPos::Left)
    }))?;
    root.present()?;
    Ok(())
}

/// Returns the range of the axis: that of the figures, and a little more.
fn axis(points: &[(&Point, &Span)]) -> Range<f64> {
    let spans = || points.iter().map(|(_, span)| span);
    let min = spans().map(|span| span.min).fold(f64::INFINITY, f64::min);
    let max = spans().map(|span| span.max).fold(0.0, f64::max);
    0.8 * min..1.2 * max
}

impl Point {
    fn colour(&self) -> RGBColor {
        if self.peer == "throng" { OURS } else { THEIRS }
    }

    /// Returns a text that ends or begins so many pixels beside a mark.
    fn label(&self, text: String, at: i32, side: HPos) -> Text<'static, (i32, i32), String> {
        let style = (FONT, 13).into_font().color(&self.colour());
        Text::new(text, (at, 0), style.pos(Pos::new(side, VPos::Center)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::parse;

    /// Returns lines of JSON in which the figures of peers are 20, 10 and 30,000.
    fn lines() -> String {
        let line = |area, workload, peer, median: f64| {
            let (min, max) = (median / 2.0, median * 2.0);
            format!(
                r#"{{"area":"{area}","workload":"{workload}","peer":"{peer}","unit":"ns/task","better":"less","repetitions":5,"median":{median},"min":{min},"max":{max}}}"#
            )
        };
        let lines = HEADLINES.iter().flat_map(|(area, workload, tokio, _)| {
            let peers = [("throng", 20.0), ("rayon", 10.0), (*tokio, 30_000.0)];
            peers.map(|(peer, median)| line(area, workload, peer, median) + "\n")
        });
        let skipped = r#"{"area":"serial","workload":"uncontended","peer":"x","unit":"ns/task","better":"less"}"#;
        lines.collect::<String>() + skipped
    }

    #[test]
    fn each_headline_has_a_line_in_the_table_and_a_chart() {
        let dir = tempfile::tempdir().unwrap();
        let table = write(&parse(&lines()).unwrap(), dir.path()).unwrap();
        assert_eq!(table.lines().count(), 2 + HEADLINES.len());
        assert!(table.contains("| serial job, 16 tasks | 20.0 ns | 30.0 us | 10.0 ns (rayon) |\n"));
        for (area, workload, _, title) in HEADLINES {
            let path = dir.path().join(format!("{area}-{workload}.svg"));
            let chart = std::fs::read_to_string(path).unwrap();
            for text in [title, "throng", "rayon", "30.0 us", "less is better"] {
                assert!(chart.contains(text), "{text} is not in {chart}");
            }
        }
    }

    #[test]
    fn the_page_shows_each_chart() {
        let page = include_str!("../README.md");
        for (area, workload, _, title) in HEADLINES {
            let image = format!("![{title}](charts/{area}-{workload}.svg)");
            assert!(page.contains(&image), "{image} is not in benches/README.md");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(&[], dir.path()).unwrap_err();
        assert_eq!(error, "there are no figures of blocking/throughput-1-max4");
    }

    #[test]
    fn every_headline_is_a_workload() {
        let filter = regex::Regex::new(&filter()).unwrap();
        let workloads = crate::areas::ALL.iter().flat_map(|area| {
            let workloads = area.workloads(false).into_iter();
            workloads.map(|workload| format!("{}/{}/throng", area.name, workload.name))
        });
        assert_eq!(
            workloads.filter(|path| filter.is_match(path)).count(),
            HEADLINES.len()
        );
    }
}
