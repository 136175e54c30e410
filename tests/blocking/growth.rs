//! When threads are created, when tasks queue, and what bounds both.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use throng::BlockingPool;

use crate::pools::{Busy, output, rounds_for, when, when_idle};
use crate::support::{Gate, TEST_TIMEOUT, join};

#[test]
fn the_pool_grows_before_it_queues_and_queues_before_it_refuses() {
    let pool = BlockingPool::builder()
        .max_threads(3)
        .queue_capacity(2)
        .build()
        .unwrap();
    let busy: Vec<_> = (1..=3)
        .map(|threads| {
            let busy = Busy::keep(&pool, 1);
            let metrics = pool.metrics();
            assert_eq!((metrics.threads, metrics.queued), (threads, 0));
            busy
        })
        .collect();
    let queued = [1, 2].map(|queued| {
        let handle = pool.try_spawn_blocking(move || queued).unwrap();
        let metrics = pool.metrics();
        assert_eq!((metrics.threads, metrics.queued), (3, queued));
        handle
    });

    let refused = pool.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), "handed back");
    let error = join(pool.spawn_blocking(|| ())).unwrap_err();
    assert!(error.is_rejected() && !error.is_closed());
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::WouldBlock
    );
    assert_eq!(pool.metrics().rejected, 2);

    busy.into_iter().for_each(Busy::release);
    assert_eq!(queued.map(output), [1, 2]);
    assert_eq!(when_idle(&pool).largest, 3);
}

#[test]
fn an_idle_thread_is_used_before_another_is_created() {
    let pool = BlockingPool::builder().build().unwrap();
    for _ in 0..100 {
        output(pool.spawn_blocking(|| ()));
        assert_eq!(when_idle(&pool).threads, 1);
    }
}

/// Tasks submitted at the same moment, each of which waits for all others. The thread that one submitter relies on
/// may take the task of another.
#[test]
fn tasks_submitted_at_once_get_a_thread_each() {
    const SUBMITTERS: usize = 4;
    for _ in rounds_for(1.0) {
        let pool = BlockingPool::builder().build().unwrap();
        let together = Barrier::new(SUBMITTERS);
        let meeting = Arc::new(Barrier::new(SUBMITTERS));
        let handles = thread::scope(|scope| {
            let submitters = [(); SUBMITTERS].map(|()| {
                scope.spawn(|| {
                    let meeting = Arc::clone(&meeting);
                    together.wait();
                    pool.spawn_blocking(move || meeting.wait())
                })
            });
            submitters.map(|submitter| submitter.join().unwrap())
        });
        handles.into_iter().for_each(|handle| _ = output(handle));
        assert!(pool.metrics().largest <= SUBMITTERS as u64);
    }
}

/// The one idle thread counts for the first task, so the second needs a thread of its own.
#[test]
fn a_second_task_for_one_idle_thread_gets_a_new_one() {
    for _ in rounds_for(0.5).take(2_000) {
        let pool = BlockingPool::builder().max_threads(2).build().unwrap();
        output(pool.spawn_blocking(|| ()));
        assert_eq!(when_idle(&pool).idle, 1);
        let (second_runs, first_waits) = mpsc::channel();
        let first = pool.spawn_blocking(move || first_waits.recv_timeout(TEST_TIMEOUT));
        let second = pool.spawn_blocking(move || second_runs.send(()));
        output(second).unwrap();
        output(first).unwrap();
    }
}

/// A submitter wakes one thread at a time, so woken threads must wake the others.
#[test]
fn a_burst_wakes_a_thread_for_each_task() {
    const THREADS: usize = 6;
    let pool = BlockingPool::builder()
        .max_threads(THREADS)
        .build()
        .unwrap();
    for _ in rounds_for(0.5) {
        let meeting = Arc::new(Barrier::new(THREADS));
        let handles = [(); THREADS].map(|()| {
            let meeting = Arc::clone(&meeting);
            pool.spawn_blocking(move || meeting.wait())
        });
        handles.into_iter().for_each(|handle| _ = output(handle));
        when_idle(&pool);
    }
}

#[test]
fn all_threads_blocked_a_queued_task_runs_when_one_ends() {
    let pool = BlockingPool::builder().max_threads(2).build().unwrap();
    let (first, second) = (Busy::keep(&pool, 1), Busy::keep(&pool, 1));
    let queued = [1, 2, 3].map(|n| pool.spawn_blocking(move || n));
    assert_eq!(pool.metrics().queued, 3);
    second.release();
    assert_eq!(queued.map(output), [1, 2, 3]);
    first.release();
}

#[test]
fn without_a_bound_any_number_queues() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    for _ in 0..10_000 {
        drop(pool.try_spawn_blocking(|| ()).unwrap());
    }
    assert_eq!(pool.metrics().queued, 10_000);
    busy.release();
    assert_eq!(when_idle(&pool).completed, 10_001);
}

