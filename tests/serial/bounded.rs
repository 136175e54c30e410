//! A bounded queue: which jobs are rejected, which callers wait, and when a permit is released.

use std::thread;

use throng::{JoinHandle, SerialExecutor};

use crate::occupied::occupy;
use crate::support::{
    Drops, Wakes, block_on, current_thread, join, poll, poll_with, ready, rounds,
};

fn bounded(jobs: usize) -> SerialExecutor<usize> {
    SerialExecutor::builder()
        .queue_capacity(jobs)
        .build(0)
        .unwrap()
}

fn add(executor: &SerialExecutor<usize>) -> JoinHandle<()> {
    executor.submit(|n| *n += 1)
}

#[test]
fn a_job_that_runs_at_once_needs_no_permit() {
    let executor = bounded(0);
    ready(add(&executor)).unwrap();
    ready(executor.try_submit(|n| *n += 1).unwrap()).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), 2);
}

#[test]
fn a_full_queue_rejects_and_returns_the_job() {
    let executor = bounded(2);
    let busy = occupy(&executor);
    let accepted = [add(&executor), executor.try_submit(|n| *n += 1).unwrap()];

    let error = executor.try_submit(|n| *n * 100).unwrap_err();
    assert!(error.is_full());
    assert_eq!(error.into_inner()(&mut 2), 200);

    let captured = Drops::new();
    let value = captured.value();
    let error = ready(executor.submit(move |_| drop(value))).unwrap_err();
    assert!(error.is_rejected(), "{error}");
    assert_eq!(captured.count(), 1);
    assert!(ready(executor.post(|_| ())).unwrap_err().is_rejected());
    assert_eq!(executor.metrics().queue_length, 2);

    busy.release();
    for handle in accepted {
        join(handle).unwrap();
    }
    let busy = occupy(&executor);
    let accepted = [add(&executor), add(&executor)];
    busy.release();
    for handle in accepted {
        join(handle).unwrap();
    }
}

#[test]
fn the_error_of_try_submit_tells_the_reason() {
    let executor = bounded(2);
    drop(executor.submit(|_| panic!("on purpose")));
    let error = executor.try_submit(|n| *n).unwrap_err();
    assert!(!error.is_full() && !error.is_closed());
    assert!(format!("{error:?}").contains("Poisoned"));
    assert!(error.to_string().contains("poisoned"));
    executor.close();
    assert!(executor.try_submit(|n| *n).unwrap_err().is_closed());
}

#[test]
fn a_job_may_always_submit_to_its_own_executor() {
    let executor = bounded(1);
    let other = SerialExecutor::new(());
    let again = executor.clone();
    let handles = ready(executor.submit(move |_| {
        let mut handles = vec![add(&again), add(&again), again.post(|n| *n += 1)];
        handles.push(again.try_submit(|n| *n += 1).unwrap());
        handles.push(
            ready(Box::pin(again.reserve()))
                .unwrap()
                .submit(|n| *n += 1),
        );
        // Also from inside a job of another executor.
        let inner = again.clone();
        handles.push(ready(other.submit(move |()| add(&inner))).unwrap());
        handles
    }));
    for handle in handles.unwrap() {
        join(handle).unwrap();
    }
    // All permits have been released, and none twice.
    let busy = occupy(&executor);
    drop(add(&executor));
    assert!(executor.try_submit(|_| ()).unwrap_err().is_full());
    busy.release();
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 7);
}

#[test]
fn a_permit_is_released_however_a_job_ends() {
    let executor = bounded(1);
    let full = || {
        executor
            .try_submit(|_| ())
            .is_err_and(|error| error.is_full())
    };

    let busy = occupy(&executor);
    let aborted = add(&executor);
    assert!(full());
    aborted.abort();
    drop(executor.submit(|_| panic!("on purpose")));
    assert!(full());
    busy.release();

    assert!(executor.clear_poison());
    let runtime = current_thread();
    {
        let _in = runtime.enter();
        drop(executor.post(|n| *n += 1));
    }
    assert!(full());
    drop(runtime);
    let busy = occupy(&executor);
    let last = add(&executor);
    busy.release();
    join(last).unwrap();
}

#[test]
fn a_poisoned_job_releases_its_permit() {
    let executor = bounded(2);
    let busy = occupy(&executor);
    drop(executor.submit(|_| panic!("on purpose")));
    let poisoned = add(&executor);
    busy.release();
    assert!(join(poisoned).unwrap_err().is_poisoned());
    assert!(executor.clear_poison());
    let busy = occupy(&executor);
    let handles = [add(&executor), add(&executor)];
    busy.release();
    for handle in handles {
        join(handle).unwrap();
    }
}

