//! `ComputePool` by its behaviour, through the public interface.
//!
//! `THRONG_LONG=1` makes the tests that hunt for races go on for longer.

use throng::ComputePool;
use throng::compute::{Builder, LaneMetrics, Metrics, Permit};

mod support;

#[path = "compute/pools.rs"]
mod pools;

#[path = "compute/abort.rs"]
mod abort;
#[path = "compute/bounded.rs"]
mod bounded;
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
#[path = "compute/shutdown.rs"]
mod shutdown;
#[path = "compute/shutdown_now.rs"]
mod shutdown_now;
#[path = "compute/stuck.rs"]
mod stuck;
#[path = "compute/tasks.rs"]
mod tasks;
#[path = "compute/together.rs"]
mod together;

const fn is_thread_safe<T: Send + Sync + Unpin>() {}

const _: () = {
    is_thread_safe::<ComputePool>();
    is_thread_safe::<Permit<'static>>();
    is_thread_safe::<Builder>();
    is_thread_safe::<Metrics>();
    is_thread_safe::<LaneMetrics>();
};

#[test]
fn futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let pool = pools::of(1);
    is_send(&pool.reserve());
    is_send(&pool.terminated());
}

#[test]
fn debug_output_says_which_pool_it_is_and_what_it_does() {
    let pool = ComputePool::builder().name("sums").build().unwrap();
    let text = format!("{pool:?}");
    assert!(
        text.contains("\"sums\"") && text.contains("rejected: 0"),
        "{text}"
    );
    let mut builder = ComputePool::builder();
    let text = format!("{:?}", builder.name("sums").threads(3).capacity(7));
    assert!(
        text.contains("\"sums\"") && text.contains('3') && text.contains('7'),
        "{text}"
    );
}

#[test]
fn a_builder_refuses_a_name_with_a_zero_byte() {
    let error = ComputePool::builder().name("a\0b").build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
#[should_panic(expected = "at least one thread")]
fn a_pool_of_no_threads_is_a_mistake() {
    ComputePool::builder().threads(0);
}

#[test]
fn there_is_a_lane_for_each_thread() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let pool = ComputePool::builder().build().unwrap();
    assert_eq!(pool.metrics().lanes.len(), cores);
    assert_eq!(pools::of(5).metrics().lanes.len(), 5);
}
