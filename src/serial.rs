//! [`SerialExecutor`]: runs jobs on a state, one at a time, without a thread and without a mailbox.
//!
//! `core` defines the words and the protocol; read it first. A file uses only files that are further down in this
//! table:
//!
//! | files | what they do |
//! |---|---|
//! | `builder`, `weak`, `reserve`, `submit`, `submit_async`, `blocking`, `transact` | the public methods |
//! | `enqueue`, `job`, `executor` | how a job runs inline, is queued or is rejected; the handle and its end |
//! | `exclusive` | the guard of an asynchronous job |
//! | `drain`, `target`, `quantum` | who runs what is queued, where and for how long |
//! | `owner` | acquiring and releasing the executor |
//! | `core` | the state, the queue and the word |
//! | `queue`, `suspended`, `level`, `cost`, `metrics`, `options` | what the core is made of |

mod blocking;
mod builder;
mod core;
mod cost;
mod drain;
mod enqueue;
mod exclusive;
mod executor;
mod job;
mod level;
mod metrics;
mod options;
mod owner;
mod quantum;
mod queue;
mod reserve;
mod submit;
mod submit_async;
mod suspended;
mod target;
mod transact;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
mod weak;

pub use self::builder::Builder;
pub use self::exclusive::Exclusive;
pub use self::executor::{IntoInnerError, SerialExecutor};
pub use self::level::Level;
pub use self::metrics::Metrics;
pub use self::options::OnPanic;
pub use self::transact::{ByClone, Checkpoint};
// Models have no weak references.
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
pub use self::weak::WeakSerialExecutor;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
