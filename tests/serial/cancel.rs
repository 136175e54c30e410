//! Cancelling what is queued, and waiting for the end.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use throng::SerialExecutor;

use super::occupy;
use super::support::{
    Drops, Gate, PanicsOnDrop, Wakes, block_on, join, panicking_waker, poll, poll_with, ready,
    receive, rounds, wait_until,
};

#[test]
fn what_is_queued_is_cancelled_at_once_and_what_runs_goes_on() {
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

    // The aborted one was cancelled before.
    assert_eq!(executor.cancel_queued(), 4);
    assert_eq!(captured.count(), 5);
    for handle in queued {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert_eq!(executor.cancel_queued(), 0);
    let after = executor.submit(|n| *n += 1);
    busy.release();
    join(after).unwrap();
}

#[test]
fn what_the_drain_has_taken_already_is_cancelled_as_well() {
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
        assert_eq!(executor.cancel_queued(), 3);
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
fn a_job_closes_its_executor_and_cancels_what_waits_behind_it() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let again = executor.clone();
    let cancels = executor.submit(move |()| {
        let own = again.submit(|()| ());
        again.close();
        (again.cancel_queued(), own, again.submit(|()| ()))
    });
    let behind = executor.submit(|()| ());
    busy.release();
    let (cancelled, own, refused) = join(cancels).unwrap();
    assert_eq!(cancelled, 2);
    assert!(ready(own).unwrap_err().is_cancelled());
    assert!(ready(behind).unwrap_err().is_cancelled());
    assert!(ready(refused).unwrap_err().is_closed());
    ready(Box::pin(executor.closed()));
}

#[test]
fn a_panic_in_the_drop_of_cancelled_captures_is_contained() {
    let executor = SerialExecutor::new(());
    let dropped = Drops::new();
    let busy = occupy(&executor);
    for _ in 0..3 {
        let bomb = PanicsOnDrop(dropped.value());
        drop(executor.submit(move |()| drop(bomb)));
    }
    assert_eq!(executor.cancel_queued(), 3);
    assert_eq!(dropped.count(), 3);
    busy.release();
    ready(executor.submit(|()| ())).unwrap();
}

#[test]
fn each_job_is_run_or_cancelled_while_somebody_cancels() {
    const THREADS: usize = 3;
    let executor = SerialExecutor::new(0_usize);
    let jobs = rounds(3_000, 300_000);
    let barrier = Barrier::new(THREADS + 1);
    let (ran, cancelled) = thread::scope(|scope| {
        let submitter = || {
            barrier.wait();
            let handles: Vec<_> = (0..jobs).map(|_| executor.submit(|n| *n += 1)).collect();
            let ended = handles.into_iter().map(join);
            ended.filter(Result::is_ok).count()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(submitter)).collect();
        barrier.wait();
        let mut cancelled = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            cancelled += executor.cancel_queued();
        }
        let ran = threads.into_iter().map(|thread| thread.join().unwrap());
        (ran.sum::<usize>(), cancelled)
    });
    assert_eq!(ran + cancelled, THREADS * jobs);
    assert_eq!(executor.metrics().queue_length, 0);
    assert_eq!(block_on(executor.into_inner()).unwrap(), ran);
}

#[test]
fn closed_waits_for_the_job_that_runs() {
    let executor = SerialExecutor::new(0);
    let busy = occupy(&executor);
    let queued = executor.submit(|n| *n += 1);
    let (wakes, waker) = Wakes::new();
    let mut closed = Box::pin(executor.closed());
    assert!(poll_with(&waker, &mut closed).is_pending());
    executor.close();
    assert_eq!(executor.cancel_queued(), 1);
    assert!(ready(queued).unwrap_err().is_cancelled());
    assert!(poll_with(&waker, &mut closed).is_pending());

    let woken = wakes.count();
    busy.release();
    assert!(wakes.count() > woken);
    ready(closed);
}

#[test]
fn closed_is_about_closed_executors() {
    let executor = SerialExecutor::new(());
    let mut closed = Box::pin(executor.closed());
    assert!(poll(&mut closed).is_pending());
    executor.close();
    ready(closed);
    let state = ready(Box::pin(executor.clone().into_inner()));
    state.unwrap();
    ready(Box::pin(executor.closed()));
}

#[test]
fn all_who_wait_for_the_end_are_told_whatever_their_wakers_do() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let (wakes, waker) = Wakes::new();
    let wakers = [waker.clone(), panicking_waker(), waker.clone(), waker];
    let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(executor.closed())).collect();
    for (waker, closed) in wakers.iter().zip(&mut waiting) {
        assert!(poll_with(waker, closed).is_pending());
    }
    executor.close();
    wait_until("the others are woken", || wakes.count() >= 3);
    for (waker, closed) in wakers.iter().zip(&mut waiting) {
        assert!(poll_with(waker, closed).is_pending());
    }
    busy.release();
    wait_until("the others are woken again", || wakes.count() >= 6);
    waiting.into_iter().for_each(ready);
}
