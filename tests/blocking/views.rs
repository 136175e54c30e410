//! Views: parts of a pool, with limits of their own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use throng::blocking::{Overflow, PoolView};
use throng::{BlockingPool, JoinHandle};

use crate::pools::{Busy, hunt, jitter, output, rest, run};
use crate::support::{
    Drops, Gate, Numbers, PanicsOnDrop, join, message, receive, thread_name, wait_until,
};

fn of(threads: usize) -> BlockingPool {
    BlockingPool::builder()
        .max_threads(threads)
        .build()
        .unwrap()
}

/// A task of the view that runs until the gate is opened. It runs when this returns.
fn held_by(gate: &Gate, view: &PoolView) -> JoinHandle<()> {
    let (started, starts) = mpsc::channel();
    let gate = gate.clone();
    let handle = view.spawn_blocking(move || {
        started.send(()).unwrap();
        gate.pass();
    });
    receive(&starts);
    handle
}

/// Waits until the view has nothing to do.
#[track_caller]
fn assert_empty(view: &PoolView) {
    wait_until("the view is empty", || view.running() == 0);
    assert_eq!(view.queued(), 0);
    let metrics = rest(view.pool());
    let ended = metrics.completed + metrics.panicked + metrics.cancelled;
    assert_eq!(ended, metrics.submitted, "{metrics:?}");
}

#[test]
fn a_view_runs_so_many_at_a_time_and_lets_so_many_wait() {
    let pool = of(8);
    let view = pool.view(2, 3);
    let gate = Gate::new();
    let running = [(); 2].map(|()| held_by(&gate, &view));
    let waiting = [1, 2, 3].map(|n| view.try_spawn_blocking(move || n).unwrap());
    assert_eq!((view.running(), view.queued()), (2, 3));
    let refused = view.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), "handed back");
    assert!(join(view.spawn_blocking(|| ())).unwrap_err().is_rejected());
    assert_eq!(pool.metrics().rejected, 2);

    // The pool has threads left, and other views have places.
    assert_eq!(output(pool.spawn_blocking(|| "pool")), "pool");
    assert_eq!(output(pool.view(1, 0).spawn_blocking(|| "view")), "view");
    assert_eq!((view.running(), view.queued()), (2, 3));
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));

    gate.open();
    running.into_iter().for_each(output);
    assert_eq!(waiting.map(output), [1, 2, 3]);
    assert_empty(&view);
}

#[test]
fn the_limit_holds_while_tasks_come_and_go() {
    const LIMIT: usize = 2;
    let pool = of(6);
    let view = pool.view(LIMIT, 4);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in hunt(0.7) {
                    let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                    let task = move || {
                        let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                        most.fetch_max(now, Ordering::Relaxed);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                    };
                    match view.try_spawn_blocking(task) {
                        Ok(handle) if n % 4 == 0 => output(handle),
                        Ok(_) => {}
                        Err(error) => assert!(error.is_full()),
                    }
                    assert!(view.running() <= LIMIT);
                }
            });
        }
    });
    assert_empty(&view);
    assert_eq!(most.load(Ordering::Relaxed), LIMIT);
}

#[test]
fn tasks_of_a_view_start_in_the_order_in_which_they_were_accepted() {
    let pool = of(4);
    let view = pool.view(1, 100);
    let gate = Gate::new();
    let first = held_by(&gate, &view);
    let order = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = (0..100)
        .map(|n| {
            let order = Arc::clone(&order);
            view.spawn_blocking(move || order.lock().unwrap().push(n))
        })
        .collect();
    gate.open();
    output(first);
    handles.into_iter().for_each(output);
    assert!(order.lock().unwrap().iter().copied().eq(0..100));
}

