//! The end of a pool within a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng::{BlockingPool, JoinHandle};

use crate::pools::{Busy, jitter, output, rounds_for, run};
use crate::support::{Drops, Gate, Numbers, PanicsOnDrop, TEST_TIMEOUT, join, ready};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn shutdown_now_aborts_what_waits_and_not_what_runs() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let drops = Drops::new();
    let queued: Vec<_> = (0..10)
        .map(|_| {
            let value = drops.value();
            pool.spawn_blocking(move || drop(value))
        })
        .collect();
    queued[3].abort();
    assert_eq!(pool.shutdown_now(), 9);
    assert_eq!(drops.count(), 10);
    for handle in queued {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert!(join(pool.spawn_blocking(|| ())).unwrap_err().is_closed());
    assert_eq!(pool.shutdown_now(), 0);
    busy.release();
    run(pool.closed());
    let metrics = pool.metrics();
    assert_eq!((metrics.completed, metrics.cancelled), (1, 10));
    assert_eq!((metrics.queued, metrics.rejected), (0, 1));
}

#[test]
fn a_closed_pool_can_be_shut_down_now() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn_blocking(|| ());
    pool.close();
    assert_eq!(pool.shutdown_now(), 1);
    assert!(ready(queued).unwrap_err().is_cancelled());
    busy.release();
    run(pool.closed());
}

#[test]
fn captures_whose_drop_panics_are_dropped() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let drops = Drops::new();
    let queued = [(); 3].map(|()| {
        let value = PanicsOnDrop(drops.value());
        pool.spawn_blocking(move || drop(value))
    });
    assert_eq!(pool.shutdown_now(), 3);
    assert_eq!(drops.count(), 3);
    queued
        .into_iter()
        .for_each(|handle| assert!(ready(handle).is_err()));
    busy.release();
    run(pool.closed());
}

#[test]
fn drops_of_captures_may_use_the_pool() {
    struct Submits(BlockingPool);
    impl Drop for Submits {
        fn drop(&mut self) {
            assert!(join(self.0.spawn_blocking(|| ())).unwrap_err().is_closed());
        }
    }
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let submits = Submits(pool.clone());
    let queued = pool.spawn_blocking(move || drop(submits));
    assert_eq!(pool.shutdown_now(), 1);
    assert!(ready(queued).unwrap_err().is_cancelled());
    assert_eq!(pool.metrics().rejected, 1);
    busy.release();
    run(pool.closed());
}

#[test]
fn a_bounded_shutdown_waits_and_then_aborts_what_has_not_started() {
    for is_async in [false, true] {
        let shutdown = |pool: &BlockingPool, timeout| match is_async {
            true => run(pool.shutdown(timeout)),
            false => pool.blocking_shutdown(timeout),
        };
        let pool = of(1);
        let busy = Busy::keep(&pool, 1);
        let queued = [1, 2].map(|n| pool.spawn_blocking(move || n));
        let began = Instant::now();
        assert_eq!(shutdown(&pool, Duration::from_millis(20)), 2);
        assert!(began.elapsed() >= Duration::from_millis(20));
        for handle in queued {
            assert!(ready(handle).unwrap_err().is_cancelled());
        }
        assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_closed());
        assert_eq!(shutdown(&pool, Duration::ZERO), 0);
        busy.release();
        assert_eq!(shutdown(&pool, TEST_TIMEOUT), 0);
        assert_eq!(pool.metrics().threads, 0);
        // A time beyond the range of the clock.
        assert_eq!(shutdown(&pool, Duration::MAX), 0);
    }
}

#[test]
fn a_bounded_shutdown_waits_until_the_last_task_has_ended() {
    for _ in 0..20 {
        let pool = of(2);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let ran = Arc::clone(&ran);
            drop(pool.spawn_blocking(move || ran.fetch_add(1, Ordering::Relaxed)));
        }
        assert_eq!(pool.blocking_shutdown(Duration::MAX), 0);
        assert_eq!(ran.load(Ordering::Relaxed), 10);
    }
}

/// A pool that was never used, and one whose threads are idle.
#[test]
fn a_pool_without_tasks_is_shut_down_at_once() {
    let pool = of(1);
    assert_eq!(pool.blocking_shutdown(TEST_TIMEOUT), 0);
    let pool = of(3);
    Busy::keep(&pool, 3).release();
    assert_eq!(pool.blocking_shutdown(TEST_TIMEOUT), 0);
    assert_eq!(pool.metrics().threads, 0);
    assert_eq!(pool.shutdown_now(), 0);
}

/// Each task runs, is aborted by the shutdown, or is refused, and its handle says which.
#[test]
fn every_handle_resolves_when_submissions_race_with_shutdown_now() {
    let (mut all_ran, mut all_dropped) = (0, 0);
    for round in rounds_for(1.5) {
        let pool = of(2);
        let ran = Arc::new(AtomicUsize::new(0));
        let drops = Drops::new();
        let (handles, dropped) = thread::scope(|scope| {
            let submitters = [(); 3].map(|()| scope.spawn(|| submit(&pool, &ran, &drops)));
            jitter(&mut Numbers::new(round as u64 + 1), 300);
            let dropped = pool.shutdown_now();
            (
                submitters.map(|submitter| submitter.join().unwrap()),
                dropped,
            )
        });
        run(pool.closed());
        let (mut returned, mut cancelled) = (0, 0);
        for handle in handles.into_iter().flatten() {
            match ready(handle) {
                Ok(()) => returned += 1,
                Err(error) if error.is_cancelled() => cancelled += 1,
                Err(error) => assert!(error.is_closed(), "{error}"),
            }
        }
        assert_eq!(ran.load(Ordering::Relaxed), returned);
        assert_eq!(cancelled, dropped);
        assert_eq!(drops.count(), drops.made());
        let metrics = pool.metrics();
        assert_eq!(metrics.completed as usize, returned);
        assert_eq!(metrics.cancelled as usize, cancelled);
        assert_eq!(metrics.submitted as usize, returned + cancelled);
        (all_ran, all_dropped) = (all_ran + returned, all_dropped + dropped);
    }
    assert!(all_ran > 0 && all_dropped > 0, "there was no race");
}

/// Submits until the pool is closed.
fn submit(pool: &BlockingPool, ran: &Arc<AtomicUsize>, drops: &Drops) -> Vec<JoinHandle<()>> {
    let mut handles = Vec::new();
    loop {
        let (ran, value) = (Arc::clone(ran), drops.value());
        let task = move || {
            drop(value);
            ran.fetch_add(1, Ordering::Relaxed);
        };
        match pool.try_spawn_blocking(task) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                assert!(error.is_closed());
                return handles;
            }
        }
    }
}

/// A task that waits for an aborted one does not wait forever.
#[test]
fn a_task_that_waits_for_an_aborted_one_goes_on() {
    let pool = of(1);
    let (gate, begun) = (Gate::new(), Gate::new());
    let own = pool.clone();
    let (waits, begins) = (gate.clone(), begun.clone());
    let outer = pool.spawn_blocking(move || {
        let inner = own.spawn_blocking(|| ());
        begins.open();
        waits.pass();
        inner.blocking_join()
    });
    begun.pass();
    assert_eq!(pool.shutdown_now(), 1);
    gate.open();
    assert!(output(outer).unwrap_err().is_cancelled());
    run(pool.closed());
}
