//! The bound: which tasks are refused, and when a permit is free again.

use std::sync::Arc;
use std::thread;

use throng::{ComputePool, JoinHandle, SerialExecutor};

use crate::pools::{Busy, Count, bounded, free_places, output, rest, run, settle};
use crate::support::{Gate, Numbers, join, rounds, wait_until};

#[test]
fn a_full_pool_refuses_in_every_way() {
    let pool = bounded(2, 4);
    let busy = Busy::keep(&pool, 2);
    let ran = Count::default();
    pool.execute_batch((0..2).map(|_| ran.adder()));

    let refused = Count::default();
    assert!(pool.try_execute(refused.adder()).unwrap_err().is_full());
    pool.execute(refused.adder());
    pool.execute_batch((0..3).map(|_| refused.adder()));
    let mut handles = pool.spawn_batch((0..3).map(|_| refused.adder()));
    handles.push(pool.spawn(refused.adder()));
    handles.push(pool.spawn_keyed("key", refused.adder()));
    for handle in handles {
        assert!(handle.is_finished());
        let error = join(handle).unwrap_err();
        assert!(error.is_rejected() && !error.is_closed() && !error.is_cancelled());
    }
    assert_eq!(pool.metrics().rejected, 10);
    busy.release();
    wait_until("what was accepted has run", || ran.get() == 2);
    rest(&pool);
    assert_eq!(refused.get(), 0);
    assert_eq!(free_places(&pool), 4);
}

#[test]
fn of_a_batch_as_many_are_accepted_as_there_are_places() {
    let pool = bounded(1, 11);
    let busy = Busy::keep(&pool, 1);
    let ran = Count::default();
    pool.execute_batch((0..4).map(|_| ran.adder()));
    let handles = pool.spawn_batch((0..10).map(|n| move || n));
    assert_eq!(pool.metrics().rejected, 4);
    busy.release();
    for (n, handle) in handles.into_iter().enumerate() {
        match join(handle) {
            Ok(output) => assert!(output == n && n < 6),
            Err(error) => assert!(error.is_rejected() && n >= 6),
        }
    }
    assert_eq!(ran.get(), 4);
}

#[test]
fn a_pool_without_room_accepts_nothing() {
    let pool = bounded(1, 0);
    assert!(pool.try_execute(|| ()).unwrap_err().is_full());
    assert!(
        join(pool.spawn_keyed("key", || ()))
            .unwrap_err()
            .is_rejected()
    );
    assert_eq!(free_places(&pool), 0);
    pool.close();
    run(pool.closed());
}

/// The permit is free before the handle is ready, so a caller that waits for each task is never refused.
#[test]
fn a_caller_that_waits_for_each_task_needs_one_permit() {
    let pool = bounded(2, 1);
    for n in 0..10_000 {
        assert_eq!(output(pool.spawn(move || n)), n);
    }
    for n in 0..3_000 {
        assert_eq!(output(pool.spawn_keyed(&(n % 5), move || n)), n);
        assert_eq!(output(pool.spawn_batch([move || n]).remove(0)), n);
    }
    run(async {
        for n in 0..3_000 {
            assert_eq!(pool.spawn(move || n).await.unwrap(), n);
            let error = pool.spawn(panic_quietly).await.unwrap_err();
            assert!(error.is_panic());
        }
    });
    assert_eq!(pool.metrics().rejected, 0);
}

/// Panics without the hook, whose text would be long.
fn panic_quietly() {
    std::panic::resume_unwind(Box::new("as it should"));
}

/// As it is with a waker that submits the next one.
#[test]
fn a_task_that_is_awaited_has_left_its_place_when_the_waker_is_told() {
    let pool = bounded(2, 2);
    run(async {
        let users = [(); 2].map(|()| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for n in 0..3_000 {
                    assert_eq!(pool.spawn(move || n).await.unwrap(), n);
                }
            })
        });
        for user in users {
            user.await.unwrap();
        }
    });
    assert_eq!(pool.metrics().rejected, 0);
}

#[test]
fn the_place_of_an_executed_closure_comes_back_also_when_it_panics() {
    let pool = bounded(1, 1);
    for n in 0..2_000 {
        let task = move || {
            if n % 3 == 0 {
                panic_quietly();
            }
        };
        run(pool.reserve()).unwrap().execute(task).unwrap();
    }
    rest(&pool);
    assert_eq!(free_places(&pool), 1);
}

