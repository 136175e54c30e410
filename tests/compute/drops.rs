//! Panics in the drop of whatever a task brings along: the thread survives, and the counters are right.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::mpsc;
use std::thread;

use throng::ComputePool;

use crate::pools::{Busy, Count, bounded, free_places, output, rest, run};
use crate::support::{join, message, receive, wait_until};

/// Panics when it is dropped, and counts that.
struct Bomb(Count);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.add();
        // Not in a test that has failed.
        if !thread::panicking() {
            panic_any("a bomb");
        }
    }
}

/// A payload that panics when it is dropped, with a payload that does so too.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

/// A pool of one thread with so many places.
const PLACES: usize = 20;

/// Sees that the one thread is still there, and all places are free.
#[track_caller]
fn check(pool: &ComputePool) -> u64 {
    let ran = Count::default();
    pool.execute(ran.adder());
    wait_until("the thread runs tasks", || ran.get() == 1);
    assert_eq!(output(pool.spawn_keyed("key", || 1)), 1);
    let metrics = rest(pool);
    assert_eq!(free_places(pool), PLACES);
    metrics.panicked
}

#[test]
fn captures_of_a_closure_that_runs() {
    let (tell, told) = mpsc::channel();
    let mut builder = ComputePool::builder();
    builder.threads(1).max_outstanding(PLACES);
    builder.on_panic(move |payload| tell.send(payload).unwrap());
    let (pool, dropped) = (builder.build().unwrap(), Count::default());
    let task = || {
        let bomb = Bomb(dropped.clone());
        move || {
            let _bomb = &bomb;
        }
    };
    pool.execute(task());
    assert_eq!(message(receive(&told)), "a bomb");
    pool.execute_batch([task(), task()]);
    assert_eq!(message(receive(&told)), "a bomb");
    assert_eq!(message(receive(&told)), "a bomb");
    assert!(join(pool.spawn(task())).unwrap_err().is_panic());
    let keyed = pool.spawn_keyed("key", task());
    assert!(join(keyed).unwrap_err().is_panic());
    assert_eq!(dropped.get(), 5);
    assert!(check(&pool) >= 4);
    assert!(told.try_recv().is_err());
}

#[test]
fn captures_of_a_closure_that_is_aborted() {
    let (pool, dropped) = (bounded(1, PLACES), Count::default());
    let busy = Busy::keep(&pool, 1);
    let [one, two, three] = [(); 3].map(|()| Bomb(dropped.clone()));
    let handles = [
        pool.spawn(move || drop(one)),
        pool.spawn_keyed("key", move || drop(two)),
        pool.spawn_batch([move || drop(three)]).remove(0),
    ];
    for (n, handle) in handles.into_iter().enumerate() {
        // Contained: it is not this caller's fault.
        handle.abort();
        assert_eq!(dropped.get(), n + 1);
        assert!(join(handle).unwrap_err().is_cancelled());
    }
    busy.release();
    assert_eq!(check(&pool), 0);
}

#[test]
fn captures_of_closures_that_a_shutdown_drops() {
    for threads in [1, 2] {
        let (pool, dropped) = (bounded(threads, PLACES), Count::default());
        let busy = Busy::keep(&pool, threads);
        let task = || {
            let bomb = Bomb(dropped.clone());
            move || drop(bomb)
        };
        pool.execute(task());
        pool.execute_batch([task(), task()]);
        let mut handles = pool.spawn_batch([task(), task()]);
        handles.push(pool.spawn(task()));
        for key in 0..3 {
            handles.push(pool.spawn_keyed(&key, task()));
        }
        assert_eq!(pool.shutdown_now(), 9);
        assert_eq!(dropped.get(), 9);
        for handle in handles {
            assert!(join(handle).unwrap_err().is_cancelled());
        }
        busy.release();
        run(pool.closed());
        assert_eq!(pool.metrics().panicked, 0);
    }
}

