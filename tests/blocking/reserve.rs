//! Waiting for permits.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use throng::BlockingPool;

use crate::pools::{Busy, output, run, when_idle};
use crate::support::{Wakes, join, multi_thread, poll_with, wait_until, within};

/// A pool with one thread and a queue of this capacity.
fn bounded(capacity: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(capacity)
        .build()
        .unwrap()
}

#[test]
fn an_unbounded_pool_always_grants_a_permit() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let _busy = Busy::keep(&pool, 1);
    for _ in 0..1_000 {
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        drop(permit.spawn_blocking(|| ()));
    }
    assert_eq!(pool.metrics().queued, 1_000);
}

#[test]
fn reserve_waits_for_a_permit_and_keeps_it() {
    let pool = bounded(1);
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn_blocking(|| 1);
    let (woken, waker) = Wakes::new();
    let mut waiting = pin!(pool.reserve());
    assert!(poll_with(&waker, &mut waiting).is_pending());
    assert_eq!(woken.count(), 0);

    busy.release();
    output(queued);
    wait_until("the waiting one is woken", || woken.count() > 0);
    when_idle(&pool);
    let Poll::Ready(Ok(permit)) = poll_with(&waker, &mut waiting) else {
        panic!("a permit is free")
    };
    let other = pool.reserve().now_or_never().expect("two permits").unwrap();
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    assert_eq!(output(permit.spawn_blocking(|| 2)), 2);
    assert_eq!(output(other.spawn_blocking(|| 3)), 3);
}

#[test]
fn dropping_a_permit_releases_it() {
    let pool = bounded(0);
    for _ in 0..10 {
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        assert!(pool.reserve().now_or_never().is_none());
        drop(permit);
    }
    output(pool.spawn_blocking(|| ()));
}

/// Futures are dropped before and after they are woken: the permit goes to the one that still waits.
#[test]
fn dropping_a_waiting_future_loses_no_permit() {
    for woken_first in [false, true] {
        let pool = bounded(0);
        let permit = pool.reserve().now_or_never().expect("at once").unwrap();
        let wakes = [(); 3].map(|()| Wakes::new());
        let mut waiting = [(); 3].map(|()| Box::pin(pool.reserve()));
        for (waiting, (_, waker)) in waiting.iter_mut().zip(&wakes) {
            assert!(poll_with(waker, waiting).is_pending());
        }
        let [first, second, mut third] = waiting;
        if woken_first {
            drop(permit);
            assert_eq!(wakes.each_ref().map(|(wakes, _)| wakes.count()), [1, 0, 0]);
            drop((first, second));
        } else {
            drop((first, second));
            drop(permit);
        }
        let (wakes, waker) = &wakes[2];
        assert_eq!(wakes.count(), 1);
        assert!(matches!(poll_with(waker, &mut third), Poll::Ready(Ok(_))));
    }
}

#[test]
fn many_waiters_all_get_permits() {
    const TASKS: usize = 2_000;
    let pool = bounded(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let runtime = multi_thread(2, "waiting");
    let waiting: Vec<_> = (0..TASKS)
        .map(|n| {
            let (pool, ran) = (pool.clone(), Arc::clone(&ran));
            runtime.spawn(async move {
                if n % 5 == 0 {
                    // A waiter that gives up.
                    let _ =
                        tokio::time::timeout(Duration::from_micros(n as u64), pool.reserve()).await;
                }
                let task = move || ran.fetch_add(1, Ordering::Relaxed);
                let permit = pool.reserve().await.unwrap();
                permit.spawn_blocking(task).await.unwrap();
            })
        })
        .collect();
    runtime.block_on(async {
        within(futures::future::try_join_all(waiting))
            .await
            .unwrap();
    });
    assert_eq!(ran.load(Ordering::Relaxed), TASKS);
    let metrics = when_idle(&pool);
    assert_eq!((metrics.completed, metrics.rejected), (TASKS as u64, 0));
}

#[test]
fn closing_the_pool_ends_all_waits() {
    let pool = bounded(0);
    let busy = Busy::keep(&pool, 1);
    run(async {
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { pool.reserve().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        pool.close();
        for waiting in waiting {
            assert!(waiting.await.unwrap().is_err());
        }
        assert!(pool.reserve().await.is_err());
    });
    busy.release();
}

#[test]
fn a_permit_of_a_closed_pool_spawns_nothing() {
    let pool = bounded(0);
    let permit = pool.reserve().now_or_never().expect("at once").unwrap();
    pool.close();
    let error = join(permit.spawn_blocking(|| ())).unwrap_err();
    assert!(error.is_closed());
    assert_eq!(pool.metrics().rejected, 1);
    run(pool.closed());
}

/// Two tasks have found no permit and are about to wait when two permits are released: each must get one.
#[test]
fn two_permits_released_to_two_new_waiters_are_both_granted() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(0)
        .build()
        .unwrap();
    let permits = [(); 2].map(|()| pool.reserve().now_or_never().expect("at once").unwrap());
    let about_to_wait = Arc::new(AtomicUsize::new(0));
    let freed = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let waiting = [(); 2].map(|()| {
            let (about_to_wait, freed) = (Arc::clone(&about_to_wait), Arc::clone(&freed));
            let while_cloned = move || {
                about_to_wait.fetch_add(1, Ordering::Relaxed);
                // They may not be here at the same time.
                let end = Instant::now() + Duration::from_millis(200);
                while !freed.load(Ordering::Relaxed) && Instant::now() < end {
                    thread::yield_now();
                }
            };
            let pool = &pool;
            scope.spawn(move || slow_to_clone::block_on(pool.reserve(), while_cloned).unwrap())
        });
        wait_until("one is about to wait", || {
            about_to_wait.load(Ordering::Relaxed) > 0
        });
        let end = Instant::now() + Duration::from_millis(100);
        while about_to_wait.load(Ordering::Relaxed) < 2 && Instant::now() < end {
            thread::yield_now();
        }
        drop(permits);
        freed.store(true, Ordering::Relaxed);
        // Both at the same time: the first keeps its permit until the second has one.
        let _permits = waiting.map(|waiting| waiting.join().unwrap());
    });
}

