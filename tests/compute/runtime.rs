//! Tasks and Tokio: how async code waits for them, and which runtime they see.

use std::mem;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use throng::ComputePool;
use tokio::runtime::{Handle, Id, Runtime};

use crate::pools::{Busy, of, output, run, within};
use crate::support::{Gate, current_thread, multi_thread};

fn runtime() -> Runtime {
    multi_thread(1, "runtime")
}

fn in_runtime(runtime: &Runtime) -> ComputePool {
    let mut builder = ComputePool::builder();
    builder.threads(2).runtime(runtime.handle().clone());
    builder.build().unwrap()
}

/// The runtime that the calling task is in.
fn current() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[test]
fn tasks_see_the_runtime_that_their_pool_was_given() {
    let (own, other) = (runtime(), runtime());
    let pool = in_runtime(&own);
    let id = Some(own.handle().id());
    // Also when the task comes from elsewhere.
    let seen = other.block_on(async { within(pool.spawn(current)).await.unwrap() });
    assert_eq!(seen, id);
    assert_eq!(output(pool.spawn_keyed("key", current)), id);
    for seen in pool.spawn_batch((0..1_000).map(|_| current)) {
        assert_eq!(output(seen), id);
    }
}

#[test]
fn without_one_tasks_see_none_also_when_the_pool_is_made_in_a_runtime() {
    let runtime = runtime();
    let seen = runtime.block_on(async {
        let pool = of(1);
        within(pool.spawn(|| Handle::try_current().is_err()))
            .await
            .unwrap()
    });
    assert!(seen);
}

#[test]
fn tasks_can_spawn_and_wait_on_the_runtime() {
    let runtime = runtime();
    let sum = in_runtime(&runtime).spawn(|| {
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
fn a_pool_outlives_its_runtime_and_leaked_guards() {
    let (own, other) = (runtime(), runtime());
    let pool = in_runtime(&own);
    for _ in 0..3 {
        let other = other.handle().clone();
        output(pool.spawn(move || mem::forget(other.enter())));
    }
    output(pool.spawn(|| drop(tokio::spawn(async {}))));
    drop(own);
    assert_eq!(output(pool.spawn(|| 1)), 1);
    pool.close();
    run(pool.closed());
}

#[test]
fn handles_can_be_awaited_in_a_runtime_of_one_thread() {
    let pool = of(2);
    run(async {
        for n in 0..1_000 {
            assert_eq!(pool.spawn(move || n).await.unwrap(), n);
        }
        let keyed = (0..1_000).map(|n| pool.spawn_keyed("key", move || n));
        for (n, handle) in keyed.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(handle.await.unwrap(), n);
        }
    });
}

#[test]
fn handles_can_be_awaited_by_many_tasks_of_a_runtime() {
    let (runtime, pool) = (multi_thread(2, "awaits"), of(2));
    let sums = (0..8).map(|task| {
        let pool = pool.clone();
        runtime.spawn(async move {
            let mut sum = 0;
            for n in 0..500 {
                sum += pool.spawn(move || n * task).await.unwrap();
            }
            sum
        })
    });
    let sums = futures::future::try_join_all(sums.collect::<Vec<_>>());
    let sums = runtime.block_on(async { within(sums).await.unwrap() });
    assert!(sums.into_iter().eq((0..8).map(|task| task * 499 * 250)));
}

#[test]
fn handles_can_be_awaited_together() {
    let pool = of(2);
    run(async {
        let handles: FuturesUnordered<_> = (0..1_000).map(|n| pool.spawn(move || n)).collect();
        let mut seen: Vec<_> = handles.map(Result::unwrap).collect().await;
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1_000));
    });
}

#[test]
fn the_first_of_two_can_be_awaited_and_then_the_other() {
    let pool = of(2);
    let gate = Gate::new();
    let slow = {
        let gate = gate.clone();
        move || {
            gate.pass();
            "slow"
        }
    };
    run(async {
        let mut slow = pool.spawn(slow);
        let fast = pool.spawn(|| "fast");
        tokio::select! {
            outcome = &mut slow => panic!("the gate is shut: {outcome:?}"),
            outcome = fast => assert_eq!(outcome.unwrap(), "fast"),
        }
        let impatient = tokio::time::timeout(Duration::from_millis(1), &mut slow).await;
        assert!(impatient.is_err() && !slow.is_finished());
        gate.open();
        assert_eq!(slow.await.unwrap(), "slow");
    });
}

/// Nothing here blocks the one thread of the runtime, or the gate would not be opened.
#[test]
fn submitting_blocks_no_runtime() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    current_thread().block_on(async {
        let waiting = tokio::spawn(pool.spawn(|| "ran"));
        for _ in 0..10_000 {
            pool.execute(|| ());
        }
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        busy.release();
        assert_eq!(within(waiting).await.unwrap().unwrap(), "ran");
    });
}
