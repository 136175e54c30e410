//! [`Published`]: what a registry has passed to a recorder of the crate `metrics`, which determines what it passes next.

use std::collections::{HashMap, HashSet};

use metrics::{Key, Label};

use super::family::FamilyType;
use super::kind::PartKind;
use super::names::{BUILD_INFO, WATCH_SECONDS};
use super::numbers::Sample;
use super::snapshot::{PartSnapshot, Snapshot};
use super::value::{Buckets, Value};

/// The series that were published before, as far as their next values depend on that.
#[derive(Default)]
pub(super) struct Published {
    /// The gauges of the parts that were alive, by kind and name.
    gauges: HashMap<(PartKind, String), HashSet<Key>>,
    histograms: HashMap<Key, Buckets>,
}

/// A call of a recorder.
pub(super) enum Update {
    Counter(u64),
    Gauge(f64),
    /// Values, and how many of each are recorded.
    Histogram(Vec<(f64, u64)>),
}

impl Published {
    /// The values with which a recorder shows the numbers of the snapshot.
    pub(super) fn updates(&mut self, snapshot: &Snapshot) -> Vec<(Key, Update)> {
        let version = Label::from_static_parts("version", env!("CARGO_PKG_VERSION"));
        let mut updates = vec![
            (
                Key::from_parts(BUILD_INFO.name, vec![version]),
                Update::Gauge(1.0),
            ),
            (
                Key::from_static_name(WATCH_SECONDS.name),
                Update::Gauge(snapshot.took.as_secs_f64()),
            ),
        ];
        for part in &snapshot.parts {
            for sample in &part.samples {
                let mut labels = vec![Label::new(part.kind.label(), part.name.clone())];
                let own = sample.label();
                labels.extend(own.map(|(name, value)| Label::from_static_parts(name, value)));
                let key = Key::from_parts(sample.name(), labels);
                let update = self.update(part, &key, sample);
                updates.push((key, update));
            }
        }
        updates.extend(self.remove_gauges(snapshot));
        updates
    }

    fn update(&mut self, part: &PartSnapshot, key: &Key, sample: &Sample) -> Update {
        let number = match &sample.value {
            Value::Count(count) if sample.family.kind == FamilyType::Counter => {
                return Update::Counter(*count);
            }
            Value::Histogram(buckets) => {
                let before = self.histograms.entry(key.clone()).or_default();
                return Update::Histogram(before.grow_to(buckets));
            }
            Value::Count(count) => *count as f64,
            Value::Seconds(time) => time.as_secs_f64(),
        };
        let gauges = self.gauges.entry((part.kind, part.name.clone()));
        gauges.or_default().insert(key.clone());
        Update::Gauge(number)
    }

    /// Forgets the gauges of the names that have no part any more, and sets them to 0.
    fn remove_gauges(&mut self, snapshot: &Snapshot) -> impl Iterator<Item = (Key, Update)> {
        let is_alive = |kind, name: &str| {
            let part = snapshot.part(kind, name);
            part.is_some_and(|part| part.live > 0)
        };
        let gone = self
            .gauges
            .extract_if(move |(kind, name), _| !is_alive(*kind, name));
        gone.flat_map(|(_, keys)| keys.into_iter().map(|key| (key, Update::Gauge(0.0))))
    }
}
