//! The Tokio runtime that a task runs in.

use std::mem;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use throng::BlockingPool;
use tokio::runtime::{Handle, Id, Runtime};

use crate::pools::{output, run, when_idle};
use crate::support::{Gate, join, multi_thread, within};

fn runtime() -> Runtime {
    multi_thread(1, "runtime")
}

/// The runtime that the calling task is in.
fn current() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// The runtime that a task sees which is spawned inside of `runtime`.
fn seen_from(runtime: &Runtime, pool: &BlockingPool) -> Option<Id> {
    runtime.block_on(async { within(pool.spawn_blocking(current)).await.unwrap() })
}

#[test]
fn a_task_runs_in_the_runtime_of_its_submitter_or_else_of_the_builder() {
    let (own, other) = (runtime(), runtime());
    let built_inside =
        own.block_on(async { BlockingPool::builder().max_threads(1).build().unwrap() });
    let built_outside = BlockingPool::builder().max_threads(1).build().unwrap();
    for _ in 0..3 {
        for pool in [&built_inside, &built_outside] {
            assert_eq!(seen_from(&own, pool), Some(own.handle().id()));
            assert_eq!(seen_from(&other, pool), Some(other.handle().id()));
        }
        let of_builder = Some(own.handle().id());
        assert_eq!(output(built_inside.spawn_blocking(current)), of_builder);
        assert_eq!(output(built_outside.spawn_blocking(current)), None);
    }
}

#[test]
fn a_pinned_runtime_is_that_of_all_tasks() {
    let (own, other) = (runtime(), runtime());
    let pool = own.block_on(async {
        let mut builder = BlockingPool::builder();
        builder.runtime(other.handle().clone()).build().unwrap()
    });
    let pinned = Some(other.handle().id());
    assert_eq!(output(pool.spawn_blocking(current)), pinned);
    assert_eq!(seen_from(&own, &pool), pinned);
}

#[test]
fn batches_permits_and_bulkheads_run_in_the_runtime_of_their_submitter() {
    let (own, other) = (runtime(), runtime());
    let pool = own.block_on(async { BlockingPool::new() });
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let seen = other.block_on(async {
        let mut handles = pool.spawn_batch([current; 2]);
        handles.extend(bulkhead.spawn_batch([current; 2]));
        handles.push(pool.reserve().await.unwrap().spawn_blocking(current));
        handles.push(bulkhead.reserve().await.unwrap().spawn_blocking(current));
        within(futures::future::try_join_all(handles))
            .await
            .unwrap()
    });
    assert_eq!(seen, [Some(other.handle().id()); 6]);
}

/// As in a program with two `#[tokio::test]`s, the first of which ends before the second begins.
#[test]
fn a_pool_in_a_static_serves_one_runtime_after_the_other() {
    static POOL: LazyLock<BlockingPool> =
        LazyLock::new(|| BlockingPool::builder().max_threads(1).build().unwrap());
    for n in 0..3 {
        let runtime = runtime();
        let spawned = runtime.block_on(async {
            let spawned = POOL.spawn_blocking(move || tokio::spawn(async move { n }));
            let inner = within(spawned).await.unwrap();
            within(inner).await.unwrap()
        });
        assert_eq!(spawned, n);
    }
}

/// A thread runs a task inside another one, for which it enters and leaves another runtime.
#[test]
fn a_nested_task_has_a_runtime_of_its_own() {
    let (own, other) = (runtime(), runtime());
    let pool = own.block_on(async { BlockingPool::builder().max_threads(1).build().unwrap() });
    let (handle, nested) = (other.handle().clone(), pool.clone());
    let outer = own.block_on(async {
        within(pool.spawn_blocking(move || {
            let inner = {
                let _guard = handle.enter();
                nested.spawn_blocking(current)
            };
            [inner.blocking_join().unwrap(), current()]
        }))
        .await
        .unwrap()
    });
    assert_eq!(outer, [other.handle().id(), own.handle().id()].map(Some));
}

#[test]
fn tasks_can_spawn_and_wait_on_the_runtime() {
    let runtime = runtime();
    let pool = BlockingPool::builder()
        .runtime(runtime.handle().clone())
        .build()
        .unwrap();
    let sum = pool.spawn_blocking(|| {
        let spawned = tokio::spawn(async { 1 });
        Handle::current().block_on(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let blocking = tokio::task::spawn_blocking(|| 2);
            spawned.await.unwrap() + blocking.await.unwrap()
        })
    });
    assert_eq!(output(sum), 3);
}

