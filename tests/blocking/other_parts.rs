//! Other parts of the crate that run their work on a pool.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use throng::{BlockingPool, CompletionStream, SerialExecutor};

use crate::pools::{Busy, run, when_idle};
use crate::support::{TEST_TIMEOUT, join, thread_name};

fn called(name: &str) -> BlockingPool {
    BlockingPool::builder().name(name).build().unwrap()
}

#[test]
fn a_serial_executor_drains_on_it() {
    let pool = called("drain");
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(Vec::new())
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..500 {
                    drop(serial.post(move |state: &mut Vec<_>| {
                        state.push((n, thread_name()));
                    }));
                }
            });
        }
    });
    let state = run(serial.into_inner()).unwrap();
    assert_eq!(state.len(), 2_000);
    for (_, name) in state {
        assert!(name.starts_with("drain-"));
    }
    let metrics = when_idle(&pool);
    assert!(metrics.completed > 0);
    assert_eq!(metrics.completed, metrics.submitted);
}

#[test]
fn a_serial_executor_survives_a_pool_that_refuses_its_drain() {
    let pool = called("closed");
    pool.close();
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(0)
        .unwrap();
    let error = join(serial.post(|state| *state += 1)).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(pool.metrics().rejected, 1);
    join(serial.submit(|state| *state += 2)).unwrap();
    assert_eq!(run(serial.into_inner()).unwrap(), 2);
}

#[test]
fn a_completion_stream_runs_closures_on_it() {
    let pool = called("stream");
    let (jobs, mut done) = CompletionStream::builder().max_running(8).build().unwrap();
    let seen = run(async {
        let submitting = tokio::spawn({
            let pool = pool.clone();
            async move {
                for n in 0..100 {
                    let job = move || {
                        assert!(n % 10 != 3, "as it should");
                        (n * n, thread_name())
                    };
                    jobs.submit_blocking(&pool, n, job).await.unwrap();
                }
            }
        });
        let mut seen = BTreeSet::new();
        while let Some(completed) = done.next().await {
            let n = completed.tag;
            assert!(seen.insert(n), "{n} came twice");
            match completed.outcome {
                Ok((square, name)) => {
                    assert_eq!(square, n * n);
                    assert!(name.starts_with("stream-"));
                }
                Err(error) => assert!(error.is_panic() && n % 10 == 3),
            }
        }
        submitting.await.unwrap();
        seen
    });
    assert!(seen.into_iter().eq(0..100));
    let metrics = when_idle(&pool);
    assert_eq!((metrics.completed, metrics.panicked), (90, 10));
}

#[test]
fn a_full_or_closed_pool_rejects_the_jobs_of_a_stream() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let busy = Busy::keep(&pool, 1);
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    run(async {
        jobs.submit_blocking(&pool, "full", || ()).await.unwrap();
        let full = done.next().await.unwrap();
        assert_eq!(full.tag, "full");
        assert!(full.outcome.unwrap_err().is_rejected());
        pool.close();
        jobs.submit_blocking(&pool, "closed", || ()).await.unwrap();
        let closed = done.next().await.unwrap();
        assert_eq!(closed.tag, "closed");
        assert!(closed.outcome.unwrap_err().is_rejected());
    });
    assert_eq!(pool.metrics().rejected, 2);
    busy.release();
}

#[test]
fn dropping_a_stream_aborts_its_queued_closures() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let busy = Busy::keep(&pool, 1);
    let (jobs, done) = CompletionStream::builder().build().unwrap();
    let (captured, drops) = mpsc::channel::<()>();
    run(async {
        let job = move || captured.send(()).is_ok();
        jobs.submit_blocking(&pool, (), job).await.unwrap();
    });
    drop(done);
    // The thread is still busy, and the closure is dropped: no sender is left, and nothing was sent.
    assert_eq!(
        drops.recv_timeout(TEST_TIMEOUT),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    busy.release();
    assert_eq!(when_idle(&pool).cancelled, 1);
}
