//! Threads without a task: they sleep, and so does the steward.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use throng::ComputePool;

use crate::pools::process::is_own;
use crate::pools::{Busy, Count, rest};
use crate::support::{Gate, threads_called, wait_until};

/// How often the threads have gone to sleep.
fn switches(threads: &[PathBuf]) -> u64 {
    let statuses = threads.iter().map(|file| fs::read_to_string(file).unwrap());
    let counts = statuses.map(|status| {
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    });
    counts.sum()
}

fn quiet() -> ComputePool {
    let mut builder = ComputePool::builder();
    builder.name("quiet").threads(4).build().unwrap()
}

/// Some work of all kinds, also with long tasks.
fn work(pool: &ComputePool) {
    let done = Count::default();
    pool.execute_batch((0..10_000).map(|_| done.adder()));
    for n in 0..1_000 {
        drop(pool.spawn(done.adder()));
        drop(pool.spawn_keyed(&(n % 10), done.adder()));
    }
    wait_until("the work is done", || done.get() == 12_000);
    Busy::keep(pool, 4).release();
}

/// The threads and the steward are those of this pool only.
#[test]
fn an_idle_pool_uses_no_processor_time() {
    let name = "idle::an_idle_pool_uses_no_processor_time";
    if !is_own(name, "") {
        return;
    }
    let pool = quiet();
    for round in 0..3 {
        if round > 0 {
            work(&pool);
        }
        let metrics = rest(&pool);
        assert_eq!(metrics.backlog(), 0);
        assert!(metrics.lanes.iter().all(|lane| lane.is_parked));

        let (threads, steward) = (threads_called("quiet-"), threads_called("throng-steward"));
        assert_eq!((threads.len(), steward.len()), (4, 1));
        wait_for_sleep(&steward);
        // The span that is measured: nothing may happen in it.
        let before = (switches(&threads), switches(&steward));
        thread::sleep(Duration::from_millis(300));
        assert_eq!((switches(&threads), switches(&steward)), before);
        assert_eq!(pool.metrics(), metrics);
    }
}

/// Waits until threads sleep: for so long that the steward would have come many times.
#[track_caller]
fn wait_for_sleep(statuses: &[PathBuf]) {
    wait_until("the steward sleeps", || {
        let before = switches(statuses);
        thread::sleep(Duration::from_millis(100));
        switches(statuses) == before
    });
}

#[test]
fn the_steward_goes_when_the_pool_is_gone() {
    let name = "idle::the_steward_goes_when_the_pool_is_gone";
    if !is_own(name, "") {
        return;
    }
    let pools = [quiet(), quiet()];
    pools.iter().for_each(work);
    let [dropped, shut_down] = pools;
    drop(dropped);
    shut_down.shutdown();
    wait_until("the threads have ended", || {
        threads_called("quiet-").is_empty()
    });
    // More than once, since it may be on its last visit.
    let steward = threads_called("throng-steward");
    assert_eq!(steward.len(), 1);
    wait_for_sleep(&steward);
}

/// It is called again for what comes after a rest.
#[test]
fn the_steward_comes_back() {
    let name = "idle::the_steward_comes_back";
    if !is_own(name, "") {
        return;
    }
    let mut builder = ComputePool::builder();
    let pool = builder.threads(2).build().unwrap();
    for _ in 0..5 {
        rest(&pool);
        let steward = threads_called("throng-steward");
        wait_for_sleep(&steward);
        let (gate, done) = (Gate::new(), Count::default());
        let (own, holds, tiny) = (pool.clone(), gate.clone(), done.clone());
        pool.execute(move || {
            own.execute(tiny.adder());
            holds.pass();
        });
        wait_until("what waits behind a long task is done", || done.get() == 1);
        gate.open();
    }
}
