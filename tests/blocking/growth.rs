//! When threads are created, when tasks queue, and what bounds both.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use throng::BlockingPool;

use crate::pools::{Busy, hunt, output, rest, settle};
use crate::support::{Gate, PATIENCE, join};

#[test]
fn it_grows_before_it_queues_and_queues_before_it_refuses() {
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
    assert_eq!(rest(&pool).largest, 3);
}

#[test]
fn an_idle_thread_is_used_before_another_is_created() {
    let pool = BlockingPool::builder().build().unwrap();
    for _ in 0..100 {
        output(pool.spawn_blocking(|| ()));
        assert_eq!(rest(&pool).threads, 1);
    }
}

/// Tasks that are submitted at the same moment, each of which needs all others to run: what one
/// submitter's new thread takes must not be what another submitter counted on.
#[test]
fn tasks_submitted_at_once_have_a_thread_each() {
    const SUBMITTERS: usize = 4;
    for _ in hunt(1.0) {
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
        assert!(pool.metrics().largest <= SUBMITTERS);
    }
}

/// The one idle thread counts for the first task, so the second needs a thread of its own.
#[test]
fn two_tasks_for_one_idle_thread() {
    for _ in hunt(0.5).take(2_000) {
        let pool = BlockingPool::builder().max_threads(2).build().unwrap();
        output(pool.spawn_blocking(|| ()));
        assert_eq!(rest(&pool).idle, 1);
        let (second_runs, first_waits) = mpsc::channel();
        let first = pool.spawn_blocking(move || first_waits.recv_timeout(PATIENCE));
        let second = pool.spawn_blocking(move || second_runs.send(()));
        output(second).unwrap();
        output(first).unwrap();
    }
}

/// One wake-up is in flight at a time; so the woken ones have to wake the others.
#[test]
fn a_burst_wakes_all_the_threads_that_it_needs() {
    const THREADS: usize = 6;
    let pool = BlockingPool::builder()
        .max_threads(THREADS)
        .build()
        .unwrap();
    for _ in hunt(0.5) {
        let meeting = Arc::new(Barrier::new(THREADS));
        let handles = [(); THREADS].map(|()| {
            let meeting = Arc::clone(&meeting);
            pool.spawn_blocking(move || meeting.wait())
        });
        handles.into_iter().for_each(|handle| _ = output(handle));
        rest(&pool);
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
    assert_eq!(rest(&pool).completed, 10_001);
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
                for n in hunt(0.5) {
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
                    assert!(pool.metrics().threads <= MAX);
                }
            });
        }
    });
    let metrics = rest(&pool);
    assert_eq!((metrics.largest, most.load(Ordering::Relaxed)), (MAX, MAX));
    assert_eq!(metrics.completed, metrics.submitted);
}

#[test]
fn exactly_as_many_are_accepted_as_fit() {
    const MAX: usize = 2;
    const CAPACITY: usize = 3;
    for _ in hunt(0.5) {
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
        let metrics = settle(&pool, |metrics| metrics.busy == MAX);
        assert_eq!(metrics.queued, CAPACITY);
        gate.open();
        let metrics = rest(&pool);
        assert_eq!(metrics.completed, (MAX + CAPACITY) as u64);
        assert_eq!(metrics.rejected, (8 * 4 - MAX - CAPACITY) as u64);
    }
}

/// Counts a task from when its submitter knows that it was accepted until just before it ends: that
/// is less time than it takes up a place, so the count may not go over the bound at any moment.
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
                for _ in hunt(0.5) {
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
                    assert!(pool.metrics().queued <= MAX + CAPACITY);
                }
            });
        }
    });
    let metrics = rest(&pool);
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
        // Accepted, since those before have ended.
        let busy = Busy::keep(&pool, 2);
        assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
        busy.release();
    }
    let metrics = rest(&pool);
    assert_eq!((metrics.threads, metrics.rejected), (2, 50));
}

#[test]
fn an_aborted_task_gives_its_place_back_at_once() {
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
        rest(&pool);
    }
    assert_eq!(pool.metrics().cancelled, 500);
}

/// Who knows how a task ended finds its place free.
#[test]
fn a_task_that_has_ended_takes_up_no_place() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    for n in hunt(0.3) {
        let handle = pool.try_spawn_blocking(move || assert!(n % 3 != 2, "as it should"));
        let outcome = handle.expect("there is room").blocking_join();
        assert_eq!(outcome.is_err(), n % 3 == 2);
    }
}
