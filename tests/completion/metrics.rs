//! The metrics of a stream.

use futures::stream::StreamExt;
use throng::CompletionStream;

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