#[test]
fn a_waiting_reserve_is_woken_when_a_job_starts() {
    let executor = bounded(1);
    let busy = occupy(&executor);
    let queued = add(&executor);
    let (wakes, waker) = Wakes::new();
    let mut reserve = Box::pin(executor.reserve());
    assert!(poll_with(&waker, &mut reserve).is_pending());
    assert_eq!(wakes.count(), 0);
    busy.release();
    join(queued).unwrap();
    assert_eq!(wakes.count(), 1);
    let permit = ready(reserve).unwrap();
    ready(permit.submit(|n| *n += 1)).unwrap();
}

#[test]
fn a_permit_holds_room_until_it_is_used_or_dropped() {
    let executor = bounded(1);
    let permit = ready(Box::pin(executor.reserve())).unwrap();
    assert_eq!(format!("{permit:?}"), "Permit { .. }");
    let busy = occupy(&executor);
    assert!(executor.try_submit(|_| ()).unwrap_err().is_full());
    let queued = permit.submit(|n| *n += 1);
    assert!(executor.try_submit(|_| ()).unwrap_err().is_full());
    busy.release();
    join(queued).unwrap();

    drop(ready(Box::pin(executor.reserve())).unwrap());
    drop(ready(Box::pin(executor.reserve())).unwrap());
}

#[test]
fn a_dropped_reserve_passes_its_wake_up_on() {
    let executor = bounded(1);
    let busy = occupy(&executor);
    let queued = add(&executor);
    let mut dropped = Box::pin(executor.reserve());
    let (wakes, waker) = Wakes::new();
    let mut other = Box::pin(executor.reserve());
    assert!(poll(&mut dropped).is_pending());
    assert!(poll_with(&waker, &mut other).is_pending());
    busy.release();
    join(queued).unwrap();
    // The first one was woken.
    drop(dropped);
    assert_eq!(wakes.count(), 1);
    drop(ready(other).unwrap());
}

#[test]
fn a_reserve_that_is_polled_once_holds_no_permit() {
    let executor = bounded(1);
    let busy = occupy(&executor);
    let queued = add(&executor);
    let mut forgotten = Box::pin(executor.reserve());
    assert!(poll(&mut forgotten).is_pending());
    busy.release();
    join(queued).unwrap();
    let busy = occupy(&executor);
    let barges = executor.try_submit(|n| *n += 1).unwrap();
    busy.release();
    join(barges).unwrap();
}

#[test]
fn close_ends_waiting_reserves() {
    let executor = bounded(1);
    let busy = occupy(&executor);
    let queued = add(&executor);
    let (wakes, waker) = Wakes::new();
    let mut reserve = Box::pin(executor.reserve());
    assert!(poll_with(&waker, &mut reserve).is_pending());
    executor.close();
    assert!(wakes.count() > 0);
    assert!(ready(reserve).is_err());
    busy.release();
    join(queued).unwrap();
    let unbounded = SerialExecutor::new(());
    drop(ready(Box::pin(unbounded.reserve())).unwrap());
    unbounded.close();
    assert!(ready(Box::pin(unbounded.reserve())).is_err());
}

#[test]
fn a_permit_of_a_closed_executor_submits_nothing() {
    let executor = bounded(1);
    let permit = ready(Box::pin(executor.reserve())).unwrap();
    executor.close();
    assert!(ready(permit.submit(|_| ())).unwrap_err().is_closed());
}

#[test]
fn the_bound_holds_among_many_submitters() {
    const THREADS: usize = 16;
    const CAPACITY: usize = 3;
    let executor = bounded(CAPACITY);
    let jobs = rounds(500, 50_000);
    let accepted: usize = thread::scope(|scope| {
        let submitter = |index: usize| {
            let executor = &executor;
            move || {
                let mut accepted = 0;
                for _ in 0..jobs {
                    let handle = match index % 2 {
                        0 => executor.try_submit(|n| *n += 1).ok(),
                        _ => Some(block_on(executor.reserve()).unwrap().submit(|n| *n += 1)),
                    };
                    if let Some(handle) = handle {
                        join(handle).unwrap();
                        accepted += 1;
                    }
                }
                accepted
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|i| scope.spawn(submitter(i))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(executor.metrics().max_queue_length <= CAPACITY as u64);
    assert_eq!(executor.metrics().queue_length, 0);
    assert_eq!(block_on(executor.into_inner()).unwrap(), accepted);
}