#[test]
fn an_aborted_task_gives_its_place_back_at_once_and_waits_no_more() {
    let pool = of(1);
    let view = pool.view(1, 1);
    let gate = Gate::new();
    let running = held_by(&gate, &view);
    let drops = Drops::new();
    for aborted in 1..=1_000 {
        let value = drops.value();
        let handle = view.try_spawn_blocking(move || drop(value)).unwrap();
        handle.abort();
        assert!(join(handle).unwrap_err().is_cancelled());
        assert_eq!(drops.count(), aborted);
    }
    let last = view.try_spawn_blocking(|| "last").unwrap();
    assert_eq!(view.queued(), 1);
    assert!(view.try_spawn_blocking(|| ()).unwrap_err().is_full());
    gate.open();
    output(running);
    assert_eq!(output(last), "last");
    assert_empty(&view);
}

/// Who knows how a task ended finds its place free: that of the view, and that of the pool.
#[test]
fn a_task_of_a_view_that_has_ended_takes_up_no_place() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let view = pool.view(1, 0);
    for n in hunt(0.5) {
        let task = move || assert!(n % 3 != 2, "as it should");
        let handle = match n % 2 {
            0 => view.try_spawn_blocking(task),
            _ => pool.try_spawn_blocking(task),
        };
        let outcome = handle.expect("there is room").blocking_join();
        assert_eq!(outcome.is_err(), n % 3 == 2);
    }
}

#[test]
fn a_full_pool_has_no_room_for_a_view() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let view = pool.view(1, 1);
    let busy = Busy::keep(&pool, 1);
    let refused = view.try_spawn_blocking(|| "handed back").unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_inner()(), "handed back");
    assert_eq!((view.running(), view.queued()), (0, 0));
    busy.release();
    assert_eq!(output(view.spawn_blocking(|| "again")), "again");
}

