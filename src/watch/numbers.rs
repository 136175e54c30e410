//! [`Numbers`]: the values of a part at one moment, or of several parts together.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use super::family::{Family, Row};
use super::value::Value;

/// The most names of one kind of parts, and the most items of a part. Further ones are added up under [`OTHER`].
pub(super) const MAX_NAMES: usize = 64;
/// The name of the parts, and of the items, that have one name too many.
pub(super) const OTHER: &str = "other";

/// The numbers of a part, or of several parts with one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    own: Values,
    /// The values of each item of the part, such as a type of tasks.
    items: BTreeMap<Arc<str>, Values>,
}

/// The values of a part or of an item. Those of one kind have the same families in the same order.
#[derive(Clone, Debug, Default)]
struct Values(Vec<LabelledValue>);

#[derive(Clone, Debug)]
struct LabelledValue {
    family: &'static Family,
    label_value: &'static str,
    /// `None` if the part has no such value.
    value: Option<Value>,
}

/// One value of a metric, in a [`PartSnapshot`](super::PartSnapshot).
#[derive(Clone, Debug)]
pub struct Sample {
    pub(super) family: &'static Family,
    pub(super) item: Option<Arc<str>>,
    pub(super) label_value: &'static str,
    pub(super) value: Value,
}

impl Sample {
    /// Returns the name of the metric: see the [table](super#metrics).
    pub fn name(&self) -> &'static str {
        self.family.name
    }

    /// Returns the label that names an item of the part, such as a type of tasks or a queue: its name and its value. For instance,
    /// `("type", "mail.send")`.
    ///
    /// # Examples
    ///
    /// See [`PartSnapshot::samples`](super::PartSnapshot::samples).
    pub fn item(&self) -> Option<(&'static str, &str)> {
        self.item.as_deref().map(|item| (self.family.item, item))
    }

    /// Returns the label that distinguishes this value from others of the same metric, part and item: its name and its value. For
    /// instance, `("outcome", "panicked")`.
    ///
    /// # Examples
    ///
    /// See [`PartSnapshot::samples`](super::PartSnapshot::samples).
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
        Self {
            own: Values::read(rows, numbers),
            items: BTreeMap::new(),
        }
    }

    /// Reads the values of the items of a part.
    #[cfg(feature = "durable")]
    pub(super) fn with_items<M>(
        mut self,
        rows: &'static [Row<M>],
        items: impl Iterator<Item = (Arc<str>, M)>,
    ) -> Self {
        self.items
            .extend(items.map(|(name, it)| (name, Values::read(rows, &it))));
        self
    }

    /// Adds up the items beyond the limit. Those in `known` are kept apart; further ones are added to it, as long as there is room.
    pub(super) fn limit_items(&mut self, known: &mut BTreeSet<Arc<str>>) {
        for name in self.items.keys() {
            if known.len() < MAX_NAMES {
                known.insert(Arc::clone(name));
            }
        }
        let mut further = Vec::new();
        self.items.retain(|name, values| {
            let is_known = known.contains(name);
            if !is_known {
                further.push(mem::take(values));
            }
            is_known
        });
        for values in further {
            add_item(&mut self.items, &OTHER.into(), &values, Values::add);
        }
    }

    /// Adds the values of another part of the same kind. A value that one of them does not have is absent from the sum: of
    /// two queues, one of which has no bound, the sum of the bounds is none.
    pub(super) fn add(&mut self, other: &Self) {
        self.own.add(&other.own);
        for (name, values) in &other.items {
            add_item(&mut self.items, name, values, Values::add);
        }
    }

    /// Adds what another part has counted so far, without its present state.
    pub(super) fn add_cumulative(&mut self, other: &Self) {
        self.own.add_cumulative(&other.own);
        for (name, values) in &other.items {
            let values = values.clone().into_cumulative();
            add_item(&mut self.items, name, &values, Values::add_cumulative);
        }
    }

    /// Keeps what was counted so far, and forgets the state.
    pub(super) fn into_cumulative(self) -> Self {
        let items = self.items.into_iter();
        Self {
            own: self.own.into_cumulative(),
            items: items
                .map(|(name, it)| (name, it.into_cumulative()))
                .collect(),
        }
    }

    /// Raises each counter to the value that was read from the same part earlier. A part reads its counters one after the other
    /// and may compute one from others, so such a number may fall for a moment.
    pub(super) fn never_below(&mut self, earlier: &Self) {
        self.own.never_below(&earlier.own);
        for (name, values) in &mut self.items {
            if let Some(earlier) = earlier.items.get(name) {
                values.never_below(earlier);
            }
        }
    }

    pub(super) fn into_samples(self) -> Vec<Sample> {
        let items = self.items.into_iter();
        let items = items.flat_map(|(name, values)| values.into_samples(Some(name)));
        self.own.into_samples(None).chain(items).collect()
    }
}

/// Adds the values of an item to those of the item with the same name, if there is one.
fn add_item(
    items: &mut BTreeMap<Arc<str>, Values>,
    name: &Arc<str>,
    values: &Values,
    add: fn(&mut Values, &Values),
) {
    match items.entry(Arc::clone(name)) {
        Entry::Occupied(mut item) => add(item.get_mut(), values),
        Entry::Vacant(item) => {
            item.insert(values.clone());
        }
    }
}

impl Values {
    fn read<M>(rows: &'static [Row<M>], numbers: &M) -> Self {
        let values = rows.iter().flat_map(|row| {
            row.values.iter().map(|(label_value, read)| LabelledValue {
                family: &row.family,
                label_value,
                value: read(numbers),
            })
        });
        Self(values.collect())
    }

    fn add(&mut self, other: &Self) {
        for (number, other) in self.0.iter_mut().zip(&other.0) {
            match (&mut number.value, &other.value) {
                (Some(value), Some(other)) => value.merge(other, number.family.merge),
                _ => number.value = None,
            }
        }
    }

    fn add_cumulative(&mut self, other: &Self) {
        for (number, other) in self.0.iter_mut().zip(&other.0) {
            if let (Some(value), Some(other)) = (&mut number.value, &other.value)
                && number.family.kind.is_cumulative()
            {
                value.merge(other, number.family.merge);
            }
        }
    }

    fn into_cumulative(mut self) -> Self {
        for number in &mut self.0 {
            number
                .value
                .take_if(|_| !number.family.kind.is_cumulative());
        }
        self
    }

    fn never_below(&mut self, earlier: &Self) {
        for (number, earlier) in self.0.iter_mut().zip(&earlier.0) {
            if let (Some(value), Some(earlier)) = (&mut number.value, &earlier.value)
                && number.family.kind.is_cumulative()
            {
                value.raise_to(earlier);
            }
        }
    }

    fn into_samples(self, item: Option<Arc<str>>) -> impl Iterator<Item = Sample> {
        self.0.into_iter().filter_map(move |number| {
            Some(Sample {
                family: number.family,
                item: item.clone(),
                label_value: number.label_value,
                value: number.value?,
            })
        })
    }
}