#[test]
fn there_are_never_more_threads_than_the_maximum() {
    const MAX: usize = 3;
    let pool = BlockingPool::builder()
        .max_threads(MAX)
        .keep_alive(std::time::Duration::ZERO)
        .build()
        .unwrap();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in rounds_for(0.5) {
                    let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                    let handle = pool.spawn_blocking(move || {
                        most.fetch_max(
                            running.fetch_add(1, Ordering::Relaxed) + 1,
                            Ordering::Relaxed,
                        );
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                    });
                    if n % 8 == 0 {
                        output(handle);
                    }
                    assert!(pool.metrics().threads <= MAX as u64);
                }
            });
        }
    });
    let metrics = when_idle(&pool);
    assert_eq!(metrics.largest, MAX as u64);
    assert_eq!(most.load(Ordering::Relaxed), MAX);
    assert_eq!(metrics.completed, metrics.submitted);
}

#[test]
fn a_pool_accepts_exactly_its_bound() {
    const MAX: usize = 2;
    const CAPACITY: usize = 3;
    for _ in rounds_for(0.5) {
        let pool = BlockingPool::builder()
            .max_threads(MAX)
            .queue_capacity(CAPACITY)
            .build()
            .unwrap();
        let gate = Gate::new();
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let gate = gate.clone();
                        match pool.try_spawn_blocking(move || gate.pass()) {
                            Ok(_) => _ = accepted.fetch_add(1, Ordering::Relaxed),
                            Err(error) => assert!(error.is_full()),
                        }
                    }
                });
            }
        });
        assert_eq!(accepted.into_inner(), MAX + CAPACITY);
        let metrics = when(&pool, |metrics| metrics.busy == MAX as u64);
        assert_eq!(metrics.queued, CAPACITY as u64);
        gate.open();
        let metrics = when_idle(&pool);
        assert_eq!(metrics.completed, (MAX + CAPACITY) as u64);
        assert_eq!(metrics.rejected, (8 * 4 - MAX - CAPACITY) as u64);
    }
}

/// Counts a task from the return of its submission until just before its end. It holds its permit for longer, so the
/// count never exceeds the bound.
#[test]
fn the_bound_holds_while_tasks_come_and_go() {
    const MAX: usize = 2;
    const CAPACITY: usize = 2;
    let pool = BlockingPool::builder()
        .max_threads(MAX)
        .queue_capacity(CAPACITY)
        .build()
        .unwrap();
    let inside = Arc::new(AtomicIsize::new(0));
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in rounds_for(0.5) {
                    let leaving = Arc::clone(&inside);
                    let task = move || {
                        thread::yield_now();
                        leaving.fetch_sub(1, Ordering::Relaxed);
                    };
                    match pool.try_spawn_blocking(task) {
                        Ok(_) => {
                            let now = inside.fetch_add(1, Ordering::Relaxed) + 1;
                            assert!(now <= (MAX + CAPACITY) as isize, "{now} inside");
                        }
                        Err(_) => _ = refused.fetch_add(1, Ordering::Relaxed),
                    }
                    assert!(pool.metrics().queued <= (MAX + CAPACITY) as u64);
                }
            });
        }
    });
    let metrics = when_idle(&pool);
    assert_eq!(inside.load(Ordering::Relaxed), 0);
    assert_eq!(metrics.rejected, refused.into_inner() as u64);
    assert!(metrics.rejected > 0, "the bound was never reached");
}

#[test]
fn with_a_capacity_of_0_a_task_is_accepted_only_for_a_free_thread() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(0)
        .build()
        .unwrap();
    for _ in 0..50 {
        // Accepted, since the earlier tasks have ended.
        let busy = Busy::keep(&pool, 2);
        assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
        busy.release();
    }
    let metrics = when_idle(&pool);
    assert_eq!((metrics.threads, metrics.rejected), (2, 50));
}

#[test]
fn aborting_a_task_releases_its_permit() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    for _ in 0..50 {
        let busy = Busy::keep(&pool, 1);
        for _ in 0..10 {
            pool.try_spawn_blocking(|| ()).unwrap().abort();
        }
        let last = pool.try_spawn_blocking(|| ()).unwrap();
        assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
        busy.release();
        output(last);
        when_idle(&pool);
    }
    assert_eq!(pool.metrics().cancelled, 500);
}

/// The permit is released before the handle is ready.
#[test]
fn a_task_that_has_ended_holds_no_permit() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    for n in rounds_for(0.3) {
        let handle = pool.try_spawn_blocking(move || assert!(n % 3 != 2, "as it should"));
        let outcome = handle.expect("a permit is free").blocking_join();
        assert_eq!(outcome.is_err(), n % 3 == 2);
    }
}
