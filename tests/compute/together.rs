//! The pool as that on which other parts run their work.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use throng::{CompletionStream, ComputePool, SerialExecutor};

use crate::pools::{Busy, bounded, free_places, rest, run, settle};
use crate::support::{TEST_TIMEOUT, join, thread_name};

fn called(name: &str) -> ComputePool {
    ComputePool::builder().name(name).build().unwrap()
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
    assert!(rest(&pool).completed > 0);
}

#[test]
fn the_drains_of_a_serial_executor_take_places_and_give_them_back() {
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
                for n in 0..1_000 {
                    let job = move || {
                        assert!(n % 100 != 3, "as it should");
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
                Err(error) => assert!(error.is_panic() && n % 100 == 3),
            }
        }
        submitting.await.unwrap();
        seen
    });
    assert!(seen.into_iter().eq(0..1_000));
    let metrics = rest(&pool);
    assert_eq!((metrics.completed, metrics.panicked), (990, 10));
}

#[test]
fn a_full_or_closed_pool_rejects_the_jobs_of_a_stream() {
    let pool = bounded(1, 1);
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
    let pool = bounded(1, 2);
    let busy = Busy::keep(&pool, 1);
    let (jobs, done) = CompletionStream::builder().build().unwrap();
    let (captured, drops) = mpsc::channel::<()>();
    run(async {
        let job = move || captured.send(()).is_ok();
        jobs.submit_blocking(&pool, (), job).await.unwrap();
    });
    drop(done);
    // The thread is busy still, and the closure gone: no sender is left, and nothing was sent.
    assert_eq!(
        drops.recv_timeout(TEST_TIMEOUT),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    busy.release();
    assert_eq!(rest(&pool).cancelled, 1);
    assert_eq!(free_places(&pool), 2);
}

#[test]
fn shutting_the_pool_down_ends_what_a_stream_waits_for() {
    let pool = called("dropped");
    let cores = pool.metrics().lanes.len();
    let busy = Busy::keep(&pool, cores);
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    run(async {
        for n in 0..10 {
            jobs.submit_blocking(&pool, n, || ()).await.unwrap();
        }
        assert_eq!(pool.shutdown_now(), 10);
        drop(jobs);
        let mut items = 0;
        while let Some(completed) = done.next().await {
            assert!(completed.outcome.unwrap_err().is_cancelled());
            items += 1;
        }
        assert_eq!(items, 10);
    });
    busy.release();
    run(pool.closed());
}
