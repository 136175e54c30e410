//! Bulkheads: parts of a pool, with bounds of their own.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use futures::FutureExt;
use throng::blocking::{Bulkhead, Overflow};
use throng::{BlockingPool, CompletionStream, JoinHandle, SerialExecutor};

use crate::pools::{Busy, jitter, output, rounds_for, run, when_idle};
use crate::support::{
    Drops, Gate, Numbers, PanicsOnDrop, join, message, poll, receive, thread_name, wait_until,
};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

/// A task of the bulkhead that runs until the gate is opened. It runs when this returns.
fn held_by(gate: &Gate, bulkhead: &Bulkhead) -> JoinHandle<()> {
    let (started, starts) = mpsc::channel();
    let gate = gate.clone();
    let handle = bulkhead.spawn_blocking(move || {
        started.send(()).unwrap();
        gate.pass();
    });
    receive(&starts);
    handle
}

/// Waits until the bulkhead has nothing to do.
#[track_caller]
fn assert_empty(pool: &BlockingPool, bulkhead: &Bulkhead) {
    wait_until("the bulkhead is empty", || bulkhead.metrics().busy == 0);
    assert_eq!(bulkhead.metrics().queued, 0);
    for metrics in [bulkhead.metrics(), when_idle(pool)] {
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(ended, metrics.submitted, "{metrics:?}");
    }
}

#[test]
fn a_bulkhead_bounds_running_and_waiting_tasks() {
    let pool = of(8);
    let bulkhead = pool.bulkhead(2, 3).unwrap();
    let gate = Gate::new();
    let running = [(); 2].map(|()| held_by(&gate, &bulkhead));
    let waiting = [1, 2, 3].map(|n| bulkhead.try_spawn_blocking(move || n).unwrap());
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (2, 3));
    let refused = bulkhead.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), "handed back");
    assert!(
        join(bulkhead.spawn_blocking(|| ()))
            .unwrap_err()
            .is_rejected()
    );
    assert_eq!(pool.metrics().rejected, 2);

    // The pool has threads left, and other bulkheads have permits.
    assert_eq!(output(pool.spawn_blocking(|| "pool")), "pool");
    assert_eq!(
        output(pool.bulkhead(1, 0).unwrap().spawn_blocking(|| "bulkhead")),
        "bulkhead"
    );
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (2, 3));
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));

    gate.open();
    running.into_iter().for_each(output);
    assert_eq!(waiting.map(output), [1, 2, 3]);
    assert_empty(&pool, &bulkhead);
}

#[test]
fn the_limit_holds_while_tasks_come_and_go() {
    const LIMIT: usize = 2;
    let pool = of(6);
    let bulkhead = pool.bulkhead(LIMIT, 4).unwrap();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in rounds_for(0.7) {
                    let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                    let task = move || {
                        let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                        most.fetch_max(now, Ordering::Relaxed);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                    };
                    match bulkhead.try_spawn_blocking(task) {
                        Ok(handle) if n % 4 == 0 => output(handle),
                        Ok(_) => {}
                        Err(error) => assert!(error.is_full()),
                    }
                    assert!(bulkhead.metrics().busy <= LIMIT as u64);
                }
            });
        }
    });
    assert_empty(&pool, &bulkhead);
    assert_eq!(most.load(Ordering::Relaxed), LIMIT);
}

#[test]
fn tasks_of_a_bulkhead_start_in_the_order_in_which_they_were_accepted() {
    let pool = of(4);
    let bulkhead = pool.bulkhead(1, 100).unwrap();
    let gate = Gate::new();
    let first = held_by(&gate, &bulkhead);
    let order = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = (0..100)
        .map(|n| {
            let order = Arc::clone(&order);
            bulkhead.spawn_blocking(move || order.lock().unwrap().push(n))
        })
        .collect();
    gate.open();
    output(first);
    handles.into_iter().for_each(output);
    assert!(order.lock().unwrap().iter().copied().eq(0..100));
}

#[test]
fn aborting_a_task_releases_its_permit_of_the_bulkhead() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let drops = Drops::new();
    for aborted in 1..=1_000 {
        let value = drops.value();
        let handle = bulkhead.try_spawn_blocking(move || drop(value)).unwrap();
        handle.abort();
        assert!(join(handle).unwrap_err().is_cancelled());
        assert_eq!(drops.count(), aborted);
    }
    let last = bulkhead.try_spawn_blocking(|| "last").unwrap();
    assert_eq!(bulkhead.metrics().queued, 1);
    assert!(bulkhead.try_spawn_blocking(|| ()).unwrap_err().is_full());
    gate.open();
    output(running);
    assert_eq!(output(last), "last");
    assert_empty(&pool, &bulkhead);
}

