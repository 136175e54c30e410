//! `shutdown` and `shutdown_now`: queued jobs are aborted, and the one that runs goes on.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use throng::SerialExecutor;

use crate::occupied::occupy;
use crate::support::{
    Drops, Gate, PanicsOnDrop, TEST_TIMEOUT, Wakes, block_on, current_thread, join, poll_with,
    ready, receive, rounds, within,
};

// ===== shutdown_now =====

#[test]
fn shutdown_now_aborts_what_is_queued_and_the_running_job_goes_on() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let busy = occupy(&executor);
    let queued: Vec<_> = (0..5)
        .map(|_| {
            let value = captured.value();
            executor.submit(move |_| drop(value))
        })
        .collect();
    queued[0].abort();
    assert_eq!(captured.count(), 1);

    // One was aborted before.
    assert_eq!(executor.shutdown_now(), 4);
    assert!(executor.is_closed());
    assert_eq!(captured.count(), 5);
    for handle in queued {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert_eq!(executor.shutdown_now(), 0);
    assert!(ready(executor.submit(|_| ())).unwrap_err().is_closed());

    let (wakes, waker) = Wakes::new();
    let mut closed = Box::pin(executor.closed());
    assert!(poll_with(&waker, &mut closed).is_pending());
    let woken = wakes.count();
    busy.release();
    assert!(wakes.count() > woken);
    ready(closed);
}

#[test]
fn shutdown_now_aborts_what_the_owner_has_taken_from_the_inbox() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let passed = gate.clone();
    let running = executor.submit(move |_| {
        entered.send(()).unwrap();
        passed.pass();
    });
    let mut queued = vec![executor.submit(|n| *n += 1), executor.submit(|n| *n += 1)];
    thread::scope(|scope| {
        let released = scope.spawn(|| busy.release());
        receive(&has_entered);
        queued.push(executor.submit(|n| *n += 1));
        assert_eq!(executor.metrics().queue_length, 3);
        assert_eq!(executor.shutdown_now(), 3);
        assert_eq!(executor.metrics().queue_length, 0);
        gate.open();
        released.join().unwrap();
    });
    join(running).unwrap();
    for handle in queued {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert_eq!(block_on(executor.into_inner()).unwrap(), 0);
}

#[test]
fn a_job_shuts_its_own_executor_down() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let again = executor.clone();
    let shuts_down = executor.submit(move |()| {
        let own = again.submit(|()| ());
        (again.shutdown_now(), own, again.submit(|()| ()))
    });
    let behind = executor.submit(|()| ());
    busy.release();
    let (aborted, own, refused) = join(shuts_down).unwrap();
    assert_eq!(aborted, 2);
    assert!(ready(own).unwrap_err().is_cancelled());
    assert!(ready(behind).unwrap_err().is_cancelled());
    assert!(ready(refused).unwrap_err().is_closed());
    ready(Box::pin(executor.closed()));
}

#[test]
fn a_panic_in_the_drop_of_aborted_captures_does_not_end_the_shutdown() {
    let executor = SerialExecutor::new(());
    let dropped = Drops::new();
    let busy = occupy(&executor);
    for _ in 0..3 {
        let bomb = PanicsOnDrop(dropped.value());
        drop(executor.submit(move |()| drop(bomb)));
    }
    assert_eq!(executor.shutdown_now(), 3);
    assert_eq!(dropped.count(), 3);
    busy.release();
    ready(Box::pin(executor.closed()));
}

#[test]
fn each_job_runs_or_is_aborted_or_refused_during_a_shutdown() {
    const THREADS: usize = 3;
    const JOBS: usize = 50;
    for _ in 0..rounds(60, 6_000) {
        let executor = SerialExecutor::new(0_usize);
        let barrier = Barrier::new(THREADS + 1);
        let (ends, aborted) = thread::scope(|scope| {
            let submitter = || {
                barrier.wait();
                let handles: Vec<_> = (0..JOBS).map(|_| executor.submit(|n| *n += 1)).collect();
                let ended = handles.into_iter().map(join);
                ended.collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(submitter)).collect();
            barrier.wait();
            let mut aborted = 0;
            while threads.iter().any(|thread| !thread.is_finished()) {
                aborted += executor.shutdown_now();
            }
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            (ends.flatten().collect::<Vec<_>>(), aborted)
        });
        let ran = ends.iter().filter(|end| end.is_ok()).count();
        let errors = || ends.iter().filter_map(|end| end.as_ref().err());
        let refused = errors().filter(|error| error.is_closed()).count();
        assert_eq!(
            errors().filter(|error| error.is_cancelled()).count(),
            aborted
        );
        assert_eq!(ran + aborted + refused, THREADS * JOBS);
        assert_eq!(executor.metrics().queue_length, 0);
        assert_eq!(executor.metrics().rejected, refused as u64);
        assert_eq!(block_on(executor.into_inner()).unwrap(), ran);
    }
}

// ===== shutdown =====

#[test]
fn shutdown_waits_for_what_was_accepted() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(0);
        for _ in 0..100 {
            drop(executor.post(|n| *n += 1));
        }
        assert_eq!(within(executor.shutdown(TEST_TIMEOUT)).await, 0);
        assert!(executor.is_closed());
        assert_eq!(executor.metrics().completed, 100);
    });
}

#[test]
fn shutdown_aborts_what_has_not_started_when_the_time_is_over() {
    current_thread().block_on(async {
        tokio::time::pause();
        let executor = SerialExecutor::new(());
        let busy = occupy(&executor);
        let queued = [(); 2].map(|()| executor.submit(|()| ()));
        assert_eq!(executor.shutdown(Duration::from_secs(60)).await, 2);
        for handle in queued {
            assert!(handle.await.unwrap_err().is_cancelled());
        }
        busy.release();
        within(executor.closed()).await;
        assert_eq!(executor.shutdown(Duration::ZERO).await, 0);
    });
}
