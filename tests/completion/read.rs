//! Reading without waiting, in batches, and with a timeout.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use throng::completion::Completed;
use throng::{CompletionStream, ComputePool};
use tokio::time::timeout;

use super::support::{
    TEST_TIMEOUT, Wakes, block_on, current_thread, poll, poll_with, ready, within,
};
use super::{bounded, completed, drain, output, poll_next, slot, take, unbounded};

#[test]
fn try_next_takes_what_has_arrived() {
    let (jobs, mut done) = unbounded();
    assert!(done.try_next().is_none());
    slot(&jobs, 0).complete(10);
    slot(&jobs, 1).complete(11);
    let next = done.try_next().unwrap();
    assert_eq!((next.tag, output(next)), (0, 10));
    assert_eq!(jobs.in_flight(), 1);
    assert_eq!(take(&mut done).tag, 1);
    assert!(done.try_next().is_none());
    jobs.close();
    assert!(done.try_next().is_none());
    assert!(ready(pin!(done.next())).is_none());
}

/// Reads what has arrived, and returns its number.
type Read = fn(&mut CompletionStream<(), usize>) -> usize;

#[test]
fn try_next_keeps_the_readers_waker() {
    let (jobs, mut done) = unbounded();
    let read: [Read; 2] = [
        |done| done.try_next().into_iter().count(),
        |done| drain(done).count(),
    ];
    for read in read {
        // Nothing has arrived, and the reader waits.
        let (wakes, waker) = Wakes::new();
        assert!(poll_next(&waker, &mut done).is_pending());
        assert_eq!(read(&mut done), 0);
        slot(&jobs, 0).complete(());
        assert_eq!(wakes.count(), 1);
        // Something has arrived, and the reader was woken, and has not waited again.
        assert_eq!(read(&mut done), 1);
        assert!(poll_next(&waker, &mut done).is_pending());
        slot(&jobs, 1).complete(());
        assert_eq!(wakes.count(), 2);
        assert_eq!(read(&mut done), 1);
        // A waker that was woken is not woken again before it is registered again.
        slot(&jobs, 2).complete(());
        assert_eq!(read(&mut done), 1);
    }
}

#[test]
fn try_next_ignores_the_budget() {
    current_thread().block_on(async {
        let mut done = completed(0..5_000);
        for tag in 0..1_000 {
            assert_eq!(done.try_next().unwrap().tag, tag);
        }
        assert_eq!(drain(&mut done).count(), 4_000);
    });
}

#[test]
fn a_batch_contains_what_has_arrived() {
    let (jobs, mut done) = unbounded();
    let (wakes, waker) = Wakes::new();
    let mut batch = Box::pin(done.next_batch(3));
    assert!(poll_with(&waker, &mut batch).is_pending());
    for tag in 0..5 {
        slot(&jobs, tag).complete(());
    }
    assert_eq!(wakes.count(), 1);
    let tags = |batch: Vec<Completed<(), usize>>| batch.into_iter().map(|it| it.tag);
    assert!(tags(ready(batch)).eq(0..3));
    assert!(tags(ready(pin!(done.next_batch(3)))).eq(3..5));
    assert!(poll(&mut pin!(done.next_batch(1))).is_pending());
    jobs.close();
    assert!(ready(pin!(done.next_batch(1))).is_empty());
}

/// Each time that the reader releases jobs, others are submitted and complete at once. Without an end of its own, the
/// batch would contain all of them.
#[test]
fn a_batch_ends_while_jobs_go_on_to_complete() {
    const OUTSTANDING: usize = 64;
    type Submitting = Pin<Box<dyn Future<Output = ()> + Send>>;
    struct Submits(Mutex<Submitting>);
    impl Wake for Submits {
        fn wake(self: Arc<Self>) {
            let waker = Waker::from(Arc::clone(&self));
            let mut submitting = self.0.lock().unwrap();
            assert!(poll_with(&waker, &mut *submitting).is_pending());
        }
    }

    let (jobs, mut done) = bounded(OUTSTANDING, OUTSTANDING);
    let submitting = Box::pin(async move {
        loop {
            jobs.slot(0).await.expect("it is open").complete(());
        }
    });
    Waker::from(Arc::new(Submits(Mutex::new(submitting)))).wake();
    let batch = ready(pin!(done.next_batch(100 * OUTSTANDING)));
    // What had arrived when it began, and what had arrived when it had read that.
    assert_eq!(batch.len(), 2 * OUTSTANDING);
}

#[test]
fn a_dropped_next_batch_loses_nothing() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let mut batch = Box::pin(done.next_batch(2));
    assert!(poll(&mut batch).is_pending());
    promised.complete(());
    slot(&jobs, 1).complete(());
    drop(batch);
    assert_eq!([take(&mut done).tag, take(&mut done).tag], [0, 1]);
}

#[test]
#[should_panic(expected = "let `max` be 1 or more")]
fn a_batch_of_zero_panics() {
    let (_jobs, mut done) = unbounded::<()>();
    drop(poll(&mut pin!(done.next_batch(0))));
}

#[test]
fn batches_yield_to_other_tasks() {
    current_thread().block_on(async {
        let (jobs, mut done) = unbounded();
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        tokio::spawn(async move { runs.store(true, Ordering::SeqCst) });
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        while !ran.load(Ordering::SeqCst) {
            assert!(
                std::time::Instant::now() < deadline,
                "the loop never yielded"
            );
            slot(&jobs, 0).complete(());
            assert_eq!(done.next_batch(8).await.len(), 1);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_next_loses_nothing() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let second = Duration::from_secs(1);
    assert!(timeout(second, done.next()).await.is_err());

    // The time passes, and then the completion arrives, before the next poll.
    let mut waits = Box::pin(timeout(second, done.next()));
    assert!(poll(&mut waits).is_pending());
    tokio::time::advance(2 * second).await;
    promised.complete(());
    let completed = ready(waits).unwrap().unwrap();
    assert_eq!(completed.tag, 0);

    // The completion arrives after the wait has ended.
    let promised = slot(&jobs, 1);
    let mut waits = Box::pin(timeout(second, done.next()));
    assert!(poll(&mut waits).is_pending());
    promised.complete(());
    drop(waits);
    assert_eq!(take(&mut done).tag, 1);

    // A completion that has arrived needs no time.
    slot(&jobs, 2).complete(());
    let completed = timeout(Duration::ZERO, done.next()).await.unwrap().unwrap();
    assert_eq!(completed.tag, 2);
    jobs.close();
    assert!(
        within(timeout(second, done.next()))
            .await
            .unwrap()
            .is_none()
    );
    assert!(poll_next(Waker::noop(), &mut done).is_ready());
}

/// The jobs end on another thread.
#[test]
fn a_job_that_was_read_is_counted_in_the_metrics() {
    let pool = ComputePool::builder().threads(1).build().unwrap();
    let (jobs, mut done) = CompletionStream::<()>::builder().build().unwrap();
    let late = (0..2_000).filter(|_| {
        block_on(jobs.submit_blocking(&pool, (), || ())).unwrap();
        block_on(done.next()).unwrap().outcome.unwrap();
        (jobs.in_flight(), jobs.ready()) != (0, 0)
    });
    assert_eq!(late.count(), 0);
}