/// The permits of the bulkhead and of the pool are released before the handle is ready.
#[test]
fn a_task_of_a_bulkhead_that_has_ended_holds_no_permit() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 0).unwrap();
    for n in rounds_for(0.5) {
        let task = move || assert!(n % 3 != 2, "as it should");
        let handle = match n % 2 {
            0 => bulkhead.try_spawn_blocking(task),
            _ => pool.try_spawn_blocking(task),
        };
        let outcome = handle.expect("a permit is free").blocking_join();
        assert_eq!(outcome.is_err(), n % 3 == 2);
    }
}

#[test]
fn a_full_pool_rejects_a_task_of_a_bulkhead() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let busy = Busy::keep(&pool, 1);
    let refused = bulkhead.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), "handed back");
    let metrics = bulkhead.metrics();
    assert_eq!((metrics.busy, metrics.queued), (0, 0));
    assert_eq!((metrics.submitted, metrics.rejected), (0, 1));
    busy.release();
    assert_eq!(output(bulkhead.spawn_blocking(|| "again")), "again");
    assert_empty(&pool, &bulkhead);
}

#[test]
fn a_closed_pool_is_closed_for_its_bulkheads() {
    for busy in [false, true] {
        let pool = of(2);
        let bulkhead = pool.bulkhead(1, 1).unwrap();
        let gate = Gate::new();
        let running = busy.then(|| held_by(&gate, &bulkhead));
        pool.close();
        let refused = bulkhead.try_spawn_blocking(|| "handed back").unwrap_err();
        assert!(refused.is_closed(), "while busy: {busy}");
        assert_eq!(refused.into_inner()(), "handed back");
        assert!(
            join(bulkhead.spawn_blocking(|| ()))
                .unwrap_err()
                .is_closed()
        );
        gate.open();
        running.into_iter().for_each(output);
        run(pool.closed());
        assert_eq!(pool.metrics().rejected, 2);
        assert_empty(&pool, &bulkhead);
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn without_a_thread_the_closure_is_returned() {
    let pool = BlockingPool::builder()
        .thread_stack_size(1 << 47)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    for _ in 0..3 {
        let refused = bulkhead.try_spawn_blocking(|| "handed back").unwrap_err();
        assert!(refused.source().is_some());
        assert_eq!(refused.into_inner()(), "handed back");
        assert_empty(&pool, &bulkhead);
    }
}

#[test]
fn closing_the_pool_runs_the_tasks_that_wait_in_a_bulkhead() {
    let pool = of(2);
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let waiting = [1, 2, 3].map(|n| bulkhead.spawn_blocking(move || n));
    pool.close();
    gate.open();
    output(running);
    assert_eq!(waiting.map(output), [1, 2, 3]);
    run(pool.closed());
    assert_eq!(pool.metrics().completed, 4);
    assert_empty(&pool, &bulkhead);
}

#[test]
fn a_shutdown_now_aborts_what_waits_in_a_bulkhead() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let in_view = [(); 3].map(|()| bulkhead.spawn_blocking(|| ()));
    let in_pool = [(); 2].map(|()| pool.spawn_blocking(|| ()));
    let other_view = pool.bulkhead(1, 1).unwrap();
    let in_other_view = [(); 2].map(|()| other_view.spawn_blocking(|| ()));
    // One task of the other bulkhead waits in the pool.
    assert_eq!(pool.shutdown_now(), 2 + 1);
    gate.open();
    output(running);
    let dropped = in_view.into_iter().chain(in_pool).chain(in_other_view);
    for dropped in dropped {
        let error = join(dropped).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    run(pool.closed());
    assert_eq!(pool.metrics().completed, 1);
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (0, 0));
}

#[test]
fn a_bulkhead_keeps_its_pool_open_and_its_tasks_do_not() {
    let (ended, ends) = mpsc::channel();
    let pool = BlockingPool::builder()
        .on_thread_stop(move || _ = ended.send(()))
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    drop(pool);
    assert_eq!(output(bulkhead.clone().spawn_blocking(|| "open")), "open");
    assert!(ends.try_recv().is_err());
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let waiting = bulkhead.spawn_blocking(|| "runs");
    drop(bulkhead);
    gate.open();
    output(running);
    assert_eq!(output(waiting), "runs");
    receive(&ends);
}

/// The dropped task makes room for the new one.
#[test]
fn drop_oldest_drops_a_task_of_a_bulkhead() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .overflow(Overflow::DropOldest)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let busy = Busy::keep(&pool, 1);
    let [first, second, third] = [1, 2, 3].map(|n| bulkhead.spawn_blocking(move || n));
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (1, 2));
    let newest = pool.spawn_blocking(|| "newest");
    assert!(join(first).unwrap_err().is_cancelled());
    assert_eq!((bulkhead.metrics().busy, bulkhead.metrics().queued), (1, 1));
    busy.release();
    assert_eq!(output(newest), "newest");
    assert_eq!((output(second), output(third)), (2, 3));
    assert_empty(&pool, &bulkhead);
    assert_eq!(pool.metrics().cancelled, 1);
}

