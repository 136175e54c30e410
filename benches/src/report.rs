//! Rows: what the children of a peer have measured, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::areas::{Area, Peer, Workload};
use crate::measure::Sample;

/// A repetition during which other processes kept more than this many cores busy is noisy.
const NOISE: f64 = 0.1;

/// The results of one peer in one workload; as JSON, a line with the median of each figure.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) area: String,
    pub(crate) workload: String,
    pub(crate) peer: String,
    unit: &'static str,
    better: &'static str,
    #[serde(flatten)]
    figures: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    #[serde(skip)]
    samples: Vec<Sample>,
    #[serde(skip)]
    allocs_per_task: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    median: f64,
    min: f64,
    max: f64,
    repetitions: usize,
    /// Repetitions that were too noisy to count.
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns_per_task: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx_switches_per_task: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocs_per_task: Option<f64>,
    threads_peak: u64,
    rss_peak_kb: u64,
    foreign_cores: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    facts: BTreeMap<String, Fact>,
}

/// A number that only some rows have.
#[derive(Clone, Copy, Debug, Serialize)]
struct Fact {
    median: f64,
    min: f64,
    max: f64,
}

impl Fact {
    fn of(values: Vec<f64>) -> Option<Self> {
        Some(Self {
            min: rounded(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: rounded(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            median: median(values)?,
        })
    }

    fn text(&self, name: &str) -> String {
        let Self { median, min, max } = *self;
        match number(min) == number(max) {
            true => format!("{name} {}", number(median)),
            false => format!(
                "{name} {} ({} to {})",
                number(median),
                number(min),
                number(max)
            ),
        }
    }
}

impl Row {
    pub(crate) fn new(
        area: &Area,
        workload: &Workload,
        peer: &Peer,
        allocator: Option<String>,
    ) -> Self {
        Self {
            area: area.name.to_owned(),
            workload: workload.name.to_owned(),
            peer: peer.name.to_owned(),
            unit: workload.unit.name,
            better: workload.unit.better,
            figures: None,
            note: peer.note,
            allocator,
            error: None,
            skipped: None,
            samples: Vec::new(),
            allocs_per_task: None,
        }
    }

    /// The text that a filter is matched against.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}/{}", self.area, self.workload, self.peer)
    }

    /// Takes in what a child has measured: allocations if it was a counting run, else a repetition.
    pub(crate) fn add(&mut self, sample: Sample) {
        if sample.skipped.is_some() {
            // A peer may have everything but a counting run.
            self.skipped = sample.skipped.filter(|_| self.samples.is_empty());
            return;
        }
        if sample.allocs_per_task.is_some() {
            self.allocs_per_task = sample.allocs_per_task;
        } else {
            self.samples.push(sample);
        }
        self.figures = self.summarise();
    }

    /// This row as one line of JSON.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("a row has nothing that JSON cannot say")
    }

    /// The repetitions that count: the quiet ones, or all if too many were noisy to choose.
    fn counted(&self) -> Vec<&Sample> {
        let quiet = self
            .samples
            .iter()
            .filter(|sample| sample.foreign_cores <= NOISE);
        let quiet: Vec<&Sample> = quiet.collect();
        if quiet.len() * 2 > self.samples.len() {
            quiet
        } else {
            self.samples.iter().collect()
        }
    }

    fn summarise(&self) -> Option<Figures> {
        let samples = self.counted();
        let all = |figure: fn(&Sample) -> Option<f64>| -> Vec<f64> {
            samples.iter().filter_map(|sample| figure(sample)).collect()
        };
        let values = all(|sample| Some(sample.value));
        Some(Figures {
            median: median(values.clone())?,
            min: rounded(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: rounded(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            repetitions: values.len(),
            left_out: self.samples.len() - values.len(),
            cpu_ns_per_task: median(all(|sample| sample.cpu_ns_per_task)),
            ctx_switches_per_task: median(all(|sample| sample.ctx_switches_per_task)),
            allocs_per_task: self.allocs_per_task.map(rounded),
            threads_peak: samples.iter().map(|sample| sample.threads_peak).max()?,
            rss_peak_kb: samples.iter().map(|sample| sample.rss_peak_kb).max()?,
            foreign_cores: median(all(|sample| Some(sample.foreign_cores)))?,
            facts: facts(&samples),
        })
    }

    /// Remarks on this row, one per line.
    fn remarks(&self) -> Vec<String> {
        let noisy = self.figures.as_ref().map_or(0, |figures| figures.left_out);
        let noisy = (noisy > 0).then(|| format!("{noisy} noisy repetitions left out"));
        let failure = self
            .error
            .as_deref()
            .map(|error| format!("FAILED: {error}"));
        let skipped = self.skipped.as_deref().map(|why| format!("skipped: {why}"));
        let facts = self.figures.as_ref().map(|figures| {
            let facts = figures.facts.iter().map(|(name, fact)| fact.text(name));
            facts.collect::<Vec<_>>().join(", ")
        });
        let facts = facts.filter(|facts| !facts.is_empty());
        let note = self.note.map(str::to_owned);
        let remarks = [failure, skipped, note, facts, noisy];
        let line = |remark| format!("  {}: {remark}\n", self.peer);
        remarks.into_iter().flatten().map(line).collect()
    }

    /// The cells of this row, given the median of ours.
    fn cells(&self, ours: Option<f64>) -> Vec<String> {
        let Some(figures) = self.figures.as_ref().filter(|_| self.error.is_none()) else {
            if self.skipped.is_some() && self.error.is_none() {
                return vec![self.peer.clone(), "-".to_owned()];
            }
            return vec![self.peer.clone(), "FAILED".to_owned()];
        };
        let optional = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), number);
        vec![
            self.peer.clone(),
            number(figures.median),
            number(figures.min),
            number(figures.max),
            optional(ours.map(|ours| figures.median / ours)),
            optional(figures.cpu_ns_per_task),
            optional(figures.ctx_switches_per_task),
            optional(figures.allocs_per_task),
            figures.threads_peak.to_string(),
            number(figures.rss_peak_kb as f64 / 1024.0),
            number(figures.foreign_cores),
        ]
    }
}

