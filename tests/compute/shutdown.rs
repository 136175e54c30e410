//! A shutdown that lets accepted tasks run: which tasks are refused, and which callers learn of the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use throng::ComputePool;

use crate::pools::{Busy, Count, bounded, hunt, jitter, of, output, run, within};
use crate::support::{Gate, Numbers, join, multi_thread, receive};

/// Sees that nothing is accepted in any way; says how many attempts that were.
#[track_caller]
fn assert_closed(pool: &ComputePool) -> u64 {
    let ran = Count::default();
    let refused = pool.try_execute(ran.adder()).unwrap_err();
    assert!(refused.is_closed());
    refused.into_inner()();
    pool.execute(ran.adder());
    pool.execute_batch((0..3).map(|_| ran.adder()));
    let mut handles = pool.spawn_batch((0..3).map(|_| ran.adder()));
    handles.push(pool.spawn(ran.adder()));
    handles.push(pool.spawn_keyed("key", ran.adder()));
    for handle in handles {
        let error = join(handle).unwrap_err();
        assert!(error.is_closed() && !error.is_rejected() && !error.is_cancelled());
    }
    let reserved = pool.reserve().now_or_never().expect("at once");
    assert!(reserved.is_err());
    // The one that was handed back, which was called here.
    assert_eq!(ran.get(), 1);
    10
}

#[test]
fn a_shutdown_runs_what_was_accepted_and_refuses_what_comes() {
    for pool in [of(1), of(3), bounded(2, 100)] {
        let threads = pool.metrics().lanes.len();
        let busy = Busy::keep(&pool, threads);
        let ran = Count::default();
        pool.execute(ran.adder());
        pool.execute_batch((0..10).map(|_| ran.adder()));
        let mut handles = pool.spawn_batch((0..10).map(|_| ran.adder()));
        handles.push(pool.spawn(ran.adder()));
        for key in 0..20 {
            handles.push(pool.spawn_keyed(&(key % 3), ran.adder()));
        }
        pool.close();
        assert!(pool.closed().now_or_never().is_none());
        let refused = assert_closed(&pool);
        pool.close();
        assert_eq!(ran.get(), 0);
        busy.release();
        run(pool.closed());
        assert_eq!(ran.get(), 42);
        handles.into_iter().for_each(output);
        assert_closed(&pool);
        let metrics = pool.metrics();
        assert_eq!((metrics.queued, metrics.cancelled), (0, 0));
        assert_eq!(metrics.rejected, 2 * refused);
    }
}

#[test]
fn an_idle_pool_terminates() {
    for threads in [1, 4] {
        let pool = of(threads);
        assert!(pool.closed().now_or_never().is_none());
        pool.close();
        run(pool.closed());
        assert!(pool.closed().now_or_never().is_some());
    }
}

#[test]
fn all_who_wait_learn_of_the_termination_whenever_they_come() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 2);
    let runtime = multi_thread(2, "waits");
    runtime.block_on(async {
        let wait = || {
            let pool = pool.clone();
            tokio::spawn(async move {
                pool.closed().await;
                pool.closed().await;
            })
        };
        let mut waiting: Vec<_> = (0..10).map(|_| wait()).collect();
        tokio::task::yield_now().await;
        pool.close();
        waiting.extend((0..10).map(|_| wait()));
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        // A future that is dropped and made again.
        let impatient = tokio::time::timeout(Duration::from_millis(1), pool.closed());
        assert!(impatient.await.is_err());
        busy.release();
        within(futures::future::try_join_all(waiting))
            .await
            .unwrap();
        within(pool.closed()).await;
    });
}

#[test]
fn what_the_tasks_did_is_seen_after_the_termination() {
    for _ in 0..100 {
        let pool = of(2);
        let done = Count::default();
        pool.execute_batch((0..200).map(|_| done.adder()));
        pool.close();
        run(pool.closed());
        assert_eq!(done.get(), 200);
    }
}

