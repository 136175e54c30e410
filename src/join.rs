//! What all executors of this crate have in common: the handle of a task, its errors, and the one
//! small trait by which one part runs its work on another.

mod abort;
mod abort_on_drop;
mod backlog;
mod closed;
mod error;
mod forward;
mod handle;
mod id;
mod jobs;
mod nesting;
mod outlet;
mod permit;
mod pool_thread;
mod shutdown;
mod slot;
mod spawn;
mod wrapped;

pub use self::abort::AbortHandle;
pub use self::abort_on_drop::AbortOnDropHandle;
pub(crate) use self::backlog::{Backlog, Moved};
pub use self::closed::Closed;
pub use self::error::{JoinError, TryRunError, TrySpawnError};
#[cfg(feature = "durable")]
pub(crate) use self::forward::forward;
pub use self::handle::JoinHandle;
pub use self::id::Id;
pub(crate) use self::nesting::{
    Depth, Inside, MAX_DEPTH, Name, defer, is_among_others, is_inside, prepare_to_wait,
};
pub(crate) use self::outlet::Outlet;
pub use self::permit::{Bounded, OwnedPermit, Permit, PollReserve};
pub(crate) use self::pool_thread::{Origin, PoolThread, enter_pool, exit_pool, is_pool_thread};
#[allow(unused_imports, reason = "the parts adopt it one after the other")]
pub(crate) use self::shutdown::{Close, blocking_shutdown, shutdown, shutdown_now};
pub use self::slot::Slot;
pub(crate) use self::slot::{Entry, Finished};
pub(crate) use self::spawn::{PanicHandler, RunContext, Tally, sealed};
pub use self::spawn::{Spawn, Work};
pub use self::wrapped::Wrapped;

#[cfg(all(test, throng_loom))]
mod loom_tests;
