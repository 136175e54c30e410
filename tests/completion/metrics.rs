//! The metrics of a stream.

use futures::stream::StreamExt;
use throng::CompletionStream;

use crate::support::current_thread;

/// What was read is counted whether jobs are released in batches, were spilled, or are never read.
#[test]
fn only_jobs_that_were_read_are_counted_as_read() {
    current_thread().block_on(async {
        let mut builder = CompletionStream::builder();
        let (jobs, mut done) = builder.max_outstanding(10_000).build().unwrap();
        for n in 0..3_000 {
            jobs.slot(n).await.unwrap().complete(n);
        }
        for read in 1..=2_040 {
            assert!(done.try_next().is_some());
            let metrics = done.metrics();
            assert_eq!((metrics.read, metrics.in_flight), (read, 3_000 - read));
            assert_eq!((metrics.running, metrics.ready), (0, 3_000 - read));
        }
        let open = jobs.try_slot(3_000).unwrap();
        drop(done);
        let metrics = jobs.metrics();
        assert_eq!((metrics.submitted, metrics.read), (3_001, 2_040));
        assert_eq!((metrics.in_flight, metrics.running), (0, 1));
        drop(open);
        assert_eq!(jobs.metrics().running, 0);
    });
}

#[test]
fn jobs_without_an_output_are_counted_when_they_are_read() {
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
        assert_eq!(done.metrics().failed, 0);
        let mut done = done.ordered();
        let mut failed = 0;
        while let Some(job) = done.next().await {
            failed += u64::from(job.outcome.is_err());
            assert_eq!(jobs.metrics().failed, failed);
        }
        assert_eq!((failed, jobs.metrics().read), (3, 4));
    });
}
