//! Waiting until a pool is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use throng::BlockingPool;

use crate::pools::{Busy, output, rounds_for, run, when};
use crate::support::{Wakes, poll_with};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn an_unused_pool_is_idle() {
    let pool = of(1);
    assert!(pool.idle().now_or_never().is_some());
    pool.close();
    assert!(pool.idle().now_or_never().is_some());
}

#[test]
fn idle_waits_for_running_and_queued_tasks() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    assert!(pool.idle().now_or_never().is_none());
    let queued = pool.spawn_blocking(|| "ran");
    busy.release();
    run(pool.idle());
    assert!(queued.is_finished());
    // The pool is open.
    assert_eq!(output(pool.spawn_blocking(|| "again")), "again");
}

#[test]
fn idle_waits_for_the_tasks_of_a_bulkhead() {
    let pool = of(2);
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let tasks = bulkhead.spawn_batch([(); 10].map(|()| || thread::sleep(Duration::from_millis(1))));
    run(pool.idle());
    assert!(tasks.iter().all(throng::JoinHandle::is_finished));
    assert_eq!(bulkhead.metrics().completed, 10);
}

/// No thread is involved: the abort itself makes the pool idle.
#[test]
fn aborting_the_last_queued_task_makes_the_pool_idle() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn_blocking(|| ());
    let (woken, waker) = Wakes::new();
    let mut idle = Box::pin(pool.idle());
    assert!(poll_with(&waker, &mut idle).is_pending());
    queued.abort();
    busy.release();
    when(&pool, |metrics| metrics.idle == 1);
    run(idle);
    assert!(woken.count() <= 1);
}

#[test]
fn a_pool_whose_threads_have_exited_is_idle() {
    let pool = BlockingPool::builder()
        .keep_alive(Duration::ZERO)
        .build()
        .unwrap();
    for _ in rounds_for(0.3) {
        drop(pool.spawn_blocking(|| ()));
        run(pool.idle());
    }
}

/// Every task submitted before has ended when the wait ends.
#[test]
fn idle_is_not_reached_while_tasks_are_left() {
    let pool = of(3);
    for _ in rounds_for(0.7) {
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let ended = Arc::clone(&ended);
            drop(pool.spawn_blocking(move || ended.fetch_add(1, Ordering::Relaxed)));
        }
        run(pool.idle());
        assert_eq!(ended.load(Ordering::Relaxed), 20);
    }
}
