//! [`Family`]: a metric. [`Row`]: a metric and where its values come from.

use std::time::Duration;

use super::value::{Buckets, Merge, Value};
use crate::blocking::Histogram;

/// A metric.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: FamilyType,
    pub(super) help: &'static str,
    /// The label that names an item of the part, such as a type of tasks, or an empty string.
    pub(super) item: &'static str,
    /// The label that distinguishes the values of a part or of an item, or an empty string.
    pub(super) label: &'static str,
    pub(super) merge: Merge,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyType {
    Gauge,
    /// A number that never falls.
    Counter,
    Histogram,
}

impl FamilyType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }

    /// Returns `true` if the numbers of a part that is gone stay in the sum of its name.
    pub(super) fn is_cumulative(self) -> bool {
        self != Self::Gauge
    }
}

/// A metric, and its values for the numbers `M` of a part: one for each value of the label, or one with an empty string.
pub(super) struct Row<M: 'static> {
    pub(super) family: Family,
    pub(super) values: &'static [(&'static str, Read<M>)],
}

/// Reads a value out of the numbers of a part. `None` if the part has no such value.
type Read<M> = fn(&M) -> Option<Value>;

type Reads<M> = &'static [(&'static str, Read<M>)];

const fn row<M: 'static>(
    name: &'static str,
    kind: FamilyType,
    help: &'static str,
    values: Reads<M>,
) -> Row<M> {
    let family = Family {
        name,
        kind,
        help,
        item: "",
        label: "",
        merge: Merge::Sum,
    };
    Row { family, values }
}

pub(super) const fn gauge<M: 'static>(
    name: &'static str,
    help: &'static str,
    values: Reads<M>,
) -> Row<M> {
    row(name, FamilyType::Gauge, help, values)
}

pub(super) const fn counter<M: 'static>(
    name: &'static str,
    help: &'static str,
    values: Reads<M>,
) -> Row<M> {
    row(name, FamilyType::Counter, help, values)
}

pub(super) const fn histogram<M: 'static>(
    name: &'static str,
    help: &'static str,
    values: Reads<M>,
) -> Row<M> {
    row(name, FamilyType::Histogram, help, values)
}

/// Distinguishes the values by a label.
pub(super) const fn by<M>(label: &'static str, mut row: Row<M>) -> Row<M> {
    row.family.label = label;
    row
}

/// Makes the metric one of the items of a part, which this label names.
#[cfg(feature = "durable")]
pub(super) const fn of_each<M>(item: &'static str, mut row: Row<M>) -> Row<M> {
    row.family.item = item;
    row
}

/// Of parts with one name, takes the largest value instead of the sum.
pub(super) const fn largest<M>(mut row: Row<M>) -> Row<M> {
    row.family.merge = Merge::Max;
    row
}

pub(super) fn count(number: u64) -> Option<Value> {
    Some(Value::Count(number))
}

pub(super) fn seconds(time: Duration) -> Option<Value> {
    Some(Value::Seconds(time))
}

pub(super) fn buckets(histogram: &Histogram) -> Option<Value> {
    Some(Value::Histogram(Box::new(Buckets::of(histogram))))
}
