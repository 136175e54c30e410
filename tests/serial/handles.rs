//! Handles of jobs: dropped and aborted.

use std::sync::mpsc::channel;
use std::thread;

use throng::{JoinHandle, SerialExecutor};

use crate::occupied::occupy;
use crate::support::{Drops, Gate, block_on, join, ready, receive, rounds};

// ===== dropping =====

#[test]
fn an_output_is_dropped_once_whenever_the_handle_is_dropped() {
    let executor = SerialExecutor::new(());
    let drops = Drops::new();

    // Before the job runs.
    let busy = occupy(&executor);
    let output = drops.value();
    drop(executor.submit(move |()| output));
    assert_eq!(drops.count(), 0);
    busy.release();
    assert_eq!(drops.count(), 1);

    // While it runs.
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let busy = occupy(&executor);
    let (output, passed) = (drops.value(), gate.clone());
    let handle = executor.submit(move |()| {
        entered.send(()).unwrap();
        passed.pass();
        output
    });
    thread::scope(|scope| {
        let released = scope.spawn(|| busy.release());
        receive(&has_entered);
        drop(handle);
        assert_eq!(drops.count(), 1);
        gate.open();
        released.join().unwrap();
    });
    assert_eq!(drops.count(), 2);

    // After it.
    let busy = occupy(&executor);
    let output = drops.value();
    let handle = executor.submit(move |()| output);
    busy.release();
    assert_eq!(drops.count(), 2);
    drop(handle);
    assert_eq!(drops.count(), 3);

    // After it ran inline.
    let output = drops.value();
    drop(executor.submit(move |()| output));
    assert_eq!(drops.count(), 4);
}

#[test]
fn an_output_is_dropped_once_if_the_handle_is_dropped_at_the_same_time() {
    let executor = SerialExecutor::new(());
    let drops = Drops::new();
    let jobs = rounds(5_000, 500_000);
    let (send, receiver) = channel::<JoinHandle<_>>();
    thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        let occupier = scope.spawn(|| {
            for _ in 0..jobs {
                drop(executor.submit(|()| ()));
            }
        });
        for _ in 0..jobs {
            let output = drops.value();
            send.send(executor.submit(move |()| output)).unwrap();
        }
        drop(send);
        occupier.join().unwrap();
    });
    block_on(executor.into_inner()).unwrap();
    assert_eq!(drops.count(), jobs);
}

// ===== abort =====

#[test]
fn an_aborted_job_drops_its_captures_at_once_and_is_skipped() {
    let executor = SerialExecutor::new(Vec::new());
    let captured = Drops::new();
    let busy = occupy(&executor);
    let first = executor.submit(|list| list.push(1));
    let value = captured.value();
    let second = executor.submit(move |list| {
        drop(value);
        list.push(2);
    });
    let third = executor.submit(|list| list.push(3));

    second.abort();
    second.abort();
    assert_eq!(captured.count(), 1);
    assert!(second.is_finished());
    assert!(ready(second).unwrap_err().is_cancelled());

    busy.release();
    join(first).unwrap();
    join(third).unwrap();
    assert_eq!(block_on(executor.into_inner()).unwrap(), [1, 3]);
}

#[test]
fn a_job_that_runs_or_has_run_is_not_aborted() {
    let executor = SerialExecutor::new(0);
    let inline = executor.submit(|n| *n += 1);
    inline.abort();
    inline.abort_handle().abort();
    ready(inline).unwrap();

    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let busy = occupy(&executor);
    let passed = gate.clone();
    let running = executor.submit(move |n| {
        entered.send(()).unwrap();
        passed.pass();
        *n += 1;
    });
    thread::scope(|scope| {
        let released = scope.spawn(|| busy.release());
        receive(&has_entered);
        running.abort();
        assert!(!running.is_finished());
        gate.open();
        released.join().unwrap();
    });
    join(running).unwrap();
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 2);
}

#[test]
fn many_jobs_can_be_aborted_in_the_queue() {
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let jobs = rounds(10_000, 1_000_000);
    let busy = occupy(&executor);
    for _ in 0..jobs {
        let value = captured.value();
        executor.submit(move |_| drop(value)).abort();
    }
    assert_eq!(captured.count(), jobs);
    let last = executor.submit(|n| *n += 1);
    busy.release();
    join(last).unwrap();
}

#[test]
fn an_abort_races_with_the_run() {
    let executor = SerialExecutor::new(0_usize);
    let captured = Drops::new();
    let jobs = rounds(5_000, 500_000);
    let (send, receiver) = channel::<JoinHandle<()>>();
    let ran = thread::scope(|scope| {
        let aborter = scope.spawn(move || {
            let outcome = |handle: JoinHandle<()>| {
                handle.abort();
                match join(handle) {
                    Ok(()) => 1,
                    Err(error) if error.is_cancelled() => 0,
                    Err(error) => panic!("{error}"),
                }
            };
            receiver.into_iter().map(outcome).sum::<usize>()
        });
        for _ in 0..jobs {
            let value = captured.value();
            // Queued: the executor is busy with the outer job.
            let (again, send) = (executor.clone(), send.clone());
            drop(executor.submit(move |_| {
                let inner = again.submit(move |ran| {
                    *ran += 1;
                    drop(value);
                });
                send.send(inner).unwrap();
            }));
        }
        drop(send);
        aborter.join().unwrap()
    });
    assert_eq!(captured.count(), jobs);
    assert_eq!(block_on(executor.into_inner()).unwrap(), ran);
}

#[test]
fn the_id_of_a_job_is_that_of_its_handles_and_its_error() {
    let executor = SerialExecutor::new(());
    let busy = occupy(&executor);
    let first = executor.submit(|()| ());
    let second = executor.submit(|()| ());
    assert_ne!(first.id(), second.id());
    let (id, abort) = (first.id(), first.abort_handle());
    assert_eq!(abort.id(), id);
    abort.abort();
    assert_eq!(ready(first).unwrap_err().id(), id);
    busy.release();
    join(second).unwrap();
}
