//! Queued jobs are aborted, and the executor stays open.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use crate::join::JoinHandle;
use crate::serial::SerialExecutor;
use crate::sync::thread;

const JOBS: usize = if cfg!(miri) { 20 } else { 3_000 };

#[test]
fn an_executor_whose_queue_was_aborted_goes_on() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let outer = executor.submit(move |_| {
        let aborted = again.submit(|n| *n += 1);
        assert_eq!(again.core.abort_queued(), 1);
        assert_eq!(again.core.abort_queued(), 0);
        (aborted, again.submit(|n| *n += 10))
    });
    let (aborted, next) = outer.blocking_join().unwrap();
    assert!(aborted.blocking_join().unwrap_err().is_cancelled());
    next.blocking_join().unwrap();
    assert_eq!(executor.try_run(|n| *n).unwrap(), 10);
}

#[test]
fn each_job_is_run_or_aborted_while_a_thread_aborts() {
    const THREADS: usize = 3;
    let executor = SerialExecutor::new(0_usize);
    let barrier = std::sync::Arc::new(Barrier::new(THREADS + 1));
    let (send, handles) = channel();
    for _ in 0..THREADS {
        let (executor, barrier, send) = (executor.clone(), barrier.clone(), send.clone());
        let submit = move || {
            barrier.wait();
            let handles: Vec<_> = (0..JOBS).map(|_| executor.submit(|n| *n += 1)).collect();
            send.send(handles).unwrap();
        };
        drop(thread::Builder::new().spawn(submit).unwrap());
    }
    barrier.wait();
    let (mut aborted, mut submitted) = (0, Vec::new());
    while submitted.len() < THREADS {
        aborted += executor.core.abort_queued();
        submitted.extend(handles.try_recv());
    }
    let ended = submitted
        .into_iter()
        .flatten()
        .map(JoinHandle::blocking_join);
    let ran = ended.filter(Result::is_ok).count();
    assert_eq!(ran + aborted, THREADS * JOBS);
    assert_eq!(executor.metrics().queue_length, 0);
    assert_eq!(executor.try_run(|n| *n).unwrap(), ran);
}
