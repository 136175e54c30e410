//! `into_inner`, and the drop of the last handle.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;

use throng::SerialExecutor;

use crate::occupied::occupy;
use crate::support::{
    Drops, block_on, current_thread, join, poll, ready, rounds, wait_until, within,
};

// ===== into_inner =====

#[test]
fn into_inner_waits_for_what_was_accepted() {
    let executor = SerialExecutor::new(Vec::new());
    let busy = occupy(&executor);
    for n in 0..5 {
        drop(executor.submit(move |list| list.push(n)));
    }
    let mut inner = Box::pin(executor.clone().into_inner());
    assert!(poll(&mut inner).is_pending());
    assert!(executor.is_closed());
    busy.release();
    assert_eq!(block_on(inner).unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn into_inner_waits_for_a_drain_on_a_runtime() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0);
        for _ in 0..1_000 {
            drop(executor.post(|n| *n += 1));
        }
        assert_eq!(within(executor.into_inner()).await.unwrap(), 1_000);
    });
}

#[test]
fn into_inner_returns_a_poisoned_state_only_once_the_poison_is_cleared() {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| {
        *n = 3;
        panic!("on purpose");
    }));
    // The error is the last handle, so it keeps the state.
    let executor = block_on(executor.into_inner()).unwrap_err();
    assert!(executor.is_poisoned() && executor.is_closed());
    let shown = format!("{executor:?}");
    assert!(shown.contains("poisoned: true"), "{shown}");
    assert!(executor.clear_poison());
    assert_eq!(block_on(executor.into_inner()).unwrap(), 3);
}

#[test]
fn only_the_first_call_returns_the_state() {
    let executor = SerialExecutor::new(1);
    let second = executor.clone();
    assert_eq!(ready(Box::pin(executor.into_inner())).unwrap(), 1);
    let second = ready(Box::pin(second.into_inner())).unwrap_err();
    assert!(second.is_closed() && !second.is_poisoned());
    assert!(ready(second.submit(|_| ())).unwrap_err().is_closed());
}

#[test]
fn of_many_concurrent_calls_one_returns_the_state() {
    const THREADS: usize = 4;
    for _ in 0..rounds(500, 50_000) {
        let dropped = Drops::new();
        let executor = SerialExecutor::new((0, dropped.value()));
        let barrier = Barrier::new(THREADS);
        let (done, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let executor = executor.clone();
                scope.spawn(|| {
                    barrier.wait();
                    if join(executor.submit(|(n, _)| *n += 1)).is_ok() {
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    match block_on(executor.into_inner()) {
                        Ok((n, _)) => taken.fetch_add(1 + n, Ordering::SeqCst),
                        Err(executor) if !executor.is_poisoned() => 0,
                        Err(executor) => panic!("{executor:?}"),
                    };
                });
            }
        });
        assert_eq!(taken.into_inner(), 1 + done.into_inner());
        assert_eq!(dropped.count(), 1);
    }
}

#[test]
fn a_dropped_into_inner_loses_nothing() {
    let executor = SerialExecutor::new(5);
    let busy = occupy(&executor);
    {
        let mut inner = pin!(executor.clone().into_inner());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(inner.as_mut().poll(&mut cx).is_pending());
    }
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_closed());
    busy.release();
    assert_eq!(ready(Box::pin(executor.into_inner())).unwrap(), 5);
}

// ===== the last handle =====

#[test]
fn queued_jobs_run_after_the_last_handle_is_dropped() {
    let runtime = current_thread();
    let dropped = Drops::new();
    let executor = SerialExecutor::new((0, dropped.value()));
    let handles: Vec<_> = {
        let _in = runtime.enter();
        let job = |_| {
            executor.post(|(n, _)| {
                *n += 1;
                *n
            })
        };
        (0..200).map(job).collect()
    };
    drop(executor);
    assert_eq!(dropped.count(), 0);

    runtime.block_on(async {
        for (index, handle) in handles.into_iter().enumerate() {
            assert_eq!(within(handle).await.unwrap(), index + 1);
        }
        within(async {
            while dropped.count() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
    drop(runtime);
    assert_eq!(dropped.count(), 1);
}

#[test]
fn a_job_may_drop_the_last_handle() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let busy = occupy(&executor);
    let last = executor.clone();
    let handle = executor.submit(move |_| drop(last));
    drop(executor);
    busy.release();
    join(handle).unwrap();
    wait_until("the state is dropped", || dropped.count() == 1);
}

#[test]
fn an_idle_executor_drops_its_state_with_its_last_handle() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let clone = executor.clone();
    drop(executor);
    assert_eq!(dropped.count(), 0);
    drop(clone);
    assert_eq!(dropped.count(), 1);
}

#[test]
fn the_state_is_returned_while_its_poison_is_cleared() {
    for _ in 0..500 {
        let executor = SerialExecutor::new(());
        let panics = AssertUnwindSafe(|| executor.try_run(|()| resume_unwind(Box::new(()))));
        let panicked = catch_unwind(panics);
        assert!(panicked.map(|ran: Result<(), _>| ran.is_ok()).is_err());
        let other = executor.clone();
        let clearing = thread::spawn(move || other.clear_poison());
        // If it was poisoned at that moment, the executor is returned, and has the state.
        let returned = current_thread().block_on(within(executor.into_inner()));
        assert!(clearing.join().unwrap());
        let retry = |executor: SerialExecutor<()>| block_on(executor.into_inner());
        returned.or_else(retry).unwrap();
    }
}
