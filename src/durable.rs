//! Tasks that survive the process: [`DurableExecutor`].

mod clock;
mod error;
mod id;
mod inspect;
pub(crate) mod store;

#[cfg(any(test, feature = "test-util"))]
pub use self::clock::Clock;
pub use self::error::DurableError;
pub use self::id::{ParseTaskIdError, TaskId};
pub use self::inspect::{Counts, DeadFilter, DeadLetter, Durability, Status};
#[cfg(any(test, feature = "test-util"))]
pub use self::store::memory::MemoryStore;
pub use self::store::{DeadReason, Store};
