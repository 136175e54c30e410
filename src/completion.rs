//! A bounded stream that yields jobs as they finish, wherever they run: [`CompletionStream`]. [`JoinSet`] and
//! [`JoinMap`] are unbounded, and have the interfaces of Tokio's types of the same names.
//!
//! A *job* is submitted and runs, *completes* when it has an outcome, and is *read* when the stream yields it. It is
//! *outstanding* from its submission until it is read. A submitter waits in `Shared::acquire_both`: until fewer jobs than allowed are
//! outstanding, and then until fewer are running.
//!
//! Each file uses only files above it in this table:
//!
//! | files | contents |
//! | --- | --- |
//! | `runners.rs` | the tasks that poll small futures |
//! | `spill.rs`, `jobs.rs`, `queue.rs` | the queue of completions, and the records of the jobs |
//! | `slot.rs`, `forward.rs`, `in_place.rs`, `wrapped.rs` | the promise of a completion, and the ways to fulfil it |
//! | `stall.rs`, `shared.rs`, `start.rs` | the limits, and the start of accepted futures |
//! | `submitter.rs`, `reserve.rs` | the submitting end of a stream |
//! | `stream.rs`, `read.rs`, `ordered.rs`, `builder.rs` | the reading end of a stream |
//! | `join_set.rs`, `join_map.rs` | types that are built on streams |

mod builder;
mod forward;
mod in_place;
mod jobs;
mod join_map;
mod join_set;
mod metrics;
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
mod wrapped;

pub use self::builder::Builder;
#[cfg(feature = "durable")]
pub(crate) use self::forward::forward;
pub use self::join_map::JoinMap;
pub use self::join_set::JoinSet;
pub use self::metrics::Metrics;
pub use self::slot::Slot;
pub use self::stream::{Completed, CompletionStream};
pub use self::submitter::Submitter;
pub use self::wrapped::Wrapped;

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
