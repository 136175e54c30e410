//! The behaviour of `ComputePool`, through the public interface.
//!
//! With `THRONG_LONG=1`, the tests that look for races take longer.

use throng::compute::{Builder, LaneMetrics, Metrics, Scope};
use throng::{ComputePool, Permit};

mod support;

#[path = "compute/pools.rs"]
mod pools;

#[path = "compute/abort.rs"]
mod abort;
#[path = "compute/bounded.rs"]
mod bounded;
#[path = "compute/broadcast.rs"]
mod broadcast;
#[path = "compute/drops.rs"]
mod drops;
#[path = "compute/idle.rs"]
mod idle;
#[path = "compute/inside.rs"]
mod inside;
#[path = "compute/keyed.rs"]
mod keyed;
#[path = "compute/last_clone.rs"]
mod last_clone;
#[path = "compute/load.rs"]
mod load;
#[path = "compute/no_thread.rs"]
mod no_thread;
#[path = "compute/order.rs"]
mod order;
#[path = "compute/panics.rs"]
mod panics;
#[path = "compute/reserve.rs"]
mod reserve;
#[path = "compute/runtime.rs"]
mod runtime;
#[path = "compute/same_address.rs"]
mod same_address;
#[path = "compute/scope.rs"]
mod scope;
#[path = "compute/shutdown.rs"]
mod shutdown;
#[path = "compute/shutdown_now.rs"]
mod shutdown_now;
#[path = "compute/stuck.rs"]
mod stuck;
#[path = "compute/tasks.rs"]
mod tasks;
#[cfg(feature = "tracing")]
#[path = "compute/tracing.rs"]
mod tracing;

const fn is_thread_safe<T: Send + Sync + Unpin>() {}

const _: () = {
    is_thread_safe::<ComputePool>();
    is_thread_safe::<Permit<'static, ComputePool>>();
    is_thread_safe::<Scope<'static, 'static>>();
    is_thread_safe::<Builder>();
    is_thread_safe::<Metrics>();
    is_thread_safe::<LaneMetrics>();
};

#[test]
fn futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let pool = pools::of(1);
    is_send(&pool.reserve());
    is_send(&pool.closed());
}

#[test]
fn debug_output_has_the_name_and_the_metrics() {
    let pool = ComputePool::builder().name("sums").build().unwrap();
    let text = format!("{pool:?}");
    assert!(
        text.contains("\"sums\"") && text.contains("rejected: 0"),
        "{text}"
    );
    let mut builder = ComputePool::builder();
    let text = format!("{:?}", builder.name("sums").threads(3).max_outstanding(7));
    assert!(
        text.contains("\"sums\"") && text.contains('3') && text.contains('7'),
        "{text}"
    );
}

#[test]
fn an_invalid_option_is_an_error_that_names_it() {
    let error = |builder: &mut Builder| builder.build().unwrap_err();
    let mut builder = ComputePool::builder();
    for (error, text) in [
        (error(builder.clone().name("a\0b")), "`name` is \"a\\0b\""),
        (error(builder.clone().threads(0)), "`threads` is 0"),
        (error(builder.threads(40_000)), "`threads` is 40000"),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn each_thread_has_a_lane() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let pool = ComputePool::builder().build().unwrap();
    assert_eq!(pool.metrics().lanes.len(), cores);
    assert_eq!(pools::of(5).metrics().lanes.len(), 5);
}
