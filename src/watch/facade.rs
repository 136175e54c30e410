//! The numbers through the facade of the crate `metrics`.

use std::time::Duration;

use metrics::{Key, Level, Metadata, Recorder, with_recorder};
use tokio::time::MissedTickBehavior;

use super::family::FamilyType;
use super::kind::PartKind;
use super::names::{BUILD_INFO, WATCH_SECONDS, families};
use super::published::Update;
use super::registry::Registry;
use super::snapshot::Snapshot;

static METADATA: Metadata<'static> =
    Metadata::new("throng::watch", Level::INFO, Some("throng::watch"));

impl Registry {
    /// Reads all watched parts, and passes their numbers to the [recorder](metrics::Recorder) that the program has installed,
    /// such as an exporter. Does nothing without a recorder. Call it every few seconds: between two calls, nothing changes.
    ///
    /// Names and labels are those of the [text for Prometheus](super#metrics). Counters are set to their values. The facade
    /// cannot remove a gauge, so a gauge is set to 0 when no part or queue with its name is left. If a snapshot lacks all gauges of a
    /// metric, they keep their values: for example, this call does not ask stores for the numbers of their tasks. For each time that
    /// a histogram has counted since the last call, the end of its bucket is recorded. So an exporter that has the
    /// [same buckets](super::BUCKETS) shows the same counts.
    ///
    /// # Examples
    ///
    /// ```
    /// let registry = throng::watch::Registry::new();
    /// registry.watch("db", &throng::BlockingPool::new());
    /// registry.publish();
    /// ```
    pub fn publish(&self) {
        self.publish_snapshot(&self.snapshot());
    }

    /// Publishes the numbers of all watched parts and stores now and then once per interval, until the future is dropped.
    ///
    /// With the feature `durable`, the watched stores are asked for the numbers of all their tasks, as by `snapshot_with_stores`.
    ///
    /// # Panics
    ///
    /// Panics if `interval` is zero, or outside of a Tokio runtime with timers.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::watch::Registry;
    ///
    /// # #[tokio::main] async fn main() {
    /// let publisher = tokio::spawn(Registry::global().publish_every(Duration::from_secs(5)));
    /// // ..
    /// publisher.abort();
    /// # }
    /// ```
    pub async fn publish_every(&self, interval: Duration) {
        let mut interval = tokio::time::interval(interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            #[cfg(feature = "durable")]
            let snapshot = self.snapshot_with_stores().await;
            #[cfg(not(feature = "durable"))]
            let snapshot = self.snapshot();
            self.publish_snapshot(&snapshot);
        }
    }

    /// As [`publish`](Self::publish), with the numbers of a snapshot that was taken before, for instance by
    /// `snapshot_with_stores`.
    ///
    /// # Examples
    ///
    /// ```
    /// let registry = throng::watch::Registry::new();
    /// registry.watch("db", &throng::BlockingPool::new());
    /// let snapshot = registry.snapshot();
    /// registry.publish_snapshot(&snapshot);
    /// ```
    pub fn publish_snapshot(&self, snapshot: &Snapshot) {
        let updates = self.with_published(|published| published.updates(snapshot));
        // Without a lock, since a recorder is code of the user.
        with_recorder(|recorder| {
            describe_all(recorder);
            for (key, update) in updates {
                send(recorder, &key, update);
            }
        });
    }
}

fn describe_all(recorder: &dyn Recorder) {
    let families = PartKind::ALL.iter().flat_map(|&kind| families(kind));
    let families = families.map(|(family, _)| family);
    for family in families.chain([&BUILD_INFO, &WATCH_SECONDS]) {
        let (name, help) = (family.name.into(), family.help.into());
        match family.kind {
            FamilyType::Counter => recorder.describe_counter(name, None, help),
            FamilyType::Gauge => recorder.describe_gauge(name, None, help),
            FamilyType::Histogram => recorder.describe_histogram(name, None, help),
        }
    }
}

fn send(recorder: &dyn Recorder, key: &Key, update: Update) {
    match update {
        Update::Counter(count) => recorder.register_counter(key, &METADATA).absolute(count),
        Update::Gauge(number) => recorder.register_gauge(key, &METADATA).set(number),
        Update::Histogram(values) => {
            let histogram = recorder.register_histogram(key, &METADATA);
            for (value, count) in values {
                histogram.record_many(value, count.try_into().unwrap_or(usize::MAX));
            }
        }
    }
}
