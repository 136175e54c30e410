//! A shutdown that drops what has not started.

use std::sync::mpsc;

use futures::FutureExt;
use throng::{ComputePool, JoinHandle};

use crate::pools::{Busy, Count, bounded, of, output, run, within};
use crate::support::{Drops, Gate, join, receive, wait_until};

/// Queues 9 closures, 9 tasks and 9 tasks of keys; the handles are of the last 18.
fn queue(pool: &ComputePool, ran: &Count, drops: &Drops) -> Vec<JoinHandle<()>> {
    let task = || {
        let (ran, dropped) = (ran.clone(), drops.value());
        move || {
            let _dropped = dropped;
            ran.add();
        }
    };
    for _ in 0..4 {
        pool.execute(task());
    }
    pool.execute_batch((0..5).map(|_| task()));
    let mut handles = pool.spawn_batch((0..5).map(|_| task()));
    handles.extend((0..4).map(|_| pool.spawn(task())));
    handles.extend((0..9).map(|key| pool.spawn_keyed(&(key % 4), task())));
    handles
}

#[track_caller]
fn assert_cancelled(handles: Vec<JoinHandle<()>>) {
    for handle in handles {
        assert!(handle.is_finished());
        let error = join(handle).unwrap_err();
        assert!(error.is_cancelled() && !error.is_closed() && !error.is_rejected());
    }
}

#[test]
fn what_is_queued_is_dropped_and_counted_while_the_threads_are_held() {
    for pool in [of(1), of(2), of(4), bounded(2, 29)] {
        let threads = pool.metrics().lanes.len();
        let busy = Busy::keep(&pool, threads);
        let (ran, drops) = (Count::default(), Drops::new());
        let handles = queue(&pool, &ran, &drops);
        assert_eq!(pool.shutdown_now(), 27);
        // The threads are held still: it was this one that dropped them.
        assert_eq!((drops.count(), ran.get()), (27, 0));
        assert_cancelled(handles);
        assert_eq!(pool.shutdown_now(), 0);
        assert!(pool.closed().now_or_never().is_none());
        assert!(pool.try_execute(|| ()).unwrap_err().is_closed());
        assert!(join(pool.spawn_keyed(&1, || ())).unwrap_err().is_closed());

        busy.release();
        run(pool.closed());
        let metrics = pool.metrics();
        assert_eq!((metrics.cancelled, metrics.rejected), (27, 2));
        assert_eq!((metrics.queued, ran.get()), (0, 0));
        assert_eq!(metrics.completed, threads as u64);
    }
}

/// Also what a thread has in hand, which it took before it was held.
#[test]
fn what_a_held_thread_has_taken_is_dropped() {
    for children in [10, 100, 5_000] {
        let pool = of(1);
        let (gate, ran, drops) = (Gate::new(), Count::default(), Drops::new());
        let busy = Busy::keep(&pool, 1);
        let (started, starts) = mpsc::channel();
        pool.execute({
            let gate = gate.clone();
            move || {
                started.send(()).unwrap();
                gate.pass();
            }
        });
        let task = || {
            let (ran, dropped) = (ran.clone(), drops.value());
            move || {
                let _dropped = dropped;
                ran.add();
            }
        };
        pool.execute_batch((0..children).map(|_| task()));
        // The first task ends, the thread takes what there is, and is held by the second.
        busy.release();
        receive(&starts);
        assert_eq!(pool.metrics().queued, children as u64);
        assert_eq!(pool.shutdown_now(), children);
        assert_eq!((drops.count(), ran.get()), (children, 0));
        gate.open();
        run(pool.closed());
    }
}

