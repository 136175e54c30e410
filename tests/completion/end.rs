//! An open stream is pending, and a closed one ends when everything was read.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Instant;

use futures::stream::FusedStream;
use throng::BlockingPool;

use super::support::{
    TEST_TIMEOUT, Wakes, block_on, multi_thread, poll, poll_with, ready, rounds, wait_until,
};
use super::{bounded, poll_next, slot, take, unbounded};

#[test]
fn an_open_stream_with_nothing_to_yield_is_pending() {
    let (jobs, mut done) = unbounded();
    for _ in 0..100 {
        assert!(poll_next(Waker::noop(), &mut done).is_pending());
    }
    let promised = slot(&jobs, 0);
    assert!(poll_next(Waker::noop(), &mut done).is_pending());
    promised.complete(());
    take(&mut done);
    for _ in 0..100 {
        assert!(poll_next(Waker::noop(), &mut done).is_pending());
        assert!(!done.is_terminated());
    }
}

#[test]
fn a_closed_stream_ends_when_everything_was_read() {
    let (jobs, mut done) = unbounded();
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    jobs.close();
    jobs.close();
    assert!(poll_next(Waker::noop(), &mut done).is_pending());
    for slot in promised {
        assert!(!done.is_terminated());
        slot.complete(());
        take(&mut done);
    }
    for _ in 0..3 {
        assert!(ready(pin!(done.next())).is_none());
        assert!(done.is_terminated());
    }
    assert!(ready(pin!(jobs.slot(2))).is_err());
    assert!(ready(pin!(done.next())).is_none());
}

#[test]
fn a_stream_ends_when_the_last_submitter_was_dropped() {
    let (jobs, mut done) = unbounded::<()>();
    let clone = jobs.clone();
    drop(jobs);
    assert!(poll_next(Waker::noop(), &mut done).is_pending());
    let promised = slot(&clone, 0);
    drop(clone);
    assert!(poll_next(Waker::noop(), &mut done).is_pending());
    promised.complete(());
    take(&mut done);
    assert!(ready(pin!(done.next())).is_none());
}

#[test]
fn the_end_wakes_the_reader() {
    let (jobs, mut done) = unbounded::<()>();
    let (wakes, waker) = Wakes::new();
    assert!(poll_next(&waker, &mut done).is_pending());
    drop(jobs);
    assert_eq!(wakes.count(), 1);
    assert!(ready(pin!(done.next())).is_none());
}

#[test]
fn the_end_does_not_wait_for_waiting_submitters() {
    let (jobs, mut done) = bounded::<()>(1, 2);
    let promised = slot(&jobs, 0);
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll(&mut waits).is_pending());
    jobs.close();
    promised.complete(());
    take(&mut done);
    assert!(ready(pin!(done.next())).is_none());
    assert!(ready(waits.as_mut()).is_err());
}

#[tokio::test]
async fn a_closed_stream_returns_tag_and_job() {
    let (jobs, _done) = unbounded();
    jobs.close();
    let error = jobs.submit(1, async { "future" }).await.unwrap_err();
    let (tag, future) = error.into_inner();
    assert_eq!((tag, future.await), (1, "future"));

    let pool = BlockingPool::builder().build().unwrap();
    let error = jobs.submit_blocking(&pool, 2, || "closure").await;
    let (tag, closure) = error.unwrap_err().into_inner();
    assert_eq!((tag, closure()), (2, "closure"));

    let error = jobs.slot(3).await.unwrap_err();
    assert_eq!(error.into_inner(), 3);
    assert_eq!(jobs.in_flight(), 0);
}

#[test]
fn waiting_submitters_get_an_error_at_the_end() {
    for max_outstanding in [1, 2] {
        for dropped in [false, true] {
            let (jobs, done) = bounded::<()>(1, max_outstanding);
            let _promised = slot(&jobs, 0);
            let (wakes, waker) = Wakes::new();
            let mut waits = Box::pin(jobs.slot(7));
            assert!(poll_with(&waker, &mut waits).is_pending());
            if dropped {
                drop(done);
            } else {
                jobs.close();
            }
            assert_eq!(wakes.count(), 1);
            assert_eq!(ready(waits).unwrap_err().into_inner(), 7);
        }
    }
}

#[test]
fn jobs_accepted_during_a_close_are_yielded() {
    let runtime = multi_thread(2, "worker");
    for _ in 0..rounds(200, 20_000) {
        let (jobs, mut done) = bounded(4, 8);
        let accepted = AtomicUsize::new(0);
        let mut yielded = 0;
        thread::scope(|scope| {
            for _ in 0..3 {
                let jobs = jobs.clone();
                scope.spawn(|| {
                    let _in = runtime.enter();
                    let jobs = jobs;
                    let deadline = Instant::now() + TEST_TIMEOUT;
                    while block_on(jobs.submit(0, async {})).is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                        assert!(Instant::now() < deadline, "never closed");
                    }
                });
            }
            scope.spawn(|| {
                wait_until("a job was accepted", || accepted.load(Ordering::SeqCst) > 0);
                jobs.close();
            });
            while let Some(completed) = block_on(done.next()) {
                completed.outcome.unwrap();
                yielded += 1;
            }
        });
        assert_eq!(yielded, accepted.into_inner());
    }
}
