//! What all executors of this crate have in common: the handle of a task, its errors, and the one
//! small trait by which one part runs its work on another.

mod abort;
mod abort_on_drop;
mod error;
mod handle;
mod host;
mod id;
mod slot;
mod spawn;

pub use self::abort::AbortHandle;
pub use self::abort_on_drop::AbortOnDropHandle;
pub use self::error::{JoinError, TryRunError, TrySpawnError};
pub use self::handle::JoinHandle;
pub(crate) use self::host::{Host, is_hosted, move_in, move_out};
pub use self::id::Id;
pub use self::slot::Slot;
pub(crate) use self::slot::{Entry, Finished, Outlet};
pub(crate) use self::spawn::{PanicHandler, Seat, sealed, wait_until};
pub use self::spawn::{Spawn, Work};

#[cfg(all(test, throng_loom))]
mod loom_tests;
