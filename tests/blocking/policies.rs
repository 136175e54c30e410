//! The policies of growth.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use throng::BlockingPool;
use throng::blocking::Builder;

use crate::pools::{Busy, output, run, when, when_idle};
use crate::support::Gate;

/// A time longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_millis(1);

fn with(growth: Duration) -> Builder {
    let mut builder = BlockingPool::builder();
    builder.grow_after(growth);
    builder
}

/// Submits tasks that all wait until all of them run.
#[track_caller]
fn meet(pool: &BlockingPool, tasks: usize) {
    let meeting = Arc::new(Barrier::new(tasks));
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            let meeting = Arc::clone(&meeting);
            pool.spawn_blocking(move || meeting.wait())
        })
        .collect();
    handles.into_iter().for_each(|handle| _ = output(handle));
}

#[test]
fn a_burst_gets_a_thread_for_each_task() {
    for _ in 0..3 {
        let pool = with(Duration::ZERO).max_threads(200).build().unwrap();
        meet(&pool, 200);
        assert_eq!(when_idle(&pool).largest, 200);
    }
}

#[test]
fn a_batch_gets_a_thread_for_each_task() {
    let pool = with(Duration::ZERO).max_threads(100).build().unwrap();
    let meeting = Arc::new(Barrier::new(100));
    let tasks = (0..100).map(|_| {
        let meeting = Arc::clone(&meeting);
        move || meeting.wait()
    });
    for handle in pool.spawn_batch(tasks) {
        output(handle);
    }
    assert_eq!(when_idle(&pool).largest, 100);
}

#[test]
fn short_tasks_queue_for_the_core_threads() {
    let pool = with(NEVER).core_threads(2).build().unwrap();
    let handles: Vec<_> = (0..1_000)
        .map(|_| {
            pool.spawn_blocking(|| {
                let end = Instant::now() + Duration::from_micros(10);
                while Instant::now() < end {}
            })
        })
        .collect();
    handles.into_iter().for_each(output);
    assert!(when_idle(&pool).largest <= 2);
}

#[test]
fn core_threads_are_created_at_once_whatever_the_policy() {
    for growth in [Duration::ZERO, NEVER, Duration::MAX] {
        let pool = with(growth).core_threads(4).build().unwrap();
        meet(&pool, 4);
        assert_eq!(when_idle(&pool).largest, 4);
        // Without core threads, the first thread is.
        let pool = with(growth).build().unwrap();
        output(pool.spawn_blocking(|| ()));
        assert_eq!(when_idle(&pool).largest, 1);
    }
}

/// No task is submitted, and no thread ends its task.
#[test]
fn a_pool_whose_threads_all_block_grows() {
    let pool = with(SOON).core_threads(2).build().unwrap();
    let busy = Busy::keep(&pool, 2);
    assert_eq!(output(pool.spawn_blocking(|| "runs")), "runs");
    assert_eq!(pool.metrics().busy, 2);
    busy.release();
    let metrics = when_idle(&pool);
    assert!((3..=4).contains(&metrics.largest), "{metrics:?}");
}

#[test]
fn growth_after_a_time_waits_for_that_time() {
    const TIME: Duration = Duration::from_millis(100);
    let pool = with(TIME).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let submitted = Instant::now();
    let started = output(pool.spawn_blocking(Instant::now));
    assert!(started - submitted >= TIME, "{:?}", started - submitted);
    busy.release();
}

/// Creating one thread at a time would take a hundred times this time.
#[test]
fn growth_after_a_time_doubles() {
    const TIME: Duration = Duration::from_millis(100);
    let pool = with(TIME).build().unwrap();
    let submitted = Instant::now();
    meet(&pool, 101);
    let took = submitted.elapsed();
    // One, two, four, and so on: seven times, if nothing delays it.
    assert!(took >= 6 * TIME && took < 40 * TIME, "{took:?}");
    assert!(when_idle(&pool).largest <= 127);
}

#[test]
fn growth_after_a_time_respects_the_maximum() {
    let pool = with(SOON).max_threads(3).build().unwrap();
    let busy = Busy::keep(&pool, 3);
    let queued: Vec<_> = (0..10).map(|n| pool.spawn_blocking(move || n)).collect();
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.queued), (3, 10));
    busy.release();
    assert!(queued.into_iter().map(output).eq(0..10));
    assert_eq!(when_idle(&pool).largest, 3);
}

#[test]
fn a_pool_without_handles_grows_for_accepted_tasks() {
    let pool = with(SOON).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let handle = pool.spawn_blocking(|| "runs");
    drop(pool);
    assert_eq!(output(handle), "runs");
    busy.release();
}

#[test]
fn a_pool_with_an_armed_timer_terminates() {
    let pool = with(NEVER).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let queued = pool.spawn_blocking(|| "runs");
    pool.close();
    busy.release();
    assert_eq!(output(queued), "runs");
    run(pool.closed());
}

#[test]
fn growth_when_full_fills_the_queue_first() {
    let pool = with(Duration::MAX)
        .core_threads(1)
        .max_threads(3)
        .queue_capacity(2)
        .build()
        .unwrap();
    let first = Busy::keep(&pool, 1);
    let queued = [1, 2].map(|n| pool.spawn_blocking(move || n));
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.queued), (1, 2));
    // The queue is full: each new task creates a thread, which takes the oldest.
    let more = [3, 4].map(|n| pool.spawn_blocking(move || n));
    let [one, two] = queued;
    assert_eq!((output(one), output(two)), (1, 2));
    assert_eq!(more.map(output), [3, 4]);
    first.release();
    let metrics = when_idle(&pool);
    assert!((2..=3).contains(&metrics.largest), "{metrics:?}");
    assert_eq!(metrics.rejected, 0);
}

#[test]
fn growth_when_full_reaches_the_maximum_before_it_refuses() {
    let pool = with(Duration::MAX)
        .max_threads(3)
        .queue_capacity(2)
        .build()
        .unwrap();
    let gate = Gate::new();
    let handles = [(); 5].map(|()| {
        let gate = gate.clone();
        pool.try_spawn_blocking(move || gate.pass()).unwrap()
    });
    let metrics = when(&pool, |metrics| metrics.busy == 3);
    assert_eq!(metrics.queued, 2);
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    gate.open();
    handles.into_iter().for_each(output);
    assert_eq!(when_idle(&pool).largest, 3);
}

#[test]
fn growth_when_full_without_a_bound_has_one_thread() {
    let pool = with(Duration::MAX)
        .core_threads(2)
        .max_threads(10)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 2);
    let queued: Vec<_> = (0..1_000).map(|n| pool.spawn_blocking(move || n)).collect();
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.queued), (2, 1_000));
    busy.release();
    assert!(queued.into_iter().map(output).eq(0..1_000));
    assert_eq!(when_idle(&pool).largest, 2);
}

/// Even if threads are created late or not at all.
#[test]
fn growth_policies_allow_compensating_threads() {
    for growth in [NEVER, Duration::MAX] {
        let pool = with(growth).max_threads(4).core_threads(2).build().unwrap();
        let gate = Gate::new();
        let held = gate.clone();
        let running = pool.spawn_blocking(move || held.pass());
        when(&pool, |metrics| metrics.busy == 1 && metrics.queued == 0);
        let waiting = pool.spawn_blocking(move || running.blocking_join().unwrap());
        when(&pool, |metrics| metrics.blocked == 1);
        output(pool.spawn_blocking(move || gate.open()));
        output(waiting);
        let metrics = when_idle(&pool);
        assert_eq!((metrics.blocked, metrics.largest), (0, 3));
    }
}
