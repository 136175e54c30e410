//! `BlockingPool` by its behaviour, through the public interface.
//!
//! `THRONG_LONG=1` makes the tests that hunt for races go on for longer.

use std::panic::{RefUnwindSafe, UnwindSafe};

use throng::BlockingPool;
use throng::blocking::{
    Builder, Growth, Histogram, Metrics, Overflow, OwnedPermit, Permit, PollReserve, PoolView,
};

mod support;

#[path = "blocking/pools.rs"]
mod pools;

#[path = "blocking/batch.rs"]
mod batch;
#[path = "blocking/growth.rs"]
mod growth;
#[path = "blocking/hooks.rs"]
mod hooks;
#[path = "blocking/idle.rs"]
mod idle;
#[path = "blocking/joins.rs"]
mod joins;
#[path = "blocking/metrics.rs"]
mod metrics;
#[path = "blocking/model.rs"]
mod model;
#[path = "blocking/no_thread.rs"]
mod no_thread;
#[cfg(target_os = "linux")]
#[path = "blocking/no_thread_limit.rs"]
mod no_thread_limit;
#[path = "blocking/overflow.rs"]
mod overflow;
#[path = "blocking/panics.rs"]
mod panics;
#[path = "blocking/plain_model.rs"]
mod plain_model;
#[path = "blocking/policies.rs"]
mod policies;
#[path = "blocking/poll_reserve.rs"]
mod poll_reserve;
#[path = "blocking/reentry.rs"]
mod reentry;
#[path = "blocking/reserve.rs"]
mod reserve;
#[path = "blocking/runtime.rs"]
mod runtime;
#[path = "blocking/settings.rs"]
mod settings;
#[path = "blocking/shutdown.rs"]
mod shutdown;
#[path = "blocking/shutdown_now.rs"]
mod shutdown_now;
#[path = "blocking/tasks.rs"]
mod tasks;
#[path = "blocking/together.rs"]
mod together;
#[path = "blocking/view_hunt.rs"]
mod view_hunt;
#[path = "blocking/views.rs"]
mod views;

const fn is_thread_safe<T: Send + Sync + Unpin>() {}
const fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
const fn is_plain<T: Copy + Eq + Default>() {}

const _: () = {
    is_thread_safe::<BlockingPool>();
    is_thread_safe::<Permit<'static>>();
    is_thread_safe::<Builder>();
    is_thread_safe::<Metrics>();
    is_thread_safe::<Histogram>();
    is_thread_safe::<Overflow>();
    is_thread_safe::<OwnedPermit>();
    is_thread_safe::<PollReserve>();
    is_thread_safe::<PoolView>();
    is_unwind_safe::<BlockingPool>();
    is_unwind_safe::<Permit<'static>>();
    is_unwind_safe::<Builder>();
    is_unwind_safe::<Metrics>();
    is_unwind_safe::<OwnedPermit>();
    is_unwind_safe::<PollReserve>();
    is_unwind_safe::<PoolView>();
    is_plain::<Growth>();
};

#[test]
fn futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let pool = BlockingPool::builder().build().unwrap();
    is_send(&pool.reserve());
    is_send(&pool.terminated());
}

#[test]
fn debug_output_says_which_pool_it_is_and_what_it_does() {
    let pool = BlockingPool::builder().name("disk").build().unwrap();
    let text = format!("{pool:?}");
    assert!(
        text.contains("\"disk\"") && text.contains("queued: 0"),
        "{text}"
    );
}

#[test]
fn a_builder_refuses_what_cannot_be() {
    let refused = |builder: &mut Builder| builder.build().unwrap_err().kind();
    let mut more_core_than_max = BlockingPool::builder();
    more_core_than_max.core_threads(3).max_threads(2);
    assert_eq!(
        refused(&mut more_core_than_max),
        std::io::ErrorKind::InvalidInput
    );
    let mut zero_byte = BlockingPool::builder();
    zero_byte.name("a\0b");
    assert_eq!(refused(&mut zero_byte), std::io::ErrorKind::InvalidInput);
}

#[test]
#[should_panic(expected = "at least one thread")]
fn a_pool_of_no_threads_is_a_mistake() {
    BlockingPool::builder().max_threads(0);
}

#[test]
fn no_thread_is_created_before_it_is_needed() {
    let pool = BlockingPool::builder().core_threads(4).build().unwrap();
    assert_eq!(pool.metrics(), Metrics::default());
}
