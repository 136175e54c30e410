//! What all executors of this crate share: the handle of a task, its errors, and the trait through which one part
//! runs its tasks on another.

mod abort_handle;
mod abort_on_drop;
mod backlog;
mod block_on;
mod closed;
mod complete;
mod counts;
mod error;
mod forward;
mod handle;
mod id;
mod in_place;
mod jobs;
mod nesting;
mod outlet;
mod permit;
mod pool_thread;
mod run_context;
pub(crate) mod sealed;
mod shutdown;
mod slot;
mod small_value;
mod spawn;
mod spawn_error;
mod work;
mod wrapped;

pub use self::abort_handle::AbortHandle;
pub use self::abort_on_drop::AbortOnDropHandle;
pub(crate) use self::backlog::{Backlog, Moved};
pub use self::closed::Closed;
pub(crate) use self::counts::RunCounts;
pub use self::error::JoinError;
#[cfg(feature = "durable")]
pub(crate) use self::forward::forward;
pub use self::handle::JoinHandle;
pub use self::id::{Id, try_id};
pub(crate) use self::nesting::{
    ExecutorId, ExecutorScope, MAX_NESTED_JOBS, NestedJob, defer, is_inside, is_inside_other,
    prepare_to_wait,
};
pub(crate) use self::outlet::Outlet;
pub use self::permit::{Bounded, OwnedPermit, Permit, PollReserve};
pub(crate) use self::pool_thread::{Origin, PoolThread, enter_pool, is_pool_thread};
pub(crate) use self::run_context::{PanicHandler, RunContext};
#[allow(unused_imports, reason = "the parts adopt it one after the other")]
pub(crate) use self::shutdown::{Close, blocking_shutdown, shutdown, shutdown_now};
pub use self::slot::Slot;
pub(crate) use self::slot::{Entry, Finished};
pub use self::spawn::Spawn;
pub use self::spawn_error::{TryRunError, TrySpawnError};
pub use self::work::Work;
pub use self::wrapped::Wrapped;

#[cfg(all(test, throng_loom))]
mod loom_tests;
