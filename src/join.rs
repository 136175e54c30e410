//! What all executors of this crate have in common: the handle of a task, its errors, and the one
//! small trait by which one part runs its work on another.

mod abort;
mod abort_on_drop;
mod closed;
mod error;
mod handle;
mod id;
mod nesting;
mod permit;
mod pool_thread;
mod shutdown;
mod spawn;

pub use self::abort::AbortHandle;
pub use self::abort_on_drop::AbortOnDropHandle;
pub use self::closed::Closed;
pub use self::error::{JoinError, TryRunError, TrySpawnError};
pub use self::handle::JoinHandle;
pub use self::id::Id;
pub(crate) use self::nesting::{
    Depth, Inside, MAX_DEPTH, Name, defer, is_among_others, is_inside, prepare_to_wait,
};
pub use self::permit::{Bounded, OwnedPermit, Permit, PollReserve};
pub(crate) use self::pool_thread::{Origin, PoolThread, enter_pool, exit_pool, is_pool_thread};
#[allow(unused_imports, reason = "the parts adopt it one after the other")]
pub(crate) use self::shutdown::{Close, blocking_shutdown, shutdown, shutdown_now};
pub(crate) use self::spawn::{PanicHandler, RunContext, Tally, sealed, wait_until};
pub use self::spawn::{Spawn, Work};

#[cfg(all(test, throng_loom))]
mod loom_tests;
