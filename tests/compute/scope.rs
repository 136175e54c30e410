//! Closures that borrow.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pools::{Busy, bounded, of, output};
use crate::support::rounds;

#[test]
fn a_scope_returns_when_all_closures_have_ended() {
    let pool = of(2);
    for round in 0..rounds(200, 2_000) {
        let mut numbers: Vec<usize> = (0..100).collect();
        let sum = pool.scope(|scope| {
            for chunk in numbers.chunks_mut(7) {
                scope.spawn(move || chunk.iter_mut().for_each(|n| *n += round));
            }
            round
        });
        assert!(numbers.iter().enumerate().all(|(at, &n)| n == at + sum));
    }
}

#[test]
fn closures_spawn_closures_in_their_scope() {
    let pool = of(2);
    let ran = AtomicUsize::new(0);
    pool.scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..10 {
                    scope.spawn(|| _ = ran.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    assert_eq!(ran.into_inner(), 100);
}

#[test]
fn closures_run_on_threads_of_the_pool() {
    let pool = of(2);
    // None of the three passes alone.
    let barrier = Barrier::new(3);
    pool.scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| _ = barrier.wait());
        }
    });
}

#[test]
fn a_scope_on_a_pool_thread_needs_no_other() {
    let pool = of(1);
    let inner = pool.clone();
    let sum = pool.spawn(move || {
        let (mut left, mut right) = (0, 0);
        inner.scope(|scope| {
            scope.spawn(|| left = 1);
            scope.spawn(|| inner.scope(|scope| scope.spawn(|| right = 2)));
        });
        left + right
    });
    assert_eq!(output(sum), 3);
}

#[test]
fn a_scope_ends_while_the_pool_is_busy_full_or_closed() {
    let busy_pool = of(1);
    let busy = Busy::keep(&busy_pool, 1);
    let (full_pool, closed_pool) = (bounded(1, 1), of(1));
    let full = Busy::keep(&full_pool, 1);
    closed_pool.close();
    for pool in [&busy_pool, &full_pool, &closed_pool] {
        let mut ran = false;
        pool.scope(|scope| scope.spawn(|| ran = true));
        assert!(ran);
        assert_eq!(pool.metrics().rejected, 0);
    }
    busy.release();
    full.release();
}

#[test]
fn shutdown_now_drops_no_closure_of_a_scope() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let ran = AtomicUsize::new(0);
    pool.scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| _ = ran.fetch_add(1, Ordering::Relaxed));
        }
        pool.shutdown_now();
    });
    assert_eq!(ran.into_inner(), 5);
    busy.release();
}

#[test]
fn a_panic_of_a_closure_leaves_the_scope_after_the_others_have_ended() {
    let pool = of(2);
    let ran = AtomicUsize::new(0);
    let scope = || {
        pool.scope(|scope| {
            for n in 0..20 {
                let ran = &ran;
                scope.spawn(move || {
                    if n == 3 {
                        panic_any(n);
                    }
                    ran.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    };
    let payload = catch_unwind(AssertUnwindSafe(scope)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&3));
    assert_eq!(ran.into_inner(), 19);
}

#[test]
fn a_panic_of_the_function_leaves_the_scope_after_the_closures_have_ended() {
    let pool = of(1);
    let ran = AtomicUsize::new(0);
    let scope = || {
        pool.scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| _ = ran.fetch_add(1, Ordering::Relaxed));
            }
            panic_any(7);
        });
    };
    let payload = catch_unwind(AssertUnwindSafe(scope)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7));
    assert_eq!(ran.into_inner(), 20);
}
