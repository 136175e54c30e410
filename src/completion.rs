//! [`CompletionStream`]: finished jobs, in the order in which they finish, wherever they run. [`JoinSet`] and
//! [`JoinMap`] are the same without bounds, with the interface of Tokio's.
//!
//! A *job* is submitted and runs, *completes* when it has an outcome, and is *read* when the stream yields it. From the
//! submission until it is read, it is *outstanding*.
//!
//! The files, each of which uses only those above it:
//!
//! | files | content |
//! | --- | --- |
//! | `spill.rs`, `jobs.rs`, `queue.rs` | where completions arrive, and the records of the jobs |
//! | `slot.rs`, `forward.rs`, `in_place.rs`, `wrapped.rs` | the promise of a completion, and the ways to keep it |
//! | `runners.rs` | the tasks that poll futures for the first time |
//! | `stall.rs`, `shared.rs`, `start.rs` | the limits, and how accepted futures start |
//! | `submitter.rs`, `reserve.rs` | the end where jobs go in |
//! | `stream.rs`, `read.rs`, `ordered.rs`, `until_idle.rs`, `builder.rs` | the end where completions come out |
//! | `fixed.rs`, `join_set.rs`, `join_map.rs` | what is built with streams |

mod builder;
mod fixed;
mod forward;
mod in_place;
mod jobs;
mod join_map;
mod join_set;
mod ordered;
mod queue;
mod read;
mod reserve;
mod runners;
mod shared;
mod slot;
mod spill;
#[cfg(feature = "tracing")]
mod stall;
mod start;
mod stream;
mod submitter;
mod until_idle;
mod wrapped;

pub use self::builder::Builder;
pub use self::fixed::JobError;
#[cfg(feature = "durable")]
pub(crate) use self::forward::forward;
pub use self::join_map::JoinMap;
pub use self::join_set::JoinSet;
pub use self::ordered::Ordered;
pub use self::read::{DrainReady, NextOrSubmit};
pub use self::slot::Slot;
pub use self::stream::{Completed, CompletionStream};
pub use self::submitter::Submitter;
pub use self::until_idle::UntilIdle;
pub use self::wrapped::Wrapped;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
