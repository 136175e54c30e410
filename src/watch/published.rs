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

/// The name and the labels of a sample.
fn key_of(part: &PartSnapshot, sample: &Sample) -> Key {
    let mut labels = vec![Label::new(part.kind.label(), part.name.clone())];
    let item = sample.item();
    labels.extend(item.map(|(name, value)| Label::new(name, value.to_owned())));
    let own = sample.label();
    labels.extend(own.map(|(name, value)| Label::from_static_parts(name, value)));
    Key::from_parts(sample.name(), labels)
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
            let mut gauges = HashSet::new();
            for sample in &part.samples {
                let key = key_of(part, sample);
                let update = self.update(&key, sample);
                if matches!(update, Update::Gauge(_)) {
                    gauges.insert(key.clone());
                }
                updates.push((key, update));
            }
            updates.extend(self.replace_gauges(part, gauges));
        }
        updates.extend(self.remove_gauges(snapshot));
        updates
    }

    fn update(&mut self, key: &Key, sample: &Sample) -> Update {
        match &sample.value {
            Value::Count(count) if sample.family.kind == FamilyType::Counter => {
                Update::Counter(*count)
            }
            Value::Histogram(buckets) => {
                let before = self.histograms.entry(key.clone()).or_default();
                Update::Histogram(before.grow_to(buckets))
            }
            Value::Count(count) => Update::Gauge(*count as f64),
            Value::Seconds(time) => Update::Gauge(time.as_secs_f64()),
        }
    }

    /// Records the gauges of a snapshot of a part. A gauge that is missing, although there are others of the same metric, is one of an item
    /// that is gone, such as a queue. It is set to 0.
    fn replace_gauges(
        &mut self,
        part: &PartSnapshot,
        gauges: HashSet<Key>,
    ) -> impl Iterator<Item = (Key, Update)> {
        let metrics: HashSet<&str> = gauges.iter().map(Key::name).collect();
        let known = self.gauges.entry((part.kind, part.name.clone()));
        let known = known.or_default();
        let gone = known.extract_if(|key| metrics.contains(key.name()) && !gauges.contains(key));
        let gone: Vec<_> = gone.collect();
        known.extend(gauges);
        gone.into_iter().map(|key| (key, Update::Gauge(0.0)))
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
