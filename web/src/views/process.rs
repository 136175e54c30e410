//! The parts of this process.

use serde::Serialize;
use throng::watch::{PartKind, Registry, Sample, Value};

use super::Answer;

/// The parts that the registry watches.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessView {
    pub(crate) groups: Vec<PartGroup>,
}

/// The parts of one kind.
#[derive(Debug, Serialize)]
pub(crate) struct PartGroup {
    pub(crate) kind: &'static str,
    pub(crate) parts: Vec<PartView>,
}

/// The parts with one kind and name.
#[derive(Debug, Serialize)]
pub(crate) struct PartView {
    pub(crate) name: String,
    /// The number of parts that exist.
    pub(crate) live: u64,
    pub(crate) numbers: Vec<PartNumber>,
}

/// A number of a part. Times are in seconds. A histogram is shown as its number of times and their mean.
#[derive(Debug, Serialize)]
pub(crate) struct PartNumber {
    pub(crate) metric: &'static str,
    pub(crate) label: Option<&'static str>,
    #[serde(flatten)]
    pub(crate) value: PartValue,
}

/// A value of a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartValue {
    Count(u64),
    Seconds(f64),
    Times { count: u64, mean: f64 },
}

pub(crate) fn process(registry: &Registry) -> Answer<ProcessView> {
    let mut groups: Vec<PartGroup> = Vec::new();
    for part in registry.snapshot().parts() {
        let view = PartView {
            name: part.name().to_owned(),
            live: part.live(),
            numbers: part.samples().iter().filter_map(number).collect(),
        };
        let kind = title(part.kind());
        match groups.last_mut().filter(|group| group.kind == kind) {
            Some(group) => group.parts.push(view),
            None => groups.push(PartGroup {
                kind,
                parts: vec![view],
            }),
        }
    }
    Answer::whole(None, ProcessView { groups })
}

fn number(sample: &Sample) -> Option<PartNumber> {
    Some(PartNumber {
        metric: sample.name(),
        label: sample.label().map(|(_, value)| value),
        value: match sample.value() {
            Value::Count(count) => PartValue::Count(*count),
            Value::Seconds(time) => PartValue::Seconds(time.as_secs_f64()),
            Value::Histogram(buckets) => PartValue::Times {
                count: buckets.count(),
                mean: buckets.sum().as_secs_f64() / buckets.count().max(1) as f64,
            },
            _ => return None,
        },
    })
}

fn title(kind: PartKind) -> &'static str {
    match kind {
        PartKind::BlockingPool => "Blocking pools",
        PartKind::Bulkhead => "Bulkheads",
        PartKind::ComputePool => "Compute pools",
        PartKind::SerialExecutor => "Serial executors",
        PartKind::CompletionStream => "Completion streams",
        PartKind::DurableExecutor => "Durable executors",
        PartKind::DurableStore => "Durable stores",
        _ => "Other parts",
    }
}
