//! A pool of a few threads for very large numbers of tiny closures: [`ComputePool`].
//!
//! See `compute/PROTOCOL.md` for the protocol between submitters, workers and the timer.

mod builder;
mod counters;
mod keyed;
mod keys;
mod lane;
mod metrics;
mod options;
mod pinned;
mod pool;
mod reserve;
mod route;
mod scope;
mod shared;
mod watchdog;
mod worker;

pub use self::builder::Builder;
pub use self::metrics::{LaneMetrics, Metrics};
pub use self::pool::ComputePool;
pub use self::scope::Scope;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
