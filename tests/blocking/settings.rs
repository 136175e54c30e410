//! Settings that change while a pool works.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use throng::BlockingPool;
use throng::blocking::Builder;

use crate::pools::{Busy, output, rounds_for, run, when, when_idle};
use crate::support::{Gate, Numbers, block_on, poll, wait_until};

fn with(core: usize, max: usize) -> Builder {
    let mut builder = BlockingPool::builder();
    builder.core_threads(core).max_threads(max);
    builder
}

#[test]
fn core_threads_can_be_started_before_the_first_task() {
    let pool = with(3, 4).build().unwrap();
    assert_eq!(pool.prestart_core_threads().unwrap(), 3);
    assert_eq!(when_idle(&pool).threads, 3);
    assert_eq!(pool.prestart_core_threads().unwrap(), 0);
    Busy::keep(&pool, 3).release();
    assert_eq!(when_idle(&pool).largest, 3);
    pool.set_core_threads(4).unwrap();
    assert_eq!(pool.prestart_core_threads().unwrap(), 1);
    assert_eq!(
        with(0, 4).build().unwrap().prestart_core_threads().unwrap(),
        0
    );
    pool.close();
    run(pool.closed());
    assert_eq!(pool.prestart_core_threads().unwrap(), 0);
}

#[cfg(target_pointer_width = "64")]
#[test]
fn the_system_may_refuse_core_threads() {
    let pool = with(3, 3).thread_stack_size(1 << 47).build().unwrap();
    assert!(pool.prestart_core_threads().is_err());
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.spawn_failures), (0, 1));
    pool.close();
    run(pool.closed());
}

#[test]
fn core_threads_stay_unless_they_may_time_out() {
    for may_go in [false, true] {
        let pool = with(2, 4)
            .keep_alive(Duration::from_millis(1))
            .allow_core_timeout(may_go)
            .build()
            .unwrap();
        Busy::keep(&pool, 4).release();
        let stay = if may_go { 0 } else { 2 };
        when(&pool, |metrics| metrics.threads == stay);
        // Threads that stay park without a time-out.
        output(pool.spawn_blocking(|| thread::sleep(Duration::from_millis(5))));
        when(&pool, |metrics| metrics.threads == stay);
    }
}

#[test]
fn lowering_the_core_threads_ends_idle_threads() {
    let pool = with(4, 4)
        .keep_alive(Duration::from_millis(1))
        .build()
        .unwrap();
    pool.prestart_core_threads().unwrap();
    assert_eq!(when_idle(&pool).threads, 4);
    pool.set_core_threads(1).unwrap();
    when(&pool, |metrics| metrics.threads == 1);
    output(pool.spawn_blocking(|| ()));
    assert_eq!(when_idle(&pool).threads, 1);
}

#[test]
fn a_new_keep_alive_applies_to_idle_threads() {
    let pool = with(0, 4).keep_alive(Duration::MAX).build().unwrap();
    Busy::keep(&pool, 4).release();
    assert_eq!(when_idle(&pool).threads, 4);
    pool.set_keep_alive(Duration::from_millis(1));
    when(&pool, |metrics| metrics.threads == 0);
    pool.set_keep_alive(Duration::MAX);
    Busy::keep(&pool, 2).release();
    assert_eq!(when_idle(&pool).threads, 2);
}

#[test]
fn raising_the_maximum_runs_queued_tasks() {
    for growth in [Duration::ZERO, Duration::from_millis(1)] {
        let pool = with(0, 1).grow_after(growth).build().unwrap();
        let busy = Busy::keep(&pool, 1);
        let meeting = Arc::new(Barrier::new(6));
        let queued = [(); 6].map(|()| {
            let meeting = Arc::clone(&meeting);
            pool.spawn_blocking(move || meeting.wait())
        });
        assert_eq!(pool.metrics().queued, 6);
        pool.set_max_threads(7).unwrap();
        queued.into_iter().for_each(|handle| _ = output(handle));
        assert_eq!(pool.metrics().largest, 7);
        busy.release();
    }
}

#[test]
fn raising_the_core_threads_runs_queued_tasks() {
    let pool = with(1, 4).grow_after(Duration::MAX).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let meeting = Arc::new(Barrier::new(3));
    let queued = [(); 3].map(|()| {
        let meeting = Arc::clone(&meeting);
        pool.spawn_blocking(move || meeting.wait())
    });
    assert_eq!(pool.metrics().threads, 1);
    pool.set_core_threads(4).unwrap();
    queued.into_iter().for_each(|handle| _ = output(handle));
    busy.release();
}

#[test]
fn lowering_the_maximum_ends_idle_and_busy_threads() {
    let pool = with(0, 6).build().unwrap();
    Busy::keep(&pool, 6).release();
    assert_eq!(when_idle(&pool).threads, 6);
    pool.set_max_threads(4).unwrap();
    when(&pool, |metrics| metrics.threads == 4);

    let busy = [(); 4].map(|()| Busy::keep(&pool, 1));
    let gate = Gate::new();
    let queued = [(); 3].map(|()| {
        let gate = gate.clone();
        pool.spawn_blocking(move || gate.pass())
    });
    pool.set_max_threads(1).unwrap();
    // They exit after their tasks, even while others are queued.
    busy.into_iter().for_each(Busy::release);
    let metrics = when(&pool, |metrics| metrics.threads == 1 && metrics.busy == 1);
    assert_eq!(metrics.queued, 2);
    gate.open();
    queued.into_iter().for_each(output);
    assert_eq!(when_idle(&pool).threads, 1);
}