/// A waker whose clone is slow. It is cloned when its future is about to wait.
mod slow_to_clone {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
    use std::thread::{self, Thread};
    use std::time::Instant;

    use crate::support::TEST_TIMEOUT;

    struct Slow {
        thread: Thread,
        while_cloned: Box<dyn Fn() + Send + Sync>,
    }

    /// Polls a future with such a waker until it is ready.
    #[track_caller]
    pub(super) fn block_on<F: Future>(
        future: F,
        while_cloned: impl Fn() + Send + Sync + 'static,
    ) -> F::Output {
        // Leaked, so that the wakers need no reference count.
        let slow: &'static Slow = Box::leak(Box::new(Slow {
            thread: thread::current(),
            while_cloned: Box::new(while_cloned),
        }));
        // SAFETY: the functions of the table need a `Slow` that is never dropped and is `Sync`.
        let waker = unsafe { Waker::from_raw(RawWaker::new((&raw const *slow).cast(), &TABLE)) };
        let mut future = pin!(future);
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            // Until it is woken: polling it anyway would hide a lost wake-up.
            thread::park_timeout(end.saturating_duration_since(Instant::now()));
            assert!(Instant::now() < end, "nobody woke the future");
        }
    }

    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| ());

    fn clone(data: *const ()) -> RawWaker {
        (slow(data).while_cloned)();
        RawWaker::new(data, &TABLE)
    }

    fn wake(data: *const ()) {
        slow(data).thread.unpark();
    }

    fn slow(data: *const ()) -> &'static Slow {
        // SAFETY: all wakers with this table are made from such a pointer.
        unsafe { &*data.cast::<Slow>() }
    }
}

/// Other tasks are faster than `waiting`, twice. The last one keeps the thread busy.
fn loses_twice(pool: &BlockingPool, mut waiting: Pin<&mut impl Future>) -> Busy {
    let mut busy = Busy::keep(pool, 1);
    for _ in 0..2 {
        assert!(waiting.as_mut().now_or_never().is_none());
        busy.release();
        busy = Busy::keep(pool, 1);
    }
    assert!(waiting.now_or_never().is_none());
    busy
}

#[test]
fn a_waiter_that_lost_twice_is_handed_a_permit() {
    let pool = bounded(0);
    let mut waiting = pin!(pool.reserve());
    loses_twice(&pool, waiting.as_mut()).release();
    // The permit is free, but only for the waiter.
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    let mut late = pin!(pool.reserve());
    assert!(late.as_mut().now_or_never().is_none());
    let permit = waiting.now_or_never().expect("it is handed the permit");
    output(permit.unwrap().spawn_blocking(|| ()));
    assert!(late.now_or_never().expect("a permit is free").is_ok());
}

#[test]
fn a_permit_handed_to_a_dropped_waiter_is_released() {
    let pool = bounded(0);
    let mut waiting = Box::pin(pool.reserve());
    loses_twice(&pool, waiting.as_mut()).release();
    drop(waiting);
    output(pool.try_spawn_blocking(|| ()).unwrap());
}

#[test]
fn a_waiter_for_a_handoff_learns_of_the_close() {
    let pool = bounded(0);
    let mut waiting = pin!(pool.reserve());
    let busy = loses_twice(&pool, waiting.as_mut());
    pool.close();
    assert!(waiting.now_or_never().expect("it is woken").is_err());
    busy.release();
}

/// After the bound was lowered, a permit beyond it is not handed over.
#[test]
fn a_permit_beyond_a_lowered_bound_is_not_handed_over() {
    let pool = bounded(1);
    let queued = {
        let busy = Busy::keep(&pool, 1);
        pool.set_max_threads(2).unwrap();
        let others = Busy::keep(&pool, 1);
        let queued = pool.spawn_blocking(|| ());
        let mut waiting = pin!(pool.reserve());
        assert!(waiting.as_mut().now_or_never().is_none());
        pool.set_max_threads(1).unwrap();
        busy.release();
        assert!(waiting.as_mut().now_or_never().is_none());
        others.release();
        queued
    };
    output(queued);
    assert!(
        pool.reserve()
            .now_or_never()
            .expect("a permit is free")
            .is_ok()
    );
}