/// The panic may reach the caller that submits, which still owns the closure. It must not reach the pool.
#[test]
fn captures_of_closures_that_are_refused() {
    let submit_all = |pool: &ComputePool, dropped: &Count| {
        let task = || {
            let bomb = Bomb(dropped.clone());
            move || drop(bomb)
        };
        let submit: [&dyn Fn(); 5] = [
            &|| pool.execute(task()),
            &|| drop(pool.spawn(task())),
            &|| drop(pool.spawn_keyed("key", task())),
            &|| pool.execute_batch([task()]),
            &|| drop(pool.spawn_batch([task()])),
        ];
        for submit in submit {
            let before = dropped.get();
            let _ = catch_unwind(AssertUnwindSafe(submit));
            assert_eq!(dropped.get(), before + 1);
        }
    };
    let (pool, dropped) = (bounded(1, PLACES), Count::default());
    let busy = Busy::keep(&pool, 1);
    let permits: Vec<_> = (1..PLACES).map(|_| run(pool.reserve()).unwrap()).collect();
    submit_all(&pool, &dropped);
    assert_eq!(pool.metrics().rejected, 5);
    drop(permits);
    busy.release();
    assert_eq!(check(&pool), 0);

    for pool in [pool, crate::pools::of(1)] {
        let before = pool.metrics().rejected;
        pool.close();
        submit_all(&pool, &dropped);
        assert_eq!(pool.metrics().rejected, before + 5);
        run(pool.closed());
    }
    assert_eq!(dropped.get(), 15);
}

/// The batch goes on to the pool although one of its closures, refused, panicked in its drop.
#[test]
fn captures_of_a_closure_of_a_batch_that_is_refused() {
    let (pool, dropped, ran) = (bounded(1, PLACES), Count::default(), Count::default());
    let busy = Busy::keep(&pool, 1);
    let mut bombs = vec![Bomb(dropped.clone())];
    let closures = (0..).map_while(|n| {
        let bomb = if n < PLACES - 1 {
            None
        } else {
            Some(bombs.pop()?)
        };
        let ran = ran.clone();
        Some(move || {
            drop(bomb);
            ran.add();
        })
    });
    let _ = catch_unwind(AssertUnwindSafe(|| pool.execute_batch(closures)));
    assert_eq!((dropped.get(), pool.metrics().rejected), (1, 1));
    busy.release();
    wait_until("those that were accepted have run", || {
        ran.get() == PLACES - 1
    });
    assert_eq!(check(&pool), 0);
}

#[test]
fn an_output_that_nobody_waits_for() {
    let (pool, dropped) = (bounded(1, PLACES), Count::default());
    let busy = Busy::keep(&pool, 1);
    let [one, two, three] = [(); 3].map(|()| Bomb(dropped.clone()));
    drop(pool.spawn(move || one));
    drop(pool.spawn_keyed("key", move || two));
    drop(pool.spawn_batch([move || three]));
    busy.release();
    // The tasks did return.
    assert_eq!(check(&pool), 0);
    assert_eq!(dropped.get(), 3);
}

#[test]
fn an_output_whose_handle_is_dropped_afterwards() {
    let (pool, dropped) = (bounded(1, PLACES), Count::default());
    let bomb = Bomb(dropped.clone());
    let handle = pool.spawn(move || bomb);
    wait_until("the task has ended", || handle.is_finished());
    // Contained here, as a drop should be.
    drop(handle);
    assert_eq!(dropped.get(), 1);
    assert_eq!(check(&pool), 0);
}

#[test]
fn a_payload_that_nobody_waits_for() {
    let (pool, dropped) = (bounded(1, PLACES), Count::default());
    let busy = Busy::keep(&pool, 1);
    let bombs = [(); 2].map(|()| Bomb(dropped.clone()));
    let [executed, spawned] = bombs;
    pool.execute(move || panic_any(executed));
    pool.execute(|| panic_any(Payload));
    drop(pool.spawn(move || panic_any(spawned)));
    drop(pool.spawn(|| panic_any(Payload)));
    drop(pool.spawn_keyed("key", || panic_any(Payload)));
    busy.release();
    assert!(check(&pool) >= 4);
    assert_eq!(dropped.get(), 2);
}

#[test]
fn a_payload_that_the_handler_drops() {
    let mut builder = ComputePool::builder();
    builder.threads(1).max_outstanding(PLACES).on_panic(drop);
    let (pool, dropped) = (builder.build().unwrap(), Count::default());
    let bomb = Bomb(dropped.clone());
    pool.execute(move || panic_any(bomb));
    pool.execute(|| panic_any(Payload));
    assert_eq!(check(&pool), 2);
    assert_eq!(dropped.get(), 1);
}
