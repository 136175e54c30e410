//! Tasks that survive the process: [`DurableExecutor`].

mod client;
mod clock;
mod context;
mod dead;
mod engine;
mod error;
mod executor;
mod handle;
mod id;
mod inspect;
mod options;
pub(crate) mod store;
mod task;
mod task_error;

pub use self::client::DurableClient;
#[cfg(any(test, feature = "test-util"))]
pub use self::clock::Clock;
pub use self::context::{StopReason, TaskContext};
pub use self::dead::DeadLetters;
pub use self::error::DurableError;
pub use self::executor::DurableExecutor;
pub use self::executor::builder::Builder;
#[cfg(any(test, feature = "test-util"))]
pub use self::executor::inline::InlineExecutor;
pub use self::executor::metrics::Metrics;
pub use self::handle::DurableHandle;
pub use self::id::{ParseTaskIdError, TaskId};
pub use self::inspect::{Counts, DeadFilter, DeadLetter, Durability, Status};
pub use self::options::SpawnOptions;
#[cfg(any(test, feature = "test-util"))]
pub use self::store::memory::MemoryStore;
pub use self::store::{DeadReason, Store};
pub use self::task::{DurableTask, Run};
pub use self::task_error::TaskError;
