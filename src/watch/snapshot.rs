//! [`Snapshot`]: the numbers of all watched parts at one moment.

use std::time::Duration;

use super::kind::PartKind;
use super::numbers::{Numbers, Sample};
use super::value::Value;

/// The numbers of all parts that a [`Registry`](super::Registry) watches, at one moment.
///
/// The parts are read one after the other while they work.
///
/// # Examples
///
/// ```
/// use throng::watch::{PartKind, Registry, Value};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = throng::BlockingPool::builder().max_threads(4).build()?;
/// let registry = Registry::new();
/// registry.watch("db", &pool);
/// pool.spawn_blocking(|| ()).await?;
///
/// let snapshot = registry.snapshot();
/// let db = snapshot.part(PartKind::BlockingPool, "db").expect("it is watched");
/// assert_eq!(db.value("throng_blocking_threads_max", ""), Some(&Value::Count(4)));
/// assert_eq!(db.value("throng_blocking_tasks_total", "completed"), Some(&Value::Count(1)));
/// for part in snapshot.parts() {
///     println!("{:?} {}: {} alive", part.kind(), part.name(), part.live());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) parts: Vec<PartSnapshot>,
    pub(super) took: Duration,
}

/// The numbers of the parts with one kind and name.
#[derive(Clone, Debug)]
pub struct PartSnapshot {
    pub(super) kind: PartKind,
    pub(super) name: String,
    pub(super) live: u64,
    pub(super) samples: Vec<Sample>,
}

impl Snapshot {
    /// Returns the parts, by kind and name.
    ///
    /// # Examples
    ///
    /// See [`Snapshot`].
    pub fn parts(&self) -> &[PartSnapshot] {
        &self.parts
    }

    /// Returns the parts with this kind and name.
    ///
    /// # Examples
    ///
    /// See [`Snapshot`].
    pub fn part(&self, kind: PartKind, name: &str) -> Option<&PartSnapshot> {
        let mut parts = self.parts.iter();
        parts.find(|part| part.kind == kind && part.name == name)
    }

    /// Returns the time that it took to read the parts.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl PartSnapshot {
    pub(super) fn new(kind: PartKind, name: &str, (live, numbers): (u64, Numbers)) -> Self {
        Self {
            kind,
            name: name.into(),
            live,
            samples: numbers.into_samples(),
        }
    }

    /// Returns the kind of the parts.
    pub fn kind(&self) -> PartKind {
        self.kind
    }

    /// Returns the name with which the parts are watched.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of parts with this name that exist. If it is 0, only counters are left, with the last values that
    /// were seen.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Returns the values. A metric with a label has one for each value of the label.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::watch::{PartKind, Registry};
    ///
    /// let pool = throng::ComputePool::new();
    /// let registry = Registry::new();
    /// registry.watch("parse", &pool);
    ///
    /// let snapshot = registry.snapshot();
    /// let parse = snapshot.part(PartKind::ComputePool, "parse").expect("it is watched");
    /// for sample in parse.samples() {
    ///     println!("{} {:?} {:?}: {:?}", sample.name(), sample.item(), sample.label(), sample.value());
    /// }
    /// assert!(parse.samples().iter().any(|it| it.label() == Some(("outcome", "panicked"))));
    /// ```
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the value of a metric. `label_value` is empty if the metric has no label besides the name of the part. The values of
    /// [items](Sample::item), such as types of tasks, are only in [`samples`](Self::samples).
    ///
    /// # Examples
    ///
    /// See [`Snapshot`].
    pub fn value(&self, metric: &str, label_value: &str) -> Option<&Value> {
        let mut samples = self.samples.iter();
        let found = samples
            .find(|it| it.name() == metric && it.item.is_none() && it.label_value == label_value);
        found.map(Sample::value)
    }
}
