//! [`Point`]: a row that a run has printed as JSON.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::report::number;

/// What a chart or a table needs of a row: a line of JSON that a run prints.
#[derive(Debug, Deserialize)]
pub(crate) struct Point {
    pub(crate) area: String,
    pub(crate) workload: String,
    pub(crate) peer: String,
    pub(crate) unit: String,
    better: String,
    /// Absent if the row failed or was skipped.
    #[serde(flatten)]
    figures: Option<Span>,
}

/// The figures of a row.
#[derive(Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) repetitions: usize,
    /// Numbers that only some rows have.
    #[serde(default)]
    pub(crate) facts: BTreeMap<String, Fact>,
}

/// A number that only some rows have.
#[derive(Debug, Deserialize)]
pub(crate) struct Fact {
    pub(crate) median: f64,
}

/// Reads the lines of JSON that a run has printed.
pub(crate) fn parse(lines: &str) -> Result<Vec<Point>, String> {
    let parse = |(n, line)| {
        serde_json::from_str(line).map_err(|error| format!("line {} is no row: {error}", n + 1))
    };
    lines.lines().enumerate().map(parse).collect()
}

/// Returns the rows of a workload that have figures.
pub(crate) fn best_first<'a>(
    points: &'a [Point],
    area: &str,
    workload: &str,
) -> Vec<(&'a Point, &'a Span)> {
    let points = points
        .iter()
        .filter(|point| point.area == area && point.workload == workload);
    let mut points: Vec<_> = points
        .filter_map(|point| Some((point, point.figures()?)))
        .collect();
    points.sort_by(|(point, one), (_, other)| {
        let less_first = one.median.total_cmp(&other.median);
        match point.better.as_str() {
            "more" => less_first.reverse(),
            _ => less_first,
        }
    });
    points
}

impl Point {
    /// Returns the figures, unless the row failed or was skipped.
    pub(crate) fn figures(&self) -> Option<&Span> {
        self.figures.as_ref()
    }

    /// Returns a figure with its unit.
    pub(crate) fn text(&self, figure: f64) -> String {
        match self.unit.as_str() {
            "ns/task" if figure >= 999.5 => format!("{} us", number(figure / 1000.0)),
            "ns/task" => format!("{} ns", number(figure)),
            unit => format!("{} {unit}", number(figure)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_row_is_an_error() {
        assert!(parse("{}").unwrap_err().starts_with("line 1 is no row"));
    }

    #[test]
    fn the_best_is_first_whether_less_or_more_is_better() {
        for (better, first) in [("less", "a"), ("more", "b")] {
            let line = |peer, median| {
                format!(
                    r#"{{"area":"x","workload":"y","peer":"{peer}","unit":"u","better":"{better}","median":{median},"min":1,"max":9,"repetitions":3}}"#
                )
            };
            let lines = [line("a", 2), line("b", 3)].join("\n");
            let points = parse(&lines).unwrap();
            assert_eq!(best_first(&points, "x", "y")[0].0.peer, first);
        }
    }
}
