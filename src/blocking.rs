//! A thread pool for blocking closures that adds threads before it queues: [`BlockingPool`].
//!
//! See `blocking/PROTOCOL.md` for the protocol between submitters, threads and the timer.

mod builder;
mod bulkhead;
mod default_pool;
mod histogram;
mod metrics;
mod options;
mod overflow;
mod parker;
mod pause;
mod pool;
mod queue;
mod runtime;
mod samples;
mod shared;
mod spawn;
mod state;
mod stopwatch;
mod submit;
mod task;
mod trace;
mod waits;
mod worker;

pub use self::builder::Builder;
pub use self::bulkhead::{Bulkhead, BulkheadMetrics};
pub use self::default_pool::spawn_blocking;
pub use self::histogram::Histogram;
pub use self::metrics::Metrics;
pub use self::options::Growth;
pub use self::overflow::{Overflow, OverflowHandler};
pub use self::pool::BlockingPool;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
