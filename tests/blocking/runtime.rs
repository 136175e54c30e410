//! Tasks and Tokio: which runtime they see, and what becomes of them when it goes.

use std::mem;
use std::thread;
use std::time::Duration;

use throng::BlockingPool;
use tokio::runtime::{Handle, Id, Runtime};

use crate::pools::{output, rest, run};
use crate::support::{Gate, join, multi_thread, within};

fn runtime() -> Runtime {
    multi_thread(1, "runtime")
}

/// The runtime that the calling task is in.
fn current() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[test]
fn a_pool_is_of_the_runtime_that_it_is_built_in() {
    let (own, other) = (runtime(), runtime());
    let pool = own.block_on(async { BlockingPool::builder().build().unwrap() });
    assert_eq!(
        output(pool.spawn_blocking(current)),
        Some(own.handle().id())
    );
    // Also when the task comes from elsewhere.
    let seen = other.block_on(async { within(pool.spawn_blocking(current)).await.unwrap() });
    assert_eq!(seen, Some(own.handle().id()));
}

#[test]
fn a_pool_can_be_given_another_runtime() {
    let (own, other) = (runtime(), runtime());
    let pool = own.block_on(async {
        let mut builder = BlockingPool::builder();
        builder.runtime(other.handle().clone()).build().unwrap()
    });
    assert_eq!(
        output(pool.spawn_blocking(current)),
        Some(other.handle().id())
    );
}

#[test]
fn a_pool_that_is_built_outside_has_none() {
    let runtime = runtime();
    let pool = BlockingPool::builder().build().unwrap();
    let seen = runtime.block_on(async { within(pool.spawn_blocking(current)).await.unwrap() });
    assert_eq!(seen, None);
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

#[test]
fn a_leaked_guard_does_no_harm() {
    let (own, other) = (runtime(), runtime());
    let pool = BlockingPool::builder()
        .runtime(own.handle().clone())
        .max_threads(1)
        .build()
        .unwrap();
    let thread = output(pool.spawn_blocking(|| thread::current().id()));
    for _ in 0..3 {
        let other = other.handle().clone();
        output(pool.spawn_blocking(move || mem::forget(other.enter())));
    }
    assert_eq!(
        output(pool.spawn_blocking(|| thread::current().id())),
        thread
    );
    let metrics = rest(&pool);
    assert_eq!((metrics.largest, metrics.panicked), (1, 0));
    // And the thread ends as it should.
    pool.shutdown();
    own.block_on(async { within(pool.terminated()).await });
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
fn the_default_pool_serves_who_has_no_runtime() {
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
        // The output is there although the guard of its runtime could not be put back.
        assert_eq!(seen.unwrap(), Some(id));
        drop(passing);
        let seen = lasting.block_on(async { within(throng::spawn_blocking(current)).await });
        assert_eq!(seen.unwrap(), Some(lasting.handle().id()));
    }
}