#[test]
fn handles_work_in_a_runtime_of_one_thread() {
    run(async {
        let pool = BlockingPool::builder().max_threads(2).build().unwrap();
        for n in 0..100 {
            assert_eq!(within(pool.spawn_blocking(move || n)).await.unwrap(), n);
        }
        let spawned = pool.spawn_blocking(|| tokio::spawn(async { "on it" }));
        assert_eq!(within(spawned.await.unwrap()).await.unwrap(), "on it");
    });
}

#[test]
fn a_pool_outlives_its_runtime() {
    let runtime = runtime();
    let pool = runtime.block_on(async { BlockingPool::builder().max_threads(1).build().unwrap() });
    output(pool.spawn_blocking(|| ()));
    let gate = Gate::new();
    let during = pool.spawn_blocking({
        let gate = gate.clone();
        move || {
            gate.pass();
            tokio::spawn(async {})
        }
    });
    // It does not wait for the pool's task.
    drop(runtime);
    gate.open();
    let spawned = output(during);
    let after = pool.spawn_blocking(|| tokio::spawn(async {}));
    let elsewhere = self::runtime();
    for spawned in [spawned, output(after)] {
        let error = elsewhere.block_on(async { within(spawned).await.unwrap_err() });
        assert!(error.is_cancelled());
    }
    assert_eq!(output(pool.spawn_blocking(|| 1)), 1);
}

/// Leaves a guard behind, of the runtime that the thread is in or of another: the thread goes on, without a panic.
#[test]
fn a_leaked_guard_does_no_harm() {
    let (own, other) = (runtime(), runtime());
    let mut pinned = BlockingPool::builder();
    pinned.runtime(own.handle().clone()).max_threads(1);
    let pinned = pinned.build().unwrap();
    let own_pool = own.block_on(async { BlockingPool::builder().max_threads(1).build().unwrap() });
    for pool in [pinned, own_pool] {
        let thread = output(pool.spawn_blocking(|| thread::current().id()));
        for runtime in [&own, &other, &own, &other] {
            for leaked in [&own, &other] {
                let leaked = leaked.handle().clone();
                runtime.block_on(async {
                    within(pool.spawn_blocking(move || mem::forget(leaked.enter())))
                        .await
                        .unwrap();
                });
            }
        }
        assert_eq!(
            output(pool.spawn_blocking(|| thread::current().id())),
            thread
        );
        let metrics = when_idle(&pool);
        assert_eq!((metrics.largest, metrics.panicked), (1, 0));
        // And the thread exits as it should.
        pool.close();
        own.block_on(async { within(pool.closed()).await });
    }
}

/// After each change of the runtime, tasks see the right one again.
#[test]
fn a_change_of_the_runtime_repairs_what_a_leaked_guard_has_left() {
    let (own, other) = (runtime(), runtime());
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    for _ in 0..3 {
        let leaked = own.handle().clone();
        own.block_on(async {
            within(pool.spawn_blocking(move || mem::forget(leaked.enter())))
                .await
                .unwrap();
        });
        assert_eq!(seen_from(&other, &pool), Some(other.handle().id()));
        assert_eq!(seen_from(&own, &pool), Some(own.handle().id()));
    }
}

#[test]
fn the_default_pool_serves_each_runtime_in_its_own_context() {
    let runtimes = [runtime(), runtime()];
    for _ in 0..50 {
        for runtime in &runtimes {
            let seen = runtime.block_on(async {
                let seen = throng::spawn_blocking(|| {
                    let id = current();
                    Handle::current().block_on(tokio::spawn(async {})).unwrap();
                    id
                });
                within(seen).await.unwrap()
            });
            assert_eq!(seen, Some(runtime.handle().id()));
        }
    }
}

#[test]
fn the_default_pool_serves_threads_without_a_runtime() {
    assert_eq!(output(throng::spawn_blocking(|| "plain")), "plain");
    let error = join(throng::spawn_blocking(|| panic!("as it should"))).unwrap_err();
    assert!(error.is_panic());
}

#[test]
fn the_default_pool_outlives_runtimes_and_leaked_guards() {
    let lasting = runtime();
    for _ in 0..10 {
        let passing = runtime();
        let id = passing.handle().id();
        let other = lasting.handle().clone();
        let seen = passing.block_on(async {
            within(throng::spawn_blocking(move || {
                let id = current();
                mem::forget(other.enter());
                id
            }))
            .await
        });
        // The leaked guard does not lose the output.
        assert_eq!(seen.unwrap(), Some(id));
        drop(passing);
        let seen = lasting.block_on(async { within(throng::spawn_blocking(current)).await });
        assert_eq!(seen.unwrap(), Some(lasting.handle().id()));
    }
}
