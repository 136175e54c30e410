//! Closing a pool: which tasks still run, which are refused, and what must not block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use throng::BlockingPool;

use crate::pools::{Busy, jitter, output, rounds_for, run, when};
use crate::support::{Gate, Numbers, join, receive, within};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn a_closed_pool_runs_accepted_tasks_and_refuses_new_ones() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let queued = [1, 2, 3].map(|n| pool.spawn_blocking(move || n));
    pool.close();
    assert!(pool.closed().now_or_never().is_none());

    let error = join(pool.spawn_blocking(|| ())).unwrap_err();
    assert!(error.is_closed() && !error.is_rejected() && !error.is_cancelled());
    let refused = pool.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(refused.into_inner()(), "handed back");

    pool.close();
    busy.release();
    run(pool.closed());
    assert!(queued.iter().all(throng::JoinHandle::is_finished));
    assert_eq!(queued.map(output), [1, 2, 3]);
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.queued), (0, 0));
    assert_eq!((metrics.completed, metrics.rejected), (4, 2));
}

#[test]
fn a_pool_without_threads_terminates_at_once() {
    let pool = of(1);
    assert!(pool.closed().now_or_never().is_none());
    pool.close();
    assert!(pool.closed().now_or_never().is_some());
}

#[test]
fn idle_threads_do_not_delay_termination() {
    let pool = BlockingPool::builder().core_threads(4).build().unwrap();
    Busy::keep(&pool, 4).release();
    pool.close();
    run(pool.closed());
    assert_eq!(pool.metrics().threads, 0);
}

#[test]
fn all_waiters_for_closed_are_woken() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 2);
    run(async {
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { pool.closed().await })
            })
            .collect();
        tokio::task::yield_now().await;
        pool.close();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        busy.release();
        for waiting in waiting {
            waiting.await.unwrap();
        }
    });
}

/// A pool with tasks behind a gate, and a receiver of their ends.
fn with_tasks_behind(gate: &Gate) -> (BlockingPool, mpsc::Receiver<u32>) {
    let pool = of(1);
    let (ran, runs) = mpsc::channel();
    for n in 0..3 {
        let (gate, ran) = (gate.clone(), ran.clone());
        drop(pool.spawn_blocking(move || {
            gate.pass();
            ran.send(n)
        }));
    }
    (pool, runs)
}

fn assert_ran(runs: &mpsc::Receiver<u32>) {
    assert_eq!([(); 3].map(|()| receive(runs)), [0, 1, 2]);
}

#[test]
fn the_last_clone_may_be_dropped_in_async_code() {
    run(async {
        let gate = Gate::new();
        let (pool, runs) = with_tasks_behind(&gate);
        drop(pool.clone());
        assert!(pool.try_spawn_blocking(|| ()).is_ok());
        // If this waited for the tasks, the gate would never be opened.
        drop(pool);
        gate.open();
        assert_ran(&runs);
    });
}

#[test]
fn the_last_clone_may_be_dropped_in_a_worker() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    let last = pool.spawn_blocking(move || drop(own));
    let behind_it = pool.spawn_blocking(|| "ran");
    drop(pool);
    gate.open();
    assert_ran(&runs);
    output(last);
    assert_eq!(output(behind_it), "ran");
}

#[test]
fn the_last_clone_may_be_the_output_of_a_detached_task() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let own = pool.clone();
    drop(pool.spawn_blocking(move || own));
    drop(pool);
    gate.open();
    assert_ran(&runs);
}

#[test]
fn the_last_clone_may_be_dropped_while_unwinding() {
    let gate = Gate::new();
    let (pool, runs) = with_tasks_behind(&gate);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _pool = pool;
        panic!("as it should");
    }));
    assert!(unwound.is_err());
    gate.open();
    assert_ran(&runs);
}

#[test]
fn threads_exit_when_the_last_clone_is_dropped() {
    struct TellsOfItsEnd(mpsc::Sender<()>);
    impl Drop for TellsOfItsEnd {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    thread_local! {
        static OF_THREAD: std::cell::Cell<Option<TellsOfItsEnd>> = const { std::cell::Cell::new(None) };
    }
    let pool = BlockingPool::builder().core_threads(3).build().unwrap();
    let (ended, ends) = mpsc::channel();
    let meeting = Arc::new(std::sync::Barrier::new(3));
    let handles = [(); 3].map(|()| {
        let (ended, meeting) = (ended.clone(), Arc::clone(&meeting));
        pool.spawn_blocking(move || {
            OF_THREAD.set(Some(TellsOfItsEnd(ended)));
            meeting.wait();
        })
    });
    handles.into_iter().for_each(output);
    assert!(ends.try_recv().is_err());
    drop(pool);
    for _ in 0..3 {
        receive(&ends);
    }
}

#[test]
fn every_handle_resolves_when_submissions_race_with_close() {
    let mut numbers = Numbers::new(1);
    let (mut all_accepted, mut all_refused) = (0, 0);
    for round in rounds_for(1.5) {
        let keep_alive = [Duration::ZERO, Duration::from_secs(10)][round % 2];
        let pool = BlockingPool::builder()
            .max_threads(2)
            .keep_alive(keep_alive)
            .build()
            .unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let ran = Arc::clone(&ran);
                        let task = move || ran.fetch_add(1, Ordering::Relaxed);
                        match join(pool.spawn_blocking(task)) {
                            Ok(_) => _ = accepted.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                assert!(error.is_closed(), "{error}");
                                refused.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                        }
                    }
                });
            }
            jitter(&mut numbers, 500);
            pool.close();
        });
        run(pool.closed());
        let metrics = pool.metrics();
        let accepted = accepted.into_inner();
        assert_eq!(ran.load(Ordering::Relaxed), accepted);
        assert_eq!((metrics.submitted, metrics.completed), (accepted, accepted));
        assert_eq!((metrics.threads, metrics.queued), (0, 0));
        assert_eq!(metrics.rejected, refused.into_inner());
        all_accepted += accepted;
        all_refused += metrics.rejected;
    }
    assert!(all_accepted > 0 && all_refused > 0, "there was no race");
}

/// The last thread exits by itself while the pool is closed.
#[test]
fn closed_is_notified_when_it_races_with_a_keep_alive() {
    let mut numbers = Numbers::new(1);
    for _ in rounds_for(0.5) {
        let pool = BlockingPool::builder()
            .keep_alive(Duration::from_micros(100))
            .build()
            .unwrap();
        drop(pool.spawn_blocking(|| ()));
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || run(pool.closed()))
        };
        jitter(&mut numbers, 300);
        pool.close();
        when(&pool, |metrics| metrics.threads == 0);
        waiting.join().unwrap();
    }
}

#[test]
fn closed_can_be_awaited_again_after_a_time_out() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    pool.close();
    run(async {
        for _ in 0..3 {
            let impatient = tokio::time::timeout(Duration::from_millis(1), pool.closed());
            assert!(impatient.await.is_err());
        }
        busy.release();
        within(pool.closed()).await;
    });
}