/// The rows of one workload, under a heading.
pub(crate) fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let ours = rows.iter().find(|row| row.peer == "throng");
    let ours = ours
        .and_then(|row| row.figures.as_ref())
        .map(|figures| figures.median);
    let heading = [
        "peer", first.unit, "min", "max", "/ ours", "cpu ns", "switches", "allocs", "threads",
        "MB", "noise",
    ];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| row.cells(ours)));
    let heading = format!(
        "{}/{} ({} is better)\n",
        first.area, first.workload, first.better
    );
    let remarks = rows.iter().flat_map(Row::remarks);
    heading + &aligned(&lines) + &remarks.collect::<String>()
}

/// Describes the columns of a table.
pub(crate) const LEGEND: &str = "\
Columns: the median, the least and the largest value; the median over that of ours; CPU time, context
switches and allocations per task; threads at the end, and peak memory; and how many cores other
processes kept busy meanwhile (repetitions with more than 0.1 are left out if most had less).";

/// Aggregates the numbers that only some samples contain.
fn facts(samples: &[&Sample]) -> BTreeMap<String, Fact> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in samples.iter().flat_map(|sample| &sample.facts) {
        values.entry(name.clone()).or_default().push(*value);
    }
    let facts = values.into_iter();
    facts
        .filter_map(|(name, values)| Some((name, Fact::of(values)?)))
        .collect()
}

/// Columns as wide as their widest cell: the first to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let mut text = String::new();
    for line in lines {
        let _ = write!(text, "  {:<1$}", line[0], width(0));
        for (column, cell) in line.iter().enumerate().skip(1) {
            let _ = write!(text, "  {cell:>0$}", width(column));
        }
        text.push('\n');
    }
    text
}

/// Three significant digits where there are that many within three decimals, and never an exponent.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.0005 => format!("{value:.3}"),
        _ => "0".to_owned(),
    }
}

/// Rounds to the precision of the machine: the remaining digits are noise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
    .map(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::areas;

    fn row() -> Row {
        let workloads = areas::ALL[0].workloads(false);
        Row::new(&areas::ALL[0], &workloads[0], &workloads[0].peers[0], None)
    }

    fn sample(value: f64) -> Sample {
        Sample {
            value,
            cpu_ns_per_task: Some(2.0 * value),
            threads_peak: 3,
            ..Sample::default()
        }
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_row_in_json_has_its_figures_and_none_that_do_not_apply() {
        let mut row = row();
        for value in [4.0, 2.0, 9.0] {
            row.add(sample(value));
        }
        row.add(Sample {
            allocs_per_task: Some(1.5),
            ..Sample::default()
        });
        let json: serde_json::Value = serde_json::from_str(&row.json()).expect("a row is JSON");
        assert_eq!(json["peer"], "throng");
        assert_eq!(json["unit"], "ns/task");
        assert_eq!(json["better"], "less");
        assert_eq!(json["median"], 4.0);
        assert_eq!(json["min"], 2.0);
        assert_eq!(json["max"], 9.0);
        assert_eq!(json["cpu_ns_per_task"], 8.0);
        assert_eq!(json["allocs_per_task"], 1.5);
        assert_eq!(json["threads_peak"], 3);
        assert!(json.get("ctx_switches_per_task").is_none());
        assert!(json.get("error").is_none());
    }

    #[test]
    fn noisy_repetitions_count_only_if_there_is_no_majority_of_quiet_ones() {
        let mut row = row();
        let mut median_with = |sample| {
            row.add(sample);
            let figures = row.figures.as_ref().expect("there is a sample");
            (figures.median, figures.left_out)
        };
        let noisy = Sample {
            foreign_cores: 1.0,
            ..sample(9.0)
        };
        assert_eq!(median_with(noisy), (9.0, 0));
        assert_eq!(median_with(sample(1.0)), (5.0, 0));
        assert_eq!(median_with(sample(2.0)), (1.5, 1));
    }

    #[test]
    fn a_failure_is_shown_and_not_measured() {
        let mut row = row();
        row.add(sample(1.0));
        row.error = Some("exit status: 101: it broke".to_owned());
        assert!(table(std::slice::from_ref(&row)).contains("FAILED: exit status: 101: it broke"));
        assert!(row.json().contains("it broke"));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(number(12345.6), "12346");
        assert_eq!(number(42.34), "42.3");
        assert_eq!(number(1.234), "1.23");
        assert_eq!(number(0.0), "0");
    }
}
