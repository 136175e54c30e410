//! Panics in jobs, drops and wakers.

use std::panic::{catch_unwind, panic_any};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use throng::SerialExecutor;
use tokio::runtime::Handle;

use crate::capture::nest;
use crate::occupied::occupy;
use crate::support::{
    Drops, PanicsOnDrop, TEST_TIMEOUT, block_on, current_thread, join, message, panicking_waker,
    poll_with, ready, rounds,
};

#[test]
fn the_panic_of_an_inline_job_is_an_error() {
    let executor = SerialExecutor::new(());
    let error = ready(executor.submit(|()| panic!("on purpose"))).unwrap_err();
    assert!(error.is_panic());
    assert_eq!(message(error.into_panic()), "on purpose");
    assert_eq!(executor.metrics().panicked, 1);
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn the_panic_of_a_queued_job_does_not_reach_the_thread_that_runs_it() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let handle = executor.submit(|()| panic!("on purpose"));
    busy.release();
    assert_eq!(
        message(join(handle).unwrap_err().into_panic()),
        "on purpose"
    );
}

#[test]
fn a_panic_poisons_until_the_poison_is_cleared() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let before = executor.submit(|n| *n += 1);
    let panics = executor.submit(|n| {
        *n += 10;
        panic!("on purpose");
    });
    let captured = Drops::new();
    let queued: Vec<_> = (0..10)
        .map(|_| {
            let value = captured.value();
            executor.submit(move |_| drop(value))
        })
        .collect();
    busy.release();

    join(before).unwrap();
    assert!(join(panics).unwrap_err().is_panic());
    for handle in queued {
        assert!(join(handle).unwrap_err().is_poisoned());
    }
    assert_eq!(captured.count(), 10);
    assert!(executor.is_poisoned());
    assert!(ready(executor.submit(|n| *n)).unwrap_err().is_poisoned());
    assert_eq!(executor.metrics().panicked, 1);

    assert!(executor.clear_poison());
    assert!(!executor.clear_poison());
    assert!(!executor.is_poisoned());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 11);
}

#[test]
fn a_caller_that_learns_of_a_panic_finds_the_state_poisoned() {
    for _ in 0..rounds(200, 20_000) {
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        let handle = executor.submit(|()| panic_any(()));
        thread::scope(|scope| {
            scope.spawn(|| busy.release());
            // Without the sleeps of `wait_until`.
            let deadline = Instant::now() + TEST_TIMEOUT;
            while !handle.is_finished() && Instant::now() < deadline {
                std::hint::spin_loop();
            }
            assert!(handle.is_finished());
            assert!(executor.is_poisoned());
            assert!(ready(executor.submit(|()| ())).unwrap_err().is_poisoned());
        });
    }
}

#[test]
fn with_continue_later_jobs_run_on_what_the_panic_left() {
    let executor = SerialExecutor::builder()
        .poison_on_panic(false)
        .build(0)
        .unwrap();
    let busy = occupy(&executor);
    let panics = executor.submit(|n| {
        *n = 5;
        panic!("on purpose");
    });
    let after = executor.submit(|n| *n);
    busy.release();
    assert!(join(panics).unwrap_err().is_panic());
    assert_eq!(join(after).unwrap(), 5);
    assert!(!executor.is_poisoned());
    assert!(!executor.clear_poison());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 5);
}

#[test]
fn a_panic_in_the_drop_of_captures_is_that_of_the_job() {
    let executor = SerialExecutor::new(0);
    let dropped = Drops::new();
    let bomb = PanicsOnDrop(dropped.value());
    let handle = executor.submit(move |n| {
        let _bomb = &bomb;
        *n += 1;
    });
    assert!(ready(handle).unwrap_err().is_panic());
    assert_eq!(dropped.count(), 1);
    assert!(executor.clear_poison());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn deferred_jobs_run_although_the_outermost_job_panics() {
    for panics in [false, true] {
        let executor = SerialExecutor::new(());
        let (ran, has_run) = channel();
        let deep = move || {
            ran.send(()).unwrap();
            assert!(!panics, "on purpose, while the other one goes on");
        };
        let payload = catch_unwind(|| {
            executor.try_run(|()| {
                nest(20, Box::new(deep));
                panic!("on purpose");
            })
        });
        assert_eq!(message(payload.unwrap_err()), "on purpose");
        has_run.try_recv().unwrap();
        assert!(executor.clear_poison());
        executor.try_run(|()| ()).unwrap();
    }
}

#[test]
fn a_job_that_blocks_on_the_runtime_that_runs_it_panics() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(());
    runtime.block_on(async {
        let blocks = executor.submit(|()| Handle::current().block_on(async {}));
        assert!(blocks.await.unwrap_err().is_panic());
        assert!(executor.clear_poison());
        executor.submit(|()| ()).await.unwrap();
    });
}

#[test]
fn a_panic_in_the_waker_of_into_inner_is_contained() {
    let executor = SerialExecutor::new(7);
    let busy = occupy(&executor);
    let waker = panicking_waker();
    let mut wanted = Box::pin(executor.clone().into_inner());
    assert!(poll_with(&waker, &mut wanted).is_pending());

    // The `submit` of the holder returns normally.
    busy.release();
    assert_eq!(ready(wanted).unwrap(), 7);

    let executor = SerialExecutor::new(7);
    let busy = occupy(&executor);
    let mut wanted = Box::pin(executor.clone().into_inner());
    assert!(poll_with(&waker, &mut wanted).is_pending());
    executor.close();
    busy.release();
    assert_eq!(ready(wanted).unwrap(), 7);
}
