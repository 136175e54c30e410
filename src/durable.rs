//! Tasks that survive the process: [`DurableExecutor`].

mod error;
mod id;
mod inspect;
pub(crate) mod store;

pub use self::error::DurableError;
pub use self::id::{ParseTaskIdError, TaskId};
pub use self::inspect::{Counts, DeadFilter, DeadLetter, Durability, Status};
pub use self::store::{DeadReason, Store};