#[test]
fn a_closed_pool_is_closed_for_its_views() {
    for busy in [false, true] {
        let pool = of(2);
        let view = pool.view(1, 1);
        let gate = Gate::new();
        let running = busy.then(|| held_by(&gate, &view));
        pool.shutdown();
        let refused = view.try_spawn_blocking(|| "handed back").unwrap_err();
        assert!(refused.is_closed(), "while busy: {busy}");
        assert_eq!(refused.into_inner()(), "handed back");
        assert!(join(view.spawn_blocking(|| ())).unwrap_err().is_closed());
        gate.open();
        running.into_iter().for_each(output);
        run(pool.terminated());
        assert_eq!(pool.metrics().rejected, 2);
        assert_empty(&view);
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn without_a_thread_the_closure_is_handed_back() {
    let pool = BlockingPool::builder()
        .thread_stack_size(1 << 47)
        .build()
        .unwrap();
    let view = pool.view(1, 1);
    for _ in 0..3 {
        let refused = view.try_spawn_blocking(|| "handed back").unwrap_err();
        assert!(refused.is_no_thread());
        assert_eq!(refused.into_inner()(), "handed back");
        assert_empty(&view);
    }
}

#[test]
fn a_shutdown_runs_what_a_view_has_accepted() {
    let pool = of(2);
    let view = pool.view(1, 10);
    let gate = Gate::new();
    let running = held_by(&gate, &view);
    let waiting = [1, 2, 3].map(|n| view.spawn_blocking(move || n));
    pool.shutdown();
    gate.open();
    output(running);
    assert_eq!(waiting.map(output), [1, 2, 3]);
    run(pool.terminated());
    assert_eq!(pool.metrics().completed, 4);
    assert_empty(&view);
}

#[test]
fn a_shutdown_now_drops_what_waits_in_a_view() {
    let pool = of(1);
    let view = pool.view(1, 10);
    let gate = Gate::new();
    let running = held_by(&gate, &view);
    let in_view = [(); 3].map(|()| view.spawn_blocking(|| ()));
    let in_pool = [(); 2].map(|()| pool.spawn_blocking(|| ()));
    let other_view = pool.view(1, 1);
    let in_other_view = [(); 2].map(|()| other_view.spawn_blocking(|| ()));
    // What the other view has given to the pool waits there.
    assert_eq!(pool.shutdown_now(), 2 + 1);
    gate.open();
    output(running);
    let dropped = in_view.into_iter().chain(in_pool).chain(in_other_view);
    for dropped in dropped {
        let error = join(dropped).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    run(pool.terminated());
    assert_eq!(pool.metrics().completed, 1);
    assert_eq!((view.running(), view.queued()), (0, 0));
}

#[test]
fn a_view_keeps_its_pool_open_and_its_tasks_do_not() {
    let (ended, ends) = mpsc::channel();
    let pool = BlockingPool::builder()
        .on_thread_stop(move || _ = ended.send(()))
        .build()
        .unwrap();
    let view = pool.view(1, 1);
    drop(pool);
    assert_eq!(output(view.clone().spawn_blocking(|| "open")), "open");
    assert!(ends.try_recv().is_err());
    let gate = Gate::new();
    let running = held_by(&gate, &view);
    let waiting = view.spawn_blocking(|| "runs");
    drop(view);
    gate.open();
    output(running);
    assert_eq!(output(waiting), "runs");
    receive(&ends);
}

/// Each task that the pool drops makes place for the one that it was dropped for.
#[test]
fn a_pool_that_drops_the_oldest_drops_one_of_a_view() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(1)
        .overflow(Overflow::DropOldest)
        .build()
        .unwrap();
    let view = pool.view(1, 10);
    let busy = Busy::keep(&pool, 1);
    let [first, second, third] = [1, 2, 3].map(|n| view.spawn_blocking(move || n));
    assert_eq!((view.running(), view.queued()), (1, 2));
    let newest = pool.spawn_blocking(|| "newest");
    assert!(join(first).unwrap_err().is_cancelled());
    assert_eq!((view.running(), view.queued()), (1, 1));
    busy.release();
    assert_eq!(output(newest), "newest");
    assert_eq!((output(second), output(third)), (2, 3));
    assert_empty(&view);
    assert_eq!(pool.metrics().cancelled, 1);
}

#[test]
fn a_panic_is_the_task_s_and_the_view_goes_on() {
    let pool = of(1);
    let view = pool.view(1, 10);
    let drops = Drops::new();
    let value = PanicsOnDrop(drops.value());
    let panics = view.spawn_blocking(|| panic!("as it should"));
    let dropping = view.spawn_blocking(move || drop(value));
    let goes_on = view.spawn_blocking(thread_name);
    let error: throng::JoinError = join::<()>(panics).unwrap_err();
    assert_eq!(message(error.into_panic()), "as it should");
    assert!(join(dropping).unwrap_err().is_panic());
    assert_eq!(output(goes_on), "throng-blocking-0");
    assert_eq!(drops.count(), 1);
    assert_empty(&view);
    assert_eq!(pool.metrics().panicked, 2);
}

#[test]
#[should_panic(expected = "room for at least one task")]
fn a_view_of_no_tasks_is_a_mistake() {
    of(1).view(0, 1);
}

/// Views with all that can happen to tasks: each comes to its end, and is counted once.
#[test]
fn many_views_of_a_pool_lose_nothing() {
    const VIEWS: usize = 4;
    for round in hunt(1.5) {
        let pool = of(3);
        let views: Vec<_> = (1..=VIEWS).map(|n| pool.view(n, 2 * n)).collect();
        let ran = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..3 {
                let (views, ran) = (&views, &ran);
                scope.spawn(move || {
                    let numbers = Numbers::new((round * 3 + n + 1) as u64);
                    ran.fetch_add(use_at_random(views, numbers), Ordering::Relaxed);
                });
            }
        });
        for view in &views {
            wait_until("the view is empty", || view.running() == 0);
            assert_eq!(view.queued(), 0);
        }
        let metrics = rest(&pool);
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(ended, metrics.submitted, "{metrics:?}");
        let ran = ran.into_inner() as u64;
        assert_eq!(metrics.completed + metrics.panicked, ran, "{metrics:?}");
    }
}

/// How many of the tasks ran. Some are aborted, some panic, and some wait for another of their view.
fn use_at_random(views: &[PoolView], mut numbers: Numbers) -> usize {
    let mut handles = Vec::new();
    for _ in 0..60 {
        let view = views[numbers.below(views.len() as u64) as usize].clone();
        let what = numbers.below(8);
        let inside = view.clone();
        let handle = view.spawn_blocking(move || match what {
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
