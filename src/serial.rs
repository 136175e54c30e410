//! An actor that needs neither a thread nor a mailbox, and runs jobs on its state one at a time: [`SerialExecutor`].
//!
//! Read `core` first: it defines the terms and the protocol. Each file uses only files below it in this table:
//!
//! | files | contents |
//! |---|---|
//! | `builder`, `weak`, `reserve`, `submit`, `submit_async`, `blocking`, `transact` | the public methods |
//! | `enqueue`, `job`, `executor` | running a job inline, queueing or rejecting it; the handle of the executor |
//! | `exclusive` | the guard of an asynchronous job |
//! | `drain`, `target`, `quantum` | the task that runs the queue, the runtime or pool it runs on, and the limit of one poll |
//! | `owner` | acquiring and releasing the executor |
//! | `core` | the state, the queue and the word |
//! | `queue`, `suspended`, `level`, `cost`, `metrics`, `options` | the parts of the core |

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
pub use self::executor::SerialExecutor;
pub use self::level::Level;
pub use self::metrics::Metrics;
pub use self::transact::{ByClone, Checkpoint};
// The models do not support weak references.
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
pub use self::weak::WeakSerialExecutor;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