#[test]
fn a_bulkhead_survives_a_panic() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 10).unwrap();
    let drops = Drops::new();
    let value = PanicsOnDrop(drops.value());
    let panics = bulkhead.spawn_blocking(|| panic!("as it should"));
    let dropping = bulkhead.spawn_blocking(move || drop(value));
    let goes_on = bulkhead.spawn_blocking(thread_name);
    let error: throng::JoinError = join::<()>(panics).unwrap_err();
    assert_eq!(message(error.into_panic()), "as it should");
    assert!(join(dropping).unwrap_err().is_panic());
    assert_eq!(output(goes_on), "throng-blocking-0");
    assert_eq!(drops.count(), 1);
    assert_empty(&pool, &bulkhead);
    assert_eq!(pool.metrics().panicked, 2);
}

/// Tasks that return, panic, wait and are aborted: each ends, and is counted once.
#[test]
fn many_bulkheads_lose_no_task() {
    const BULKHEADS: usize = 4;
    for round in rounds_for(1.5) {
        let pool = of(3);
        let bulkheads: Vec<_> = (1..=BULKHEADS)
            .map(|n| pool.bulkhead(n, 2 * n).unwrap())
            .collect();
        let ran = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..3 {
                let (bulkheads, ran) = (&bulkheads, &ran);
                scope.spawn(move || {
                    let numbers = Numbers::new((round * 3 + n + 1) as u64);
                    ran.fetch_add(use_at_random(bulkheads, numbers), Ordering::Relaxed);
                });
            }
        });
        for bulkhead in &bulkheads {
            assert_empty(&pool, bulkhead);
        }
        let metrics = pool.metrics();
        let ran = ran.into_inner() as u64;
        assert_eq!(metrics.completed + metrics.panicked, ran, "{metrics:?}");
    }
}

/// Submits tasks, and returns how many ran. Some are aborted, some panic, and some wait for another task of their
/// bulkhead.
fn use_at_random(bulkheads: &[Bulkhead], mut numbers: Numbers) -> usize {
    let mut handles = Vec::new();
    for _ in 0..60 {
        let bulkhead = bulkheads[numbers.below(bulkheads.len() as u64) as usize].clone();
        let what = numbers.below(8);
        let inside = bulkhead.clone();
        let handle = bulkhead.spawn_blocking(move || match what {
            0 => panic!("as it should"),
            1 | 2 => usize::from(inside.spawn_blocking(|| ()).blocking_join().is_ok()),
            _ => 0,
        });
        if what > 5 {
            jitter(&mut numbers, 20);
            handle.abort();
        }
        handles.push(handle);
    }
    let ran = handles.into_iter().map(|handle| match join(handle) {
        Ok(inside) => 1 + inside,
        Err(error) => usize::from(error.is_panic()),
    });
    ran.sum()
}

#[test]
fn a_bulkhead_counts_how_its_tasks_end() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    output(bulkhead.spawn_blocking(|| ()));
    let panics: JoinHandle<()> = bulkhead.spawn_blocking(|| panic!("as it should"));
    assert!(join(panics).unwrap_err().is_panic());
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let aborted = bulkhead.spawn_blocking(|| ());
    assert!(bulkhead.try_spawn_blocking(|| ()).unwrap_err().is_full());
    let metrics = bulkhead.metrics();
    assert_eq!((metrics.busy, metrics.queued), (1, 1));
    aborted.abort();
    gate.open();
    output(running);
    assert_empty(&pool, &bulkhead);
    let metrics = bulkhead.metrics();
    assert_eq!((metrics.completed, metrics.panicked), (2, 1));
    assert_eq!((metrics.cancelled, metrics.rejected), (1, 1));
    let metrics = pool.metrics();
    assert_eq!((metrics.completed, metrics.panicked), (2, 1));
    assert_eq!((metrics.cancelled, metrics.rejected), (1, 1));
}

