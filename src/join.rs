//! The types that all executors of this crate share: the handle of a task, its errors, and the trait through which one
//! part runs its tasks on another.

mod abort_handle;
mod abort_on_drop;
mod block_on;
mod closed;
mod counts;
mod error;
mod handle;
mod id;
mod nesting;
mod permit;
mod pool_thread;
mod run_context;
pub(crate) mod sealed;
mod shutdown;
mod small_value;
mod spawn;
mod spawn_error;
mod spawn_future;
mod work;

pub use self::abort_handle::AbortHandle;
pub use self::abort_on_drop::AbortOnDropHandle;
pub use self::closed::Closed;
pub(crate) use self::counts::RunCounts;
pub use self::error::JoinError;
pub use self::handle::JoinHandle;
pub use self::id::{Id, try_id};
pub(crate) use self::nesting::{
    ExecutorId, ExecutorScope, MAX_NESTED_JOBS, NestedJob, defer, is_inside, is_inside_other,
    prepare_to_wait,
};
pub use self::permit::{Bounded, Permit, PollReserve};
pub(crate) use self::pool_thread::{Origin, PoolThread, enter_pool, is_pool_thread};
pub(crate) use self::run_context::{PanicHandler, RunContext};
pub(crate) use self::shutdown::{Close, blocking_shutdown, shutdown, shutdown_now};
pub use self::spawn::Spawn;
pub use self::spawn_error::TrySpawnError;
pub use self::spawn_future::spawn;
pub use self::work::Work;

#[cfg(all(test, throng_loom))]
mod loom_tests;