#[test]
fn the_place_of_an_aborted_task_comes_back() {
    let pool = bounded(1, 10);
    for _ in 0..200 {
        let busy = Busy::keep(&pool, 1);
        let handles = pool.spawn_batch((0..5).map(|_| || ()));
        let keyed: Vec<_> = (0..4)
            .map(|n: usize| pool.spawn_keyed(&(n % 2), || ()))
            .collect();
        assert_eq!(free_places(&pool), 0);
        handles.iter().chain(&keyed).for_each(JoinHandle::abort);
        busy.release();
        settle(&pool, |_| free_places(&pool) == 10);
    }
    assert_eq!(pool.metrics().rejected, 0);
}

/// A caller that learns that its task was dropped finds a pool without tasks.
#[test]
fn places_are_not_lost_by_a_shutdown() {
    for _ in 0..50 {
        let pool = bounded(2, 100);
        let busy = Busy::keep(&pool, 2);
        let handles = pool.spawn_batch((0..50).map(|_| || ()));
        let keyed = (0..48).map(|n: usize| pool.spawn_keyed(&(n % 7), || ()));
        let keyed: Vec<_> = keyed.collect();
        assert_eq!(free_places(&pool), 0);
        assert_eq!(pool.shutdown_now(), 98);
        for handle in handles.into_iter().chain(keyed) {
            assert!(join(handle).unwrap_err().is_cancelled());
        }
        busy.release();
        run(pool.closed());
        assert_eq!(pool.metrics().rejected, 0);
    }
}

/// Submits one task of some kind. Its permit must be released however the task ends.
fn submit(pool: &ComputePool, serial: &SerialExecutor<u32>, numbers: &mut Numbers) {
    let fails = numbers.below(4) == 0;
    let task = move || {
        if fails {
            panic_quietly();
        }
    };
    let handle = match numbers.below(8) {
        0 => return pool.execute(task),
        1 => return pool.execute_batch([task; 5]),
        2 => return drop(pool.try_execute(task)),
        3 => return drop(futures::FutureExt::now_or_never(pool.reserve())),
        4 => return drop(serial.post(|n| *n += 1)),
        5 => pool.spawn_keyed(&numbers.below(10), task),
        6 => pool.spawn_batch([task; 3]).remove(1),
        _ => pool.spawn(task),
    };
    match numbers.below(3) {
        0 => handle.abort(),
        1 => drop(handle),
        _ => drop(join(handle)),
    }
}

#[test]
fn the_number_of_places_stays_exact() {
    const PLACES: usize = 17;
    let pool = bounded(3, PLACES);
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(0)
        .unwrap();
    for round in 0..3 {
        thread::scope(|scope| {
            for submitter in 0..4 {
                let (pool, serial) = (&pool, &serial);
                scope.spawn(move || {
                    let mut numbers = Numbers::new(10 * round + submitter + 1);
                    for _ in 0..rounds(2_500, 50_000) {
                        submit(pool, serial, &mut numbers);
                    }
                });
            }
        });
        rest(&pool);
        // Filled up again, with tasks, exactly.
        let gate = Gate::new();
        let ran = Arc::new(Count::default());
        let task = || {
            let (gate, ran) = (gate.clone(), Arc::clone(&ran));
            move || {
                gate.pass();
                ran.add();
            }
        };
        for n in 0..PLACES {
            assert!(pool.try_execute(task()).is_ok(), "only {n} places");
        }
        assert!(pool.try_execute(task()).unwrap_err().is_full());
        gate.open();
        wait_until("all have run", || ran.get() == PLACES);
        rest(&pool);
        assert_eq!(free_places(&pool), PLACES);
    }
}

#[test]
fn the_drains_of_a_serial_executor_take_permits_and_release_them() {
    let pool = bounded(2, 3);
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(0)
        .unwrap();
    for n in 1..=500 {
        assert_eq!(join(serial.post(move |state| *state = n)).ok(), Some(()));
        if n % 7 == 0 {
            let error = join(serial.post(move |_| {
                assert!(n == 0, "as it should");
            }));
            assert!(error.unwrap_err().is_panic());
            assert!(serial.clear_poison());
        }
    }
    settle(&pool, |_| free_places(&pool) == 3);
    assert_eq!(run(serial.into_inner()).unwrap(), 500);
}
