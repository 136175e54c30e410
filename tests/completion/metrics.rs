//! The metrics of a stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use futures::stream::StreamExt;
use throng::CompletionStream;
use throng::completion::Metrics;

use crate::support::current_thread;

/// Reads some of the jobs, and drops the stream.
async fn read_some(jobs: u64, read: u64) {
    let mut builder = CompletionStream::builder();
    let (submitter, mut done) = builder.max_outstanding(10_000).build().unwrap();
    for n in 0..jobs {
        submitter.slot(n).await.unwrap().complete(n);
    }
    for read in 1..=read {
        assert!(done.try_next().is_some());
        let metrics = done.metrics();
        assert_eq!((metrics.read, metrics.in_flight), (read, jobs - read));
        assert_eq!((metrics.running, metrics.ready), (0, jobs - read));
    }
    let open = submitter.try_slot(jobs).unwrap();
    drop(done);
    let metrics = submitter.metrics();
    assert_eq!((metrics.submitted, metrics.read), (jobs + 1, read));
    assert_eq!((metrics.in_flight, metrics.running), (0, 1));
    drop(open);
    assert_eq!(submitter.metrics().running, 0);
}

/// Completions that were read are counted, whether jobs are released in batches, were spilled, or are never read.
#[test]
fn only_jobs_that_were_read_are_counted_as_read() {
    current_thread().block_on(async {
        read_some(100, 40).await;
        read_some(3_000, 2_040).await;
    });
}

#[test]
fn jobs_are_counted_by_their_outcome_when_they_are_read() {
    current_thread().block_on(async {
        let (jobs, done) = CompletionStream::<()>::builder().build().unwrap();
        jobs.submit((), async { panic!("on purpose") })
            .await
            .unwrap();
        jobs.submit((), async {}).await.unwrap();
        drop(jobs.try_slot(()).unwrap());
        let aborted = jobs.submit((), std::future::pending()).await.unwrap();
        assert!(jobs.abort(aborted));
        jobs.close();
        let ended = |it: Metrics| [it.completed, it.panicked, it.cancelled];
        assert_eq!(ended(done.metrics()), [0; 3]);
        let mut done = done.ordered();
        let mut expected = [0; 3];
        while let Some(job) = done.next().await {
            let outcome = match job.outcome {
                Ok(()) => 0,
                Err(error) if error.is_panic() => 1,
                Err(_) => 2,
            };
            expected[outcome] += 1;
            assert_eq!(ended(jobs.metrics()), expected);
        }
        assert_eq!((expected, jobs.metrics().read), ([1, 1, 2], 4));
    });
}

/// Each way to submit counts once, whether it fails at once or after a wait.
#[test]
fn refused_jobs_are_counted() {
    current_thread().block_on(async {
        let (jobs, _done) = CompletionStream::builder()
            .max_outstanding(1)
            .build()
            .unwrap();
        let slot = jobs.try_slot(()).unwrap();
        assert!(jobs.try_slot(()).is_err());
        assert!(jobs.try_submit((), async {}).is_err());
        assert_eq!(jobs.metrics().rejected, 2);

        let waiting = tokio::spawn({
            let jobs = jobs.clone();
            async move { jobs.slot(()).await.is_err() }
        });
        tokio::task::yield_now().await;
        jobs.close();
        assert!(waiting.await.unwrap());
        assert_eq!(jobs.metrics().rejected, 3);
        assert!(jobs.submit((), async {}).await.is_err());
        assert!(jobs.reserve().await.is_err());
        assert_eq!((jobs.metrics().rejected, jobs.metrics().submitted), (5, 1));
        drop(slot);
    });
}

/// A permit was reserved before the stream was closed.
#[test]
fn a_job_that_is_refused_with_a_permit_is_counted() {
    current_thread().block_on(async {
        let (jobs, _done) = CompletionStream::builder().build().unwrap();
        let permit = jobs.reserve().await.unwrap();
        jobs.close();
        assert!(permit.submit((), async {}).is_err());
        assert_eq!(jobs.metrics().rejected, 1);
    });
}

/// Another thread reads the numbers while jobs are read.
#[test]
fn no_number_of_ended_jobs_decreases() {
    const JOBS: u32 = if cfg!(miri) { 100 } else { 50_000 };
    let (jobs, mut done) = CompletionStream::<()>::builder().build().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            let ended = |it: Metrics| [it.read, it.completed, it.panicked, it.cancelled];
            let mut last = [0; 4];
            while !is_over.load(Ordering::Relaxed) {
                let now = ended(jobs.metrics());
                let decreased = last.iter().zip(now).any(|(last, now)| now < *last);
                assert!(!decreased, "{last:?} {now:?}");
                last = now;
            }
        });
        for _ in 0..JOBS {
            drop(jobs.try_slot(()).unwrap());
            done.try_next().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
}