/// Inside, too: but what was accepted before, in whatever way, is not lost.
#[test]
fn tasks_submitted_from_inside_during_a_shutdown_are_refused() {
    for threads in [1, 2] {
        let (pool, gate, ran) = (of(threads), Gate::new(), Count::default());
        let (submitted, submits) = mpsc::channel();
        let inside = {
            let (own, gate, ran) = (pool.clone(), gate.clone(), ran.clone());
            pool.spawn(move || {
                own.execute(ran.adder());
                let before = [
                    own.spawn(ran.adder()),
                    own.spawn_keyed("key", ran.adder()),
                    own.spawn_keyed(&1, ran.adder()),
                ];
                submitted.send(()).unwrap();
                gate.pass();
                assert_closed(&own);
                before
            })
        };
        let keyed = [(); 5].map(|()| {
            let (gate, ran, own) = (gate.clone(), ran.clone(), pool.clone());
            pool.spawn_keyed("held", move || {
                gate.pass();
                ran.add();
                assert_closed(&own);
            })
        });
        receive(&submits);
        pool.close();
        gate.open();
        keyed.into_iter().for_each(output);
        output(inside).into_iter().for_each(output);
        run(pool.closed());
        assert_eq!(ran.get(), 9);
    }
}

/// A key with more tasks than are run in one turn, which so goes on after the shutdown.
#[test]
fn tasks_of_a_key_that_were_accepted_before_a_shutdown_run() {
    for threads in [1, 2] {
        let (pool, ran) = (of(threads), Count::default());
        let busy = Busy::keep_key(&pool, "key");
        for _ in 0..1_000 {
            drop(pool.spawn_keyed("key", ran.adder()));
        }
        for key in 0..1_000 {
            drop(pool.spawn_keyed(&key, ran.adder()));
        }
        pool.close();
        busy.release();
        run(pool.closed());
        assert_eq!(ran.get(), 2_000);
    }
}

/// Submits in all ways until it is refused, and counts what becomes of it.
fn submit_until_closed(pool: &ComputePool, now: bool, ran: &Count, sum: &AtomicU64) {
    let mut batch = Vec::new();
    for n in 0_u64.. {
        let handle = match n % 4 {
            0 => pool.spawn(ran.adder()),
            1 => pool.spawn_keyed(&(n % 32), ran.adder()),
            2 => pool.spawn_keyed("key", ran.adder()),
            _ => {
                batch.extend(pool.spawn_batch((0..3).map(|_| ran.adder())));
                continue;
            }
        };
        let last = n % 16 == 0;
        batch.push(handle);
        if !last {
            continue;
        }
        let mut closed = false;
        for handle in batch.drain(..) {
            match join(handle) {
                Ok(()) => _ = sum.fetch_add(1, Ordering::SeqCst),
                Err(error) if error.is_cancelled() => assert!(now, "{error}"),
                Err(error) => {
                    assert!(error.is_closed(), "{error}");
                    closed = true;
                }
            }
        }
        if closed {
            return;
        }
    }
}

#[test]
fn every_handle_resolves_when_submissions_race_with_a_shutdown() {
    let mut numbers = Numbers::new(1);
    let (mut all, mut executed) = (0, Count::default());
    for round in hunt(3.0) {
        let now = round % 2 == 1;
        let pool = match round % 3 {
            0 => bounded(2, 10_000),
            _ => of(1 + round % 4),
        };
        let (ran, sum) = (Count::default(), AtomicU64::new(0));
        executed = Count::default();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| submit_until_closed(&pool, now, &ran, &sum));
            }
            scope.spawn(|| {
                while pool.try_execute(executed.adder()).is_ok() {
                    thread::yield_now();
                }
            });
            jitter(&mut numbers, 500);
            match now {
                true => _ = pool.shutdown_now(),
                false => pool.close(),
            }
        });
        run(pool.closed());
        let resolved = sum.into_inner();
        assert_eq!(ran.get() as u64, resolved);
        assert_eq!(pool.metrics().queued, 0);
        all += resolved;
    }
    assert!(all > 0, "there was no race");
    println!("{all} tasks ran, {} of the last closures", executed.get());
}

/// Of closures without a handle, each that was accepted runs, and no other.
#[test]
fn every_accepted_closure_runs_when_submissions_race_with_a_shutdown() {
    let mut numbers = Numbers::new(2);
    for round in hunt(1.5) {
        let pool = of(1 + round % 3);
        let (ran, accepted) = (Count::default(), Count::default());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while pool.try_execute(ran.adder()).is_ok() {
                        accepted.add();
                    }
                });
            }
            jitter(&mut numbers, 300);
            pool.close();
        });
        run(pool.closed());
        assert_eq!(ran.get(), accepted.get());
        let metrics = pool.metrics();
        assert_eq!((metrics.completed, metrics.rejected), (ran.get() as u64, 4));
    }
}
