//! `until_idle`: streams that end when no job is outstanding.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures::stream::{FusedStream, Stream, StreamExt};
use throng::completion::UntilIdle;

use super::support::{Drops, Wakes, current_thread, poll_with, ready, within};
use super::{bounded, slot, take, unbounded};

fn is_pending<T: Send + 'static>(stream: &mut UntilIdle<T, usize>) -> bool {
    let polled = Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Pending)
}

#[test]
fn it_ends_when_idle_and_the_stream_remains_usable() {
    let (jobs, done) = unbounded();
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    let mut phase = done.until_idle();
    for slot in promised {
        assert!(is_pending(&mut phase));
        assert!(!phase.is_terminated());
        slot.complete(());
        assert!(ready(pin!(phase.next())).is_some());
    }
    assert!(ready(pin!(phase.next())).is_none());
    assert!(phase.is_terminated());
    assert_eq!(phase.size_hint(), (0, Some(0)));

    // The end is final, but the inner stream is open.
    slot(&jobs, 2).complete(());
    assert!(ready(pin!(phase.next())).is_none());
    let mut done = phase.into_inner();
    assert_eq!(take(&mut done).tag, 2);

    // Idle from the start, and closed.
    let mut phase = done.until_idle();
    assert!(ready(pin!(phase.next())).is_none());
    jobs.close();
    let mut phase = phase.into_inner().until_idle();
    assert!(ready(pin!(phase.next())).is_none());
    assert!(ready(pin!(phase.into_inner().next())).is_none());
}

#[test]
fn into_inner_before_the_end_loses_nothing() {
    let (jobs, done) = unbounded();
    for tag in 0..4 {
        slot(&jobs, tag).complete(());
    }
    let open = slot(&jobs, 4);
    let mut phase = done.until_idle();
    assert_eq!(ready(pin!(phase.next())).unwrap().tag, 0);
    let (wakes, waker) = Wakes::new();
    let mut done = phase.into_inner();
    for tag in 1..4 {
        assert_eq!(take(&mut done).tag, tag);
    }
    let mut phase = done.until_idle();
    {
        // Nothing is lost if it is not read to its end.
        let mut next = Box::pin(phase.next());
        assert!(poll_with(&waker, &mut next).is_pending());
        open.complete(());
        assert_eq!(wakes.count(), 1);
    }
    assert_eq!(ready(pin!(phase.next())).unwrap().tag, 4);
    assert!(ready(pin!(phase.next())).is_none());
}

#[test]
fn jobs_that_submit_jobs_are_all_waited_for() {
    current_thread().block_on(async {
        let (jobs, done) = unbounded();
        let submitter = jobs.clone();
        let root = async move {
            for tag in 1..4 {
                let more = submitter.clone();
                let branch = async move {
                    tokio::task::yield_now().await;
                    more.submit(10 * tag, async {}).await.unwrap();
                };
                submitter.submit(tag, branch).await.unwrap();
            }
        };
        jobs.submit(0, root).await.unwrap();
        let items = within(done.until_idle().count()).await;
        assert_eq!(items, 1 + 3 + 3);
    });
}

#[test]
fn a_dropped_phase_drops_the_stream() {
    let (jobs, done) = bounded(2, 2);
    let outputs = Drops::new();
    slot(&jobs, 0).complete(outputs.value());
    let open = slot(&jobs, 1);
    drop(done.until_idle());
    assert_eq!(outputs.count(), 1);
    assert!(open.is_aborted() && jobs.is_closed());
}
