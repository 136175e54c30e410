//! Threads without a task: they sleep, and so does the timer.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use throng::ComputePool;

use crate::pools::process::is_own;
use crate::pools::{Busy, Count, rest};
use crate::support::{Gate, threads_called, wait_until};

/// Returns how often each of the threads has gone to sleep, or `None` if one of them is awake.
fn sleeps(threads: &[PathBuf]) -> Option<Vec<u64>> {
    let sleeps = threads.iter().map(|file| {
        let status = fs::read_to_string(file).unwrap();
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key));
        let is_asleep = value("State:").unwrap().trim().starts_with('S');
        let count = value("voluntary_ctxt_switches:").unwrap().trim();
        is_asleep.then(|| count.parse().unwrap())
    });
    sleeps.collect()
}

/// Returns `true` if the threads sleep through many periods of the timer. A thread that sleeps at both ends, and
/// has gone to sleep as often, has not run in between, however long it would have waited for a processor.
fn sleep_on(threads: &[PathBuf]) -> bool {
    let before = sleeps(threads);
    thread::sleep(Duration::from_millis(150));
    before.is_some() && sleeps(threads) == before
}

/// Waits for `count` threads of this name. A new thread has no name before it runs.
#[track_caller]
fn called(name: &str, count: usize) -> Vec<PathBuf> {
    let mut threads = Vec::new();
    wait_until("all threads have their names", || {
        threads = threads_called(name);
        threads.len() == count
    });
    threads
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

/// The threads and the timer are those of this pool only.
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
        rest(&pool);
        let mut threads = called("quiet-", 4);
        threads.extend(called("throng-timer", 1));
        wait_for_sleep(&threads);
        let metrics = pool.metrics();
        assert_eq!(metrics.queued, 0);
        assert!(metrics.lanes.iter().all(|lane| lane.is_parked));
        // The span that is measured: nothing may happen in it.
        assert!(sleep_on(&threads) && sleep_on(&threads));
        assert_eq!(pool.metrics(), metrics);
    }
}

/// Waits until threads sleep.
#[track_caller]
fn wait_for_sleep(threads: &[PathBuf]) {
    wait_until("they sleep", || sleep_on(threads));
}

#[test]
fn the_timer_goes_when_the_pool_is_gone() {
    let name = "idle::the_timer_goes_when_the_pool_is_gone";
    if !is_own(name, "") {
        return;
    }
    let pools = [quiet(), quiet()];
    pools.iter().for_each(work);
    let [dropped, shut_down] = pools;
    drop(dropped);
    shut_down.close();
    wait_until("the threads have ended", || {
        threads_called("quiet-").is_empty()
    });
    // More than once, since it may be on its last visit.
    wait_for_sleep(&called("throng-timer", 1));
}

/// It is called again for what comes after a rest.
#[test]
fn the_timer_comes_back() {
    let name = "idle::the_timer_comes_back";
    if !is_own(name, "") {
        return;
    }
    let mut builder = ComputePool::builder();
    let pool = builder.threads(2).build().unwrap();
    for _ in 0..5 {
        rest(&pool);
        wait_for_sleep(&called("throng-timer", 1));
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
