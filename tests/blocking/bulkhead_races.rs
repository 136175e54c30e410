//! Bulkheads of a pool that is full, drops tasks for others, and is shut down: no task is lost, and each is counted
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use throng::BlockingPool;
use throng::blocking::{Bulkhead, Overflow};

use crate::pools::{jitter, rounds_for, run, when_idle};
use crate::support::{Drops, Numbers, join, wait_until};

/// Counts tasks and their captures.
#[derive(Clone)]
struct Watched {
    ran: Arc<AtomicUsize>,
    drops: Drops,
}

impl Watched {
    fn new() -> Self {
        Self {
            ran: Arc::default(),
            drops: Drops::new(),
        }
    }
}

#[track_caller]
fn assert_accounted_for(pool: &BlockingPool, bulkheads: &[Bulkhead], watched: &Watched) {
    for bulkhead in bulkheads {
        wait_until("the bulkhead is empty", || bulkhead.metrics().busy == 0);
        let metrics = bulkhead.metrics();
        assert_eq!(metrics.queued, 0);
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(ended, metrics.submitted, "{metrics:?}");
    }
    let metrics = when_idle(pool);
    let ended = metrics.completed + metrics.panicked + metrics.cancelled;
    assert_eq!(ended, metrics.submitted, "{metrics:?}");
    let ran = watched.ran.load(Ordering::Relaxed) as u64;
    assert_eq!(metrics.completed + metrics.panicked, ran, "{metrics:?}");
    wait_until("all captures are dropped", || {
        watched.drops.count() == watched.drops.made()
    });
}

fn submit_at_random(pool: &BlockingPool, bulkheads: &[Bulkhead], watched: &Watched, seed: u64) {
    let mut numbers = Numbers::new(seed);
    let mut handles = Vec::new();
    for _ in 0..40 {
        let which = numbers.below(bulkheads.len() as u64 + 1) as usize;
        let what = numbers.below(8);
        let (task, inside) = (watched.clone(), bulkheads.get(which).cloned());
        let value = watched.drops.value();
        let task = move || {
            let _value = value;
            task.ran.fetch_add(1, Ordering::Relaxed);
            assert!(what != 0, "as it should");
            if let (1..=3, Some(bulkhead)) = (what, inside) {
                let inner = task.clone();
                let inner = bulkhead.spawn_blocking(move || {
                    inner.ran.fetch_add(1, Ordering::Relaxed);
                });
                // It may be refused or dropped, or exceed the bound.
                inner.blocking_join().ok();
            }
        };
        handles.push(match bulkheads.get(which) {
            Some(bulkhead) => bulkhead.spawn_blocking(task),
            None => pool.spawn_blocking(task),
        });
        if what > 5 {
            jitter(&mut numbers, 20);
            handles[numbers.below(handles.len() as u64) as usize].abort();
        }
    }
    for handle in handles {
        join(handle).ok();
    }
}

#[test]
fn bulkheads_of_a_pool_that_drops_the_oldest() {
    for round in rounds_for(1.5) {
        let pool = BlockingPool::builder()
            .max_threads(2)
            .queue_capacity(3)
            .overflow(Overflow::DropOldest)
            .build()
            .unwrap();
        let bulkheads: Vec<_> = (1..=3).map(|n| pool.bulkhead(n, 3 * n).unwrap()).collect();
        let watched = Watched::new();
        thread::scope(|scope| {
            for n in 0..3 {
                let (pool, bulkheads, watched) = (&pool, &bulkheads, &watched);
                scope.spawn(move || {
                    submit_at_random(pool, bulkheads, watched, (3 * round + n) as u64)
                });
            }
        });
        assert_accounted_for(&pool, &bulkheads, &watched);
        // No permit was lost or released twice.
        assert_eq!(free_permits(&pool), 2 + 3);
    }
}

/// Returns the number of free permits.
fn free_permits(pool: &BlockingPool) -> usize {
    use futures::FutureExt;
    let mut permits = Vec::new();
    while let Some(Ok(permit)) = pool.reserve().now_or_never() {
        permits.push(permit);
    }
    permits.len()
}

#[test]
fn bulkheads_of_a_pool_that_is_shut_down() {
    for round in rounds_for(1.5) {
        let pool = BlockingPool::builder()
            .max_threads(2)
            .queue_capacity(6)
            .build()
            .unwrap();
        let bulkheads: Vec<_> = (1..=3).map(|n| pool.bulkhead(n, 3 * n).unwrap()).collect();
        let watched = Watched::new();
        thread::scope(|scope| {
            for n in 0..3 {
                let (pool, bulkheads, watched) = (&pool, &bulkheads, &watched);
                scope.spawn(move || {
                    submit_at_random(pool, bulkheads, watched, (3 * round + n) as u64)
                });
            }
            jitter(&mut Numbers::new(round as u64), 2_000);
            match round % 2 {
                0 => pool.close(),
                _ => _ = pool.shutdown_now(),
            }
        });
        run(pool.closed());
        assert_accounted_for(&pool, &bulkheads, &watched);
    }
}
