//! [`Published`]: what a registry has passed to a recorder of the crate `metrics`, which determines what it passes next.

use std::collections::HashMap;

use metrics::{Key, Label};

use super::family::{Family, FamilyType};
use super::names::{BUILD_INFO, WATCH_SECONDS};
use super::snapshot::Snapshot;
use super::value::{Buckets, Value};

/// The series that were published before, as far as their next values depend on that.
#[derive(Default)]
pub(super) struct Published {
    /// The number of snapshots so far.
    round: u64,
    /// The rounds in which gauges were published last.
    gauges: HashMap<Key, u64>,
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
    /// What is to be recorded so that a recorder shows the numbers of the snapshot.
    pub(super) fn updates(&mut self, snapshot: &Snapshot) -> Vec<(Key, Update)> {
        self.round += 1;
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
                let update = self.update(&key, sample.family, &sample.value);
                updates.push((key, update));
            }
        }
        updates.extend(self.remove_old_gauges());
        updates
    }

    fn update(&mut self, key: &Key, family: &Family, value: &Value) -> Update {
        let number = match value {
            Value::Count(count) if family.kind == FamilyType::Counter => {
                return Update::Counter(*count);
            }
            Value::Histogram(buckets) => {
                let before = self.histograms.entry(key.clone()).or_default();
                return Update::Histogram(before.grow_to(buckets));
            }
            Value::Count(count) => *count as f64,
            Value::Seconds(time) => time.as_secs_f64(),
        };
        self.gauges.insert(key.clone(), self.round);
        Update::Gauge(number)
    }

    /// Forgets the gauges that are not in this round, and sets them to 0.
    fn remove_old_gauges(&mut self) -> impl Iterator<Item = (Key, Update)> {
        let gone = self.gauges.extract_if(|_, last| *last < self.round);
        gone.map(|(key, _)| (key, Update::Gauge(0.0)))
    }
}
