//! The behaviour of `BlockingPool`, through the public interface.
//!
//! With `THRONG_LONG=1`, the tests that look for races run longer.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use throng::blocking::{Builder, Bulkhead, Histogram, Metrics, Overflow};
use throng::{BlockingPool, Permit, PollReserve};

mod support;

#[path = "blocking/pools.rs"]
mod pools;

#[path = "blocking/batch.rs"]
mod batch;
#[path = "blocking/bulkhead.rs"]
mod bulkhead;
#[path = "blocking/bulkhead_races.rs"]
mod bulkhead_races;
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
#[path = "blocking/until_idle.rs"]
mod until_idle;

const fn is_thread_safe<T: Send + Sync + Unpin>() {}
const fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

const _: () = {
    is_thread_safe::<BlockingPool>();
    is_thread_safe::<Permit<'static, BlockingPool>>();
    is_thread_safe::<Builder>();
    is_thread_safe::<Metrics>();
    is_thread_safe::<Histogram>();
    is_thread_safe::<Overflow>();
    is_thread_safe::<PollReserve<BlockingPool>>();
    is_thread_safe::<Bulkhead>();
    is_unwind_safe::<BlockingPool>();
    is_unwind_safe::<Permit<'static, BlockingPool>>();
    is_unwind_safe::<Builder>();
    is_unwind_safe::<Metrics>();
    is_unwind_safe::<PollReserve<BlockingPool>>();
    is_unwind_safe::<Bulkhead>();
};

#[test]
fn futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let pool = BlockingPool::builder().build().unwrap();
    is_send(&pool.reserve());
    is_send(&pool.closed());
    is_send(&pool.idle());
    is_send(&pool.shutdown(Duration::ZERO));
    is_send(&pool.bulkhead(1, 1).unwrap().reserve());
}

#[test]
fn debug_output_has_the_name_and_the_metrics() {
    let pool = BlockingPool::builder().name("disk").build().unwrap();
    let text = format!("{pool:?}");
    assert!(
        text.contains("\"disk\"") && text.contains("queued: 0"),
        "{text}"
    );
}

#[test]
fn a_bad_option_is_an_error_that_names_it() {
    fn assert_refused(option: &str, set: impl Fn(&mut Builder)) {
        let mut builder = BlockingPool::builder();
        set(&mut builder);
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let message = error.to_string();
        assert!(message.starts_with(&format!("`{option}` is ")), "{message}");
    }
    assert_refused("core_threads", |builder| {
        builder.core_threads(3).max_threads(2);
    });
    assert_refused("max_threads", |builder| {
        builder.max_threads(0);
    });
    assert_refused("name", |builder| {
        builder.name("a\0b");
    });
    let pool = BlockingPool::new();
    let error = pool.bulkhead(0, 1).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("`max_running` is 0"));
}

#[test]
fn no_thread_is_created_before_it_is_needed() {
    let pool = BlockingPool::builder().core_threads(4).build().unwrap();
    assert_eq!((pool.metrics().threads, pool.metrics().largest), (0, 0));
}
