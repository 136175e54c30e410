//! User code that calls the pool, wherever the pool calls user code.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use throng::BlockingPool;
use throng::blocking::Overflow;

use crate::pools::{Busy, output, run};
use crate::support::{receive, wait_until};

/// Calls a closure when it is dropped.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A waker that reads the metrics of a pool.
struct ReadsMetrics {
    pool: BlockingPool,
    told: mpsc::Sender<u64>,
}

impl Wake for ReadsMetrics {
    fn wake(self: Arc<Self>) {
        let threads = self.pool.metrics().threads;
        // The test may have ended.
        self.told.send(threads).ok();
    }
}

#[test]
fn the_waker_of_a_reservation_may_call_the_pool() {
    let mut builder = BlockingPool::builder();
    let pool = builder.max_threads(1).queue_capacity(0).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let (told, tells) = mpsc::channel();
    let (set, is_set) = mpsc::channel();
    let waits = pool.clone();
    // On another thread, so that a hang does not block the test.
    thread::spawn(move || {
        let looks = ReadsMetrics {
            pool: waits.clone(),
            told,
        };
        let waker = Waker::from(Arc::new(looks));
        let mut reserved = Box::pin(waits.reserve());
        let polled = reserved.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        waits.set_max_threads(2).unwrap();
        set.send(()).unwrap();
    });
    assert_eq!(receive(&tells), 1);
    receive(&is_set);
    busy.release();
}

#[test]
fn a_task_that_is_being_dropped_is_not_queued() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let (queued, seen) = mpsc::channel();
    for _ in 0..2 {
        let (looks, queued) = (pool.clone(), queued.clone());
        let finally = Finally(move || queued.send(looks.metrics().queued).unwrap());
        drop(pool.spawn_blocking(move || drop(finally)));
    }
    assert_eq!(pool.metrics().queued, 2);
    assert_eq!(pool.shutdown_now(), 2);
    assert_eq!([receive(&seen), receive(&seen)], [0, 0]);
    busy.release();
}

/// The drop of the replaced task closes the pool. Accepted tasks still run.
#[test]
fn a_pool_closed_while_it_drops_the_oldest_drops_no_other() {
    let mut builder = BlockingPool::builder();
    builder.max_threads(1).overflow(Overflow::DropOldest);
    let pool = builder.queue_capacity(3).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let closes = pool.clone();
    let finally = Finally(move || closes.close());
    let oldest = pool.spawn_blocking(move || drop(finally));
    let others = [1, 2].map(|n| pool.spawn_blocking(move || n));
    let late = pool.spawn_blocking(|| 3);
    busy.release();
    run(async {
        assert!(oldest.await.unwrap_err().is_cancelled());
        assert!(late.await.unwrap_err().is_closed());
    });
    assert_eq!(others.map(output), [1, 2]);
}

/// A dropped task was not taken by a thread, so it does not delay growth.
#[test]
fn a_pool_that_drops_the_oldest_grows_when_its_threads_block() {
    let mut builder = BlockingPool::builder();
    builder.grow_after(Duration::from_millis(50));
    builder.max_threads(2).overflow(Overflow::DropOldest);
    let pool = builder.queue_capacity(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let runs = Arc::new(AtomicBool::new(false));
    // Faster than the pool grows.
    wait_until("a task runs", || {
        let runs = Arc::clone(&runs);
        drop(pool.spawn_blocking({
            let runs = Arc::clone(&runs);
            move || runs.store(true, Ordering::Relaxed)
        }));
        runs.load(Ordering::Relaxed)
    });
    busy.release();
}

#[test]
fn threads_that_exit_at_once_are_not_created_forever() {
    let mut builder = BlockingPool::builder();
    builder.core_threads(4).allow_core_timeout(true);
    let pool = builder.keep_alive(Duration::ZERO).build().unwrap();
    for _ in 0..20 {
        assert!(pool.prestart_core_threads().unwrap() <= 4);
    }
}

/// The timer is armed for an hour later.
#[test]
fn a_terminated_pool_is_dropped_although_the_timer_is_armed() {
    let held = Arc::new(());
    let hooked = Mutex::new(Arc::clone(&held));
    let mut builder = BlockingPool::builder();
    builder.grow_after(Duration::from_secs(3600));
    builder.on_thread_start(move || drop(hooked.lock().unwrap()));
    let pool = builder.max_threads(2).build().unwrap();
    drop(builder);
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn_blocking(|| 1);
    busy.release();
    assert_eq!(output(queued), 1);
    drop(pool);
    wait_until("nobody has the hook", || Arc::strong_count(&held) == 1);
}