/// Runs tasks, and returns the largest number that ran at once.
#[track_caller]
fn most_at_once(pool: &BlockingPool, tasks: usize) -> usize {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.spawn_blocking(move || {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
                (0..5).for_each(|_| thread::yield_now());
                running.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    handles.into_iter().for_each(output);
    most.load(Ordering::Relaxed)
}

#[test]
fn a_woken_thread_beyond_the_maximum_takes_no_task() {
    for most in [1, 3] {
        for _ in 0..50 {
            let pool = with(0, 8).build().unwrap();
            Busy::keep(&pool, 8).release();
            assert_eq!(when_idle(&pool).threads, 8);
            pool.set_max_threads(most).unwrap();
            assert!(most_at_once(&pool, 24) <= most);
            when(&pool, |metrics| metrics.threads <= most as u64);
        }
    }
}

#[test]
fn a_new_thread_beyond_the_maximum_takes_no_task() {
    for _ in 0..50 {
        let (gate, standing) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let pool = {
            let (gate, standing) = (gate.clone(), Arc::clone(&standing));
            let start = move || {
                standing.fetch_add(1, Ordering::Relaxed);
                gate.pass();
            };
            with(8, 8).on_thread_start(start).build().unwrap()
        };
        assert_eq!(pool.prestart_core_threads().unwrap(), 8);
        wait_until("all are there", || standing.load(Ordering::Relaxed) == 8);
        pool.set_core_threads(0).unwrap();
        pool.set_max_threads(2).unwrap();
        let opens = thread::spawn(move || gate.open());
        assert!(most_at_once(&pool, 24) <= 2);
        opens.join().unwrap();
        when(&pool, |metrics| metrics.threads <= 2);
    }
}

#[test]
fn the_bound_changes_with_the_maximum() {
    let pool = with(0, 1).queue_capacity(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let first = pool.try_spawn_blocking(|| ()).unwrap();
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    let mut waiting = Box::pin(pool.reserve());
    assert!(poll(&mut waiting).is_pending());

    pool.set_max_threads(2).unwrap();
    let second = block_on(waiting).unwrap().spawn_blocking(|| ());
    output(first);
    output(second);
    pool.set_max_threads(1).unwrap();
    let kept = pool.try_spawn_blocking(|| ()).unwrap();
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    busy.release();
    output(kept);
    assert_eq!(when_idle(&pool).threads, 1);
}

#[test]
fn an_invalid_setting_changes_nothing() {
    let pool = with(2, 3).queue_capacity(0).build().unwrap();
    let kinds = [
        pool.set_max_threads(0),
        pool.set_max_threads(1),
        pool.set_core_threads(4),
    ]
    .map(|set| set.unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::InvalidInput; 3]);
    let busy = [(); 3].map(|()| Busy::keep(&pool, 1));
    assert!(pool.try_spawn_blocking(|| ()).unwrap_err().is_full());
    busy.into_iter().for_each(Busy::release);
    pool.set_core_threads(0).unwrap();
    pool.set_max_threads(1).unwrap();
    pool.set_keep_alive(Duration::from_millis(1));
    when(&pool, |metrics| metrics.threads == 0);
}

#[test]
fn settings_of_a_closed_pool_can_change() {
    let pool = with(0, 1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let meeting = Arc::new(Barrier::new(2));
    let queued = [(); 2].map(|()| {
        let meeting = Arc::clone(&meeting);
        pool.spawn_blocking(move || meeting.wait())
    });
    pool.close();
    pool.set_max_threads(3).unwrap();
    queued.into_iter().for_each(|handle| _ = output(handle));
    busy.release();
    run(pool.closed());
    pool.set_max_threads(1).unwrap();
    assert_eq!(pool.metrics().threads, 0);
}

/// Settings change while tasks are submitted: no task is lost, and the last settings apply.
#[test]
fn settings_can_change_under_load() {
    for round in rounds_for(1.5) {
        let growth = [Duration::ZERO, Duration::from_micros(200), Duration::MAX];
        let pool = with(0, 2)
            .queue_capacity([0, 4, 64][round % 3])
            .grow_after(growth[round / 3 % 3])
            .build()
            .unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let ran = Arc::clone(&ran);
                        let task = move || ran.fetch_add(1, Ordering::Relaxed);
                        match pool.try_spawn_blocking(task) {
                            Ok(_) => _ = accepted.fetch_add(1, Ordering::Relaxed),
                            Err(error) => assert!(error.is_full()),
                        }
                    }
                });
            }
            set_at_random(&pool, Numbers::new(round as u64 + 1));
        });
        pool.set_max_threads(1).unwrap();
        pool.set_keep_alive(Duration::MAX);
        wait_until("all have run", || {
            ran.load(Ordering::Relaxed) == accepted.load(Ordering::Relaxed)
        });
        let metrics = when(&pool, |metrics| metrics.threads <= 1 && metrics.busy == 0);
        assert_eq!(metrics.completed, metrics.submitted);
        assert_eq!(metrics.rejected + metrics.submitted, 400);
        output(pool.spawn_blocking(|| ()));
    }
}

fn set_at_random(pool: &BlockingPool, mut numbers: Numbers) {
    for _ in 0..20 {
        let threads = numbers.below(4) as usize;
        match numbers.below(3) {
            // It is an error to set fewer than the core threads.
            0 => _ = pool.set_max_threads(threads + 1),
            1 => _ = pool.set_core_threads(threads),
            _ => pool.set_keep_alive(Duration::from_micros(numbers.below(100))),
        }
        thread::yield_now();
    }
    pool.set_core_threads(0).unwrap();
}
