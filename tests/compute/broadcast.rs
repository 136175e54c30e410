//! A closure on each thread, thread hooks, and waiting until the pool is idle.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use futures::FutureExt;
use throng::ComputePool;

use crate::pools::{Busy, Count, bounded, hunt, of, output, run};
use crate::support::{join, receive};

#[test]
fn a_broadcast_runs_once_on_each_thread() {
    let pool = of(3);
    let barrier = Arc::new(Barrier::new(3));
    let ids = |pool: &ComputePool| {
        let barrier = Arc::clone(&barrier);
        let handles = pool.broadcast(move |index| {
            barrier.wait();
            (index, thread::current().id())
        });
        handles.into_iter().map(output).collect::<Vec<_>>()
    };
    let first = ids(&pool);
    assert!(first.iter().map(|id| id.0).eq(0..3));
    assert!(first[0].1 != first[1].1 && first[1].1 != first[2].1);
    assert_eq!(ids(&pool), first);
    assert_eq!(pool.metrics().completed, 6);
}

#[test]
fn a_broadcast_waits_for_a_busy_thread_and_is_not_limited() {
    let pool = bounded(1, 1);
    let busy = Busy::keep(&pool, 1);
    let mut handles = pool.broadcast(|index| index);
    let handle = handles.pop().expect("there is one thread");
    assert!(!handle.is_finished());
    busy.release();
    assert_eq!(output(handle), 0);
}

#[test]
fn a_broadcast_that_races_with_the_end_runs_or_is_refused() {
    for _ in hunt(0.5) {
        let pool = of(2);
        let closer = pool.clone();
        let closes = thread::spawn(move || closer.close());
        let handles = pool.broadcast(|_| ());
        closes.join().unwrap();
        for handle in handles {
            assert!(join(handle).map_or_else(|error| error.is_closed(), |()| true));
        }
        run(pool.closed());
    }
}

#[test]
fn shutdown_now_drops_a_broadcast_that_has_not_started() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let mut handles = pool.broadcast(|_| ());
    assert_eq!(pool.shutdown_now(), 1);
    assert!(join(handles.remove(0)).unwrap_err().is_cancelled());
    busy.release();
}

#[test]
fn hooks_run_on_each_thread_with_its_index() {
    let (send, receiver) = mpsc::channel();
    let (starts, stops) = (Mutex::new(send.clone()), Mutex::new(send));
    let pool = ComputePool::builder()
        .threads(2)
        .on_thread_start(move |index| {
            starts.lock().unwrap().send(("start", index)).unwrap();
            panic!("it is contained");
        })
        .on_thread_stop(move |index| {
            stops.lock().unwrap().send(("stop", index)).unwrap();
            panic!("it is contained");
        })
        .build()
        .unwrap();
    let mut events: Vec<_> = (0..2).map(|_| receive(&receiver)).collect();
    assert_eq!(output(pool.spawn(|| 7)), 7);
    pool.close();
    run(pool.closed());
    events.extend(receiver.try_iter());
    events.sort_unstable();
    assert_eq!(
        events,
        [("start", 0), ("start", 1), ("stop", 0), ("stop", 1)]
    );
}

#[test]
fn idle_waits_for_tasks_of_all_kinds() {
    let pool = of(2);
    run(pool.idle());
    for _ in hunt(0.5) {
        let ran = Count::default();
        pool.execute_batch((0..50).map(|_| ran.adder()));
        drop(pool.spawn_keyed("key", ran.adder()));
        let (inner, child) = (pool.clone(), ran.adder());
        pool.execute(move || inner.execute(child));
        run(pool.idle());
        assert_eq!(ran.get(), 52);
    }
}

#[test]
fn idle_is_pending_while_a_task_runs_and_ready_when_the_pool_has_ended() {
    let pool = of(2);
    let busy = Busy::keep(&pool, 1);
    assert!(pool.idle().now_or_never().is_none());
    busy.release();
    pool.close();
    run(pool.idle());
    run(pool.closed());
    run(pool.idle());
}