/// Their carriers wait for the thread of the pool when the tasks have ended.
#[test]
fn a_bulkhead_counts_each_task_once() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(2, 0).unwrap();
    let inside = bulkhead.clone();
    let counts = pool.spawn_blocking(move || {
        let counts = || {
            let metrics = inside.metrics();
            (metrics.submitted, metrics.completed, metrics.cancelled)
        };
        let aborted = inside.spawn_blocking(|| ());
        let mut seen = vec![counts()];
        aborted.abort();
        seen.push(counts());
        inside.spawn_blocking(|| ()).blocking_join().unwrap();
        seen.push(counts());
        assert_eq!(inside.metrics().busy, 2);
        seen
    });
    assert_eq!(output(counts), [(1, 0, 0), (1, 0, 1), (2, 1, 1)]);
    assert_empty(&pool, &bulkhead);
    assert_eq!(bulkhead.metrics().submitted, 2);
}

#[test]
fn a_permit_of_a_bulkhead_is_one_of_the_pool_too() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 0).unwrap();
    for _ in 0..3 {
        let permit = bulkhead.reserve().now_or_never().expect("at once").unwrap();
        assert!(bulkhead.reserve().now_or_never().is_none());
        let other = pool.reserve().now_or_never().expect("at once").unwrap();
        assert!(pool.reserve().now_or_never().is_none());
        drop(other);
        assert_eq!(output(permit.spawn_blocking(|| 7)), 7);
        drop(bulkhead.reserve().now_or_never().expect("at once").unwrap());
        let permit = bulkhead.reserve().now_or_never().expect("at once").unwrap();
        let owned = permit.into_owned();
        assert_eq!(output(owned.spawn_blocking(|| 8)), 8);
    }
    // The pool is full, so the bulkhead has no permit either, and keeps none of its own.
    let permits = [(); 2].map(|()| pool.reserve().now_or_never().expect("at once").unwrap());
    assert!(bulkhead.reserve().now_or_never().is_none());
    drop(permits);
    drop(bulkhead.reserve().now_or_never().expect("at once").unwrap());
}

/// The permit of the pool is released while the task waits in the bulkhead.
#[test]
fn a_reserved_task_may_wait_in_the_bulkhead() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .build()
        .unwrap();
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let permit = bulkhead.reserve().now_or_never().expect("at once").unwrap();
    let waiting = permit.spawn_blocking(|| "waits");
    assert_eq!(bulkhead.metrics().queued, 1);
    let other = pool
        .try_spawn_blocking(|| "pool")
        .expect("a permit is free");
    gate.open();
    output(running);
    assert_eq!((output(waiting), output(other)), ("waits", "pool"));
    assert_empty(&pool, &bulkhead);
}

#[test]
fn closing_the_pool_ends_the_waits_for_permits_of_its_bulkheads() {
    let pool = of(1);
    let bulkhead = pool.bulkhead(1, 0).unwrap();
    let permit = bulkhead.reserve().now_or_never().expect("at once").unwrap();
    let mut waiting = Box::pin(bulkhead.reserve());
    assert!(poll(&mut waiting).is_pending());
    pool.close();
    assert!(run(waiting).is_err());
    assert!(join(permit.spawn_blocking(|| ())).unwrap_err().is_closed());
    assert!(run(bulkhead.reserve()).is_err());
    run(pool.closed());
}

#[test]
fn other_parts_run_their_work_in_a_bulkhead() {
    let pool = of(4);
    let bulkhead = pool.bulkhead(1, 100).unwrap();
    let serial = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(bulkhead.clone())
        .build(0)
        .unwrap();
    for _ in 0..10 {
        drop(serial.post(|state| *state += 1));
    }
    assert_eq!(run(serial.into_inner()).unwrap(), 10);
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    run(async {
        for n in 0..10 {
            let job = move || assert!(n % 5 != 4, "as it should");
            jobs.submit_blocking(&bulkhead, n, job).await.unwrap();
        }
        jobs.close();
        while done.next().await.is_some() {}
    });
    assert_empty(&pool, &bulkhead);
    let metrics = bulkhead.metrics();
    assert_eq!(metrics.panicked, 2);
    assert_eq!(metrics.completed, pool.metrics().completed);
}

#[test]
fn the_handles_of_a_batch_are_in_order() {
    let pool = of(2);
    let bulkhead = pool.bulkhead(1, 1).unwrap();
    let gate = Gate::new();
    let running = held_by(&gate, &bulkhead);
    let [first, second] =
        <[_; 2]>::try_from(bulkhead.spawn_batch([1, 2].map(|n| move || n))).unwrap();
    assert!(join(second).unwrap_err().is_rejected());
    gate.open();
    output(running);
    assert_eq!(output(first), 1);
    assert_empty(&pool, &bulkhead);
}