#[test]
fn what_waits_behind_a_held_key_is_dropped() {
    for threads in [1, 2] {
        let pool = of(threads);
        let (ran, drops) = (Count::default(), Drops::new());
        let busy = Busy::keep_key(&pool, "key");
        let handles: Vec<_> = (0..200)
            .map(|_| {
                let (ran, dropped) = (ran.clone(), drops.value());
                pool.spawn_keyed("key", move || {
                    let _dropped = dropped;
                    ran.add();
                })
            })
            .collect();
        assert_eq!(pool.shutdown_now(), 200);
        assert_eq!((drops.count(), ran.get()), (200, 0));
        assert_cancelled(handles);
        busy.release();
        run(pool.closed());
        assert_eq!(pool.metrics().cancelled, 200);
    }
}

/// Tasks of a key that its turn has already taken: dropped by the thread when it is let go.
#[test]
fn what_a_turn_of_a_key_has_taken_is_dropped_in_the_end() {
    let pool = of(1);
    let (gate, ran) = (Gate::new(), Count::default());
    let plain = Busy::keep(&pool, 1);
    let (started, starts) = mpsc::channel();
    let held = {
        let gate = gate.clone();
        pool.spawn_keyed("key", move || {
            started.send(()).unwrap();
            gate.pass();
        })
    };
    let handles: Vec<_> = (0..200)
        .map(|_| pool.spawn_keyed("key", ran.adder()))
        .collect();
    plain.release();
    receive(&starts);
    let dropped = pool.shutdown_now();
    assert!(dropped <= 200);
    gate.open();
    run(pool.closed());
    output(held);
    assert_cancelled(handles);
    assert_eq!((pool.metrics().cancelled, ran.get()), (200, 0));
}

#[test]
fn running_tasks_go_on_to_their_end() {
    let pool = of(2);
    let (gate, started) = (Gate::new(), Count::default());
    let running = [(); 2].map(|()| {
        let (gate, started) = (gate.clone(), started.clone());
        pool.spawn(move || {
            started.add();
            gate.pass();
            "to its end"
        })
    });
    wait_until("both run", || started.get() == 2);
    assert_eq!(pool.shutdown_now(), 0);
    assert!(running.iter().all(|handle| !handle.is_finished()));
    gate.open();
    assert_eq!(running.map(output), ["to its end"; 2]);
    run(pool.closed());
}

#[test]
fn it_can_follow_a_shutdown() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 2);
    let (ran, drops) = (Count::default(), Drops::new());
    let handles = queue(&pool, &ran, &drops);
    pool.close();
    assert_eq!(pool.shutdown_now(), 27);
    assert_cancelled(handles);
    pool.close();
    busy.release();
    run(pool.closed());
    assert_eq!((ran.get(), drops.count()), (0, 27));
}

#[test]
fn it_may_be_called_by_a_task() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let own = pool.clone();
    let caller = pool.spawn(move || own.shutdown_now());
    let (ran, drops) = (Count::default(), Drops::new());
    let handles = queue(&pool, &ran, &drops);
    busy.release();
    assert_eq!(output(caller), 27);
    assert_cancelled(handles);
    run(pool.closed());
    assert_eq!((ran.get(), drops.count()), (0, 27));
}

#[test]
fn a_task_of_a_key_may_call_it() {
    let pool = of(1);
    let (own, ran) = (pool.clone(), Count::default());
    let busy = Busy::keep(&pool, 1);
    let caller = pool.spawn_keyed("key", move || own.shutdown_now());
    let handles: Vec<_> = (0..100)
        .map(|_| pool.spawn_keyed("key", ran.adder()))
        .collect();
    busy.release();
    assert!(output(caller) <= 100);
    run(pool.closed());
    assert_cancelled(handles);
    assert_eq!((ran.get(), pool.metrics().cancelled), (0, 100));
}

#[test]
fn all_who_wait_are_told_also_after_several_calls() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 2);
    run(async {
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    pool.closed().await;
                    pool.closed().await;
                })
            })
            .collect();
        tokio::task::yield_now().await;
        pool.execute(|| ());
        assert_eq!(pool.shutdown_now(), 1);
        assert_eq!(pool.shutdown_now(), 0);
        busy.release();
        for waiting in waiting {
            within(waiting).await.unwrap();
        }
    });
}
