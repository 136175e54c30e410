//! [`Numbers`]: the values of a part at one moment, or of several parts together.

use super::family::{Family, Row};
use super::value::Value;

/// The values of a part, or of several parts with one name. Those of one kind of parts have the same families in the same
/// order.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(Vec<Number>);

#[derive(Clone, Debug)]
struct Number {
    family: &'static Family,
    label_value: &'static str,
    /// `None` if the part has no such value.
    value: Option<Value>,
}

/// One value of a metric, in a [`PartSnapshot`](super::PartSnapshot).
#[derive(Clone, Debug)]
pub struct Sample {
    pub(super) family: &'static Family,
    pub(super) label_value: &'static str,
    pub(super) value: Value,
}

impl Sample {
    /// Returns the name of the metric: see the [table](super#metrics).
    pub fn name(&self) -> &'static str {
        self.family.name
    }

    /// Returns the label that distinguishes this value from others of the same metric and part: its name and its value. For
    /// instance, `("outcome", "panicked")`.
    pub fn label(&self) -> Option<(&'static str, &'static str)> {
        let label = self.family.label;
        (!label.is_empty()).then_some((label, self.label_value))
    }

    /// Returns the value.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Numbers {
    /// Reads the values out of the numbers of a part.
    pub(super) fn read<M>(rows: &'static [Row<M>], numbers: &M) -> Self {
        let values = rows.iter().flat_map(|row| {
            row.values.iter().map(|(label_value, read)| Number {
                family: &row.family,
                label_value,
                value: read(numbers),
            })
        });
        Self(values.collect())
    }

    /// Adds the values of another part of the same kind. A value that one of them does not have is absent from the sum: of
    /// two queues, one of which has no bound, the sum of the bounds is none.
    pub(super) fn add(&mut self, other: &Self) {
        for (number, other) in self.0.iter_mut().zip(&other.0) {
            match (&mut number.value, &other.value) {
                (Some(value), Some(other)) => value.merge(other, number.family.merge),
                _ => number.value = None,
            }
        }
    }

    /// Adds what another part has counted so far, without its present state.
    pub(super) fn add_cumulative(&mut self, other: &Self) {
        for (number, other) in self.0.iter_mut().zip(&other.0) {
            if let (Some(value), Some(other)) = (&mut number.value, &other.value)
                && number.family.kind.is_cumulative()
            {
                value.merge(other, number.family.merge);
            }
        }
    }

    /// Keeps what was counted so far, and forgets the state.
    pub(super) fn into_cumulative(mut self) -> Self {
        for number in &mut self.0 {
            number
                .value
                .take_if(|_| !number.family.kind.is_cumulative());
        }
        self
    }

    /// Raises each counter to the value that was read from the same part earlier. A part reads its counters one after the other
    /// and may compute one from others, so such a number may fall for a moment.
    pub(super) fn never_below(&mut self, earlier: &Self) {
        for (number, earlier) in self.0.iter_mut().zip(&earlier.0) {
            if let (Some(value), Some(earlier)) = (&mut number.value, &earlier.value)
                && number.family.kind.is_cumulative()
            {
                value.raise_to(earlier);
            }
        }
    }

    pub(super) fn into_samples(self) -> Vec<Sample> {
        let samples = self.0.into_iter().filter_map(|number| {
            Some(Sample {
                family: number.family,
                label_value: number.label_value,
                value: number.value?,
            })
        });
        samples.collect()
    }
}
