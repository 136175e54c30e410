//! Batches of closures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use throng::{BlockingPool, JoinHandle};

use crate::pools::{Busy, jitter, output, rounds_for, run, when_idle};
use crate::support::{Drops, Gate, Numbers, join, ready};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn handles_and_starts_are_in_the_order_of_the_closures() {
    let pool = of(1);
    let started = Arc::new(AtomicUsize::new(0));
    let tasks = (0..10_000).map(|n| {
        let started = Arc::clone(&started);
        move || (n, started.fetch_add(1, Ordering::Relaxed))
    });
    let handles = pool.spawn_batch(tasks);
    assert_eq!(handles.len(), 10_000);
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(output(handle), (n, n));
    }
    let metrics = when_idle(&pool);
    assert_eq!((metrics.submitted, metrics.completed), (10_000, 10_000));
    assert_eq!(metrics.largest, 1);
}

#[test]
fn an_empty_batch_does_nothing() {
    let pool = of(1);
    let handles = pool.spawn_batch(Vec::<fn()>::new());
    assert!(handles.is_empty());
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.submitted), (0, 0));
}

/// Each task waits until all of them run. Woken threads wake the others.
#[test]
fn a_batch_wakes_a_thread_for_each_task() {
    const THREADS: usize = 6;
    let pool = of(THREADS);
    Busy::keep(&pool, THREADS).release();
    for _ in rounds_for(0.5) {
        when_idle(&pool);
        let meeting = Arc::new(Barrier::new(THREADS));
        let tasks = (0..THREADS).map(|_| {
            let meeting = Arc::clone(&meeting);
            move || meeting.wait()
        });
        for handle in pool.spawn_batch(tasks) {
            output(handle);
        }
    }
    assert_eq!(pool.metrics().largest, THREADS as u64);
}

#[test]
fn a_batch_that_exceeds_the_bound_runs_in_part() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(3)
        .build()
        .unwrap();
    let gate = Gate::new();
    let mut handles = pool.spawn_batch((0..8).map(|n| {
        let gate = gate.clone();
        move || {
            gate.pass();
            n
        }
    }));
    for refused in handles.split_off(5) {
        assert!(ready(refused).unwrap_err().is_rejected());
    }
    gate.open();
    assert!(handles.into_iter().map(output).eq(0..5));
    let metrics = when_idle(&pool);
    assert_eq!((metrics.submitted, metrics.rejected), (5, 3));
    // All permits are free again.
    let handles = pool.spawn_batch([|| (); 5]);
    handles.into_iter().for_each(output);
    assert_eq!(when_idle(&pool).rejected, 3);
}

#[test]
fn a_closed_pool_refuses_a_batch() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    pool.close();
    let drops = Drops::new();
    let tasks = (0..3).map(|_| {
        let value = drops.value();
        move || drop(value)
    });
    for handle in pool.spawn_batch(tasks) {
        assert!(ready(handle).unwrap_err().is_closed());
    }
    assert_eq!((drops.made(), drops.count()), (3, 3));
    assert_eq!(pool.metrics().rejected, 3);
    run(pool.closed());
}

#[cfg(target_pointer_width = "64")]
#[test]
fn without_a_thread_a_batch_is_refused_and_its_permits_released() {
    let pool = BlockingPool::builder()
        .max_threads(2)
        .queue_capacity(2)
        .thread_stack_size(1 << 47)
        .build()
        .unwrap();
    for batch in 1..=3 {
        let drops = Drops::new();
        let tasks = (0..4).map(|_| {
            let value = drops.value();
            move || drop(value)
        });
        for handle in pool.spawn_batch(tasks) {
            let error = ready(handle).unwrap_err();
            assert!(error.is_rejected());
            assert!(std::error::Error::source(&error).is_some());
        }
        assert_eq!((drops.made(), drops.count()), (4, 4));
        let metrics = pool.metrics();
        assert_eq!((metrics.rejected, metrics.queued), (4 * batch, 0));
        assert_eq!(metrics.spawn_failures, batch);
    }
}

#[test]
fn an_iterator_that_panics_acquires_no_permit() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(4)
        .build()
        .unwrap();
    let drops = Drops::new();
    for _ in 0..3 {
        let tasks = (0..3).map(|n| {
            assert!(n < 2, "as it should");
            let value = drops.value();
            move || drop(value)
        });
        let unwound = catch_unwind(AssertUnwindSafe(|| pool.spawn_batch(tasks)));
        assert!(unwound.is_err());
    }
    assert_eq!((drops.made(), drops.count()), (6, 6));
    let metrics = pool.metrics();
    assert_eq!((metrics.submitted, metrics.rejected), (0, 0));
    // All permits are free.
    let handles = pool.spawn_batch([|| (); 5]);
    handles.into_iter().for_each(output);
}

/// All closures are collected before a permit is acquired.
#[test]
fn an_iterator_may_use_the_pool() {
    let pool = of(1);
    let tasks = (0..3).map(|n| {
        let m = output(pool.spawn_blocking(move || n));
        move || m
    });
    let handles = pool.spawn_batch(tasks);
    assert!(handles.into_iter().map(output).eq(0..3));
}

#[test]
fn tasks_of_a_batch_can_be_aborted_one_by_one() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let handles = pool.spawn_batch((0..100).map(|n| move || n));
    handles.iter().step_by(2).for_each(JoinHandle::abort);
    busy.release();
    for (n, handle) in handles.into_iter().enumerate() {
        match join(handle) {
            Ok(output) => assert_eq!((output, n % 2), (n, 1)),
            Err(error) => assert!(error.is_cancelled() && n % 2 == 0),
        }
    }
    assert_eq!(when_idle(&pool).cancelled, 50);
}

/// Batches, single tasks and `close` at the same time: each handle reports the end of its task.
#[test]
fn batches_race_with_close() {
    for round in rounds_for(1.0) {
        let pool = BlockingPool::builder()
            .max_threads(2)
            .queue_capacity(20)
            .build()
            .unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let returned = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..3 {
                let (pool, ran, returned) = (&pool, &ran, &returned);
                scope.spawn(move || {
                    let mut numbers = Numbers::new((3 * round + n + 1) as u64);
                    loop {
                        let tasks = (0..=numbers.below(10)).map(|_| {
                            let ran = Arc::clone(ran);
                            move || ran.fetch_add(1, Ordering::Relaxed)
                        });
                        for handle in pool.spawn_batch(tasks) {
                            match join(handle) {
                                Ok(_) => _ = returned.fetch_add(1, Ordering::Relaxed),
                                Err(error) if error.is_rejected() => {}
                                Err(error) if error.is_closed() => return,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
            jitter(&mut Numbers::new(round as u64 + 1), 500);
            pool.close();
        });
        run(pool.closed());
        let metrics = pool.metrics();
        // The tasks of dropped handles ran.
        assert!(returned.into_inner() <= ran.load(Ordering::Relaxed));
        assert_eq!(ran.load(Ordering::Relaxed) as u64, metrics.completed);
        assert_eq!((metrics.completed, metrics.queued), (metrics.submitted, 0));
    }
}
