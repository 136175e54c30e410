//! A registry of the parts of this process whose numbers are read on demand: for a `/metrics` route, a log line or a page.
//!
//! Parts are put into a [`Registry`] by name. A [`Snapshot`] reads the counters that each part keeps anyway, so a part that is
//! watched works exactly as fast as one that is not, and nothing runs between two snapshots.
//!
//! ```
//! use throng::watch::Registry;
//! use throng::{BlockingPool, ComputePool};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = BlockingPool::builder().max_threads(16).queue_capacity(100).build()?;
//! let parse = ComputePool::new();
//! let registry = Registry::new();
//! registry.watch("db", &db);
//! registry.watch("parse", &parse);
//!
//! // The body of the answer of a `/metrics` route, which Prometheus scrapes.
//! let text = registry.prometheus();
//! assert!(text.contains("throng_blocking_queue_capacity{pool=\"db\"} 100"));
//! # Ok(()) }
//! ```
//!
//! The example `metrics` has such a route. With the feature `durable`, `snapshot_with_stores` also asks stores for the numbers
//! of all their tasks. With the feature `metrics`, `Registry::publish` and `publish_every` pass the numbers to the crate
//! `metrics`, for its exporters. With the feature `tracing`, `trace_every` shows the parts in tokio-console.
//!
//! # What holds for watched parts
//!
//! - *The registry does not keep a part alive.* A watched part shuts down and is dropped as if nobody watched it, and then
//!   leaves the registry. If its last owner goes away while it is read, the thread that reads it drops what the part holds,
//!   such as the state of a [`SerialExecutor`](crate::SerialExecutor). A panic of that drop is contained.
//! - *Parts of one kind with one name are added up.* Of a longest time, the sum is the maximum. A bound is absent if one of the
//!   parts has none.
//! - *Counters never fall.* What a part had counted when it was last read remains in the sum of its name when the part is gone,
//!   as long as the registry exists. What it has counted since then is lost. Gauges are absent when no part is left.
//! - *A read takes no part's time.* It takes a few microseconds for each part, and takes the lock of a
//!   [`BlockingPool`](crate::BlockingPool) as a submission does.
//!
//! # What is not measured
//!
//! A part exports only what it counts. [`JoinSet`](crate::completion::JoinSet) and
//! [`JoinMap`](crate::completion::JoinMap) cannot be watched.
//!
#![doc = include_str!("../docs/METRICS.md")]

#[cfg(feature = "tracing")]
mod console;
#[cfg(feature = "durable")]
mod executors;
#[cfg(feature = "metrics")]
mod facade;
mod family;
mod group;
mod kind;
mod names;
mod numbers;
mod part;
mod prometheus;
#[cfg(feature = "metrics")]
mod published;
mod registry;
mod snapshot;
#[cfg(feature = "durable")]
mod stores;
mod value;
mod watched;

pub use self::kind::PartKind;
pub use self::numbers::Sample;
pub use self::part::Part;
pub use self::registry::Registry;
pub use self::snapshot::{PartSnapshot, Snapshot};
pub use self::value::{BUCKETS, Buckets, Value};

#[cfg(test)]
mod tests;
