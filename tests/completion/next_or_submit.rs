//! `next_or_submit`: a task that both reads and submits.

use std::pin::pin;

use throng::completion::{Completed, NextOrSubmit};

use super::support::{Drops, Wakes, current_thread, poll, poll_with, ready, within};
use super::{bounded, slot, take, unbounded};

#[test]
fn one_task_reads_and_submits_without_deadlock() {
    current_thread().block_on(async {
        for (max_running, max_outstanding) in [(1, 1), (2, 3), (8, 2)] {
            let (jobs, mut done) = bounded(max_running, max_outstanding);
            let mut sum = 0;
            let mut add = |completed: Completed<usize, usize>| {
                assert_eq!(completed.outcome.unwrap(), completed.tag);
                sum += completed.tag;
            };
            for tag in 1..=1_000 {
                let mut job = (tag, async move { tag });
                loop {
                    match within(done.next_or_submit(job.0, job.1)).await.unwrap() {
                        NextOrSubmit::Submitted(_) => break,
                        NextOrSubmit::Next(completed, tag, future) => {
                            add(completed);
                            job = (tag, future);
                        }
                    }
                    assert!(jobs.in_flight() <= max_outstanding);
                }
            }
            drop(jobs);
            while let Some(completed) = within(done.next()).await {
                add(completed);
            }
            assert_eq!(sum, 500_500);
        }
    });
}

#[tokio::test]
async fn with_room_the_job_is_submitted_first() {
    let (_jobs, mut done) = bounded(2, 2);
    let submitted = ready(pin!(done.next_or_submit(0, async { 10 }))).unwrap();
    let NextOrSubmit::Submitted(id) = submitted else {
        panic!("there was room");
    };
    let completed = within(done.next()).await.unwrap();
    assert_eq!((completed.id, completed.outcome.unwrap()), (id, 10));
}

#[tokio::test]
async fn without_room_it_waits_for_either() {
    let (jobs, mut done) = bounded(2, 2);
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    let (wakes, waker) = Wakes::new();
    let mut either = Box::pin(done.next_or_submit(2, async { 12 }));
    assert!(poll_with(&waker, &mut either).is_pending());
    let [first, second] = promised;
    first.complete(10);
    assert!(wakes.count() > 0);
    let Ok(NextOrSubmit::Next(completed, tag, future)) = ready(either) else {
        panic!("there was no room until it is read");
    };
    assert_eq!((completed.tag, tag, future.await), (0, 2, 12));
    second.complete(11);
    assert_eq!(take(&mut done).tag, 1);
}

#[tokio::test]
async fn room_comes_without_a_completion_too() {
    let (jobs, mut done) = bounded(1, 2);
    let promised = slot(&jobs, 0);
    // It has the second `max_outstanding` permit, and waits for a `max_running` permit.
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll(&mut waits).is_pending());
    let mut either = Box::pin(done.next_or_submit(2, async { 12 }));
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut either).is_pending());
    drop(waits);
    assert_eq!(wakes.count(), 1);
    assert!(poll_with(&waker, &mut either).is_pending());
    promised.complete(10);
    // If both are possible, the job is submitted.
    let NextOrSubmit::Submitted(_) = ready(either).unwrap() else {
        panic!("there is room");
    };
    assert_eq!(take(&mut done).tag, 0);
    assert_eq!(within(done.next()).await.unwrap().tag, 2);
}

#[test]
fn a_dropped_call_loses_nothing_and_holds_no_permit() {
    let (jobs, mut done) = bounded(2, 2);
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    let captured = Drops::new();
    for _ in 0..5 {
        let value = captured.value();
        let mut either = Box::pin(done.next_or_submit(2, async move { drop(value) }));
        assert!(poll(&mut either).is_pending());
    }
    assert_eq!(captured.count(), 5);
    let mut either = Box::pin(done.next_or_submit(2, async {}));
    assert!(poll(&mut either).is_pending());
    promised.into_iter().for_each(|slot| slot.complete(()));
    drop(either);
    assert_eq!([take(&mut done).tag, take(&mut done).tag], [0, 1]);
    let _places = [slot(&jobs, 3), slot(&jobs, 4)];
    assert!(jobs.try_slot(5).unwrap_err().is_full());
}

#[test]
fn a_closed_stream_returns_the_job() {
    let (jobs, mut done) = unbounded();
    slot(&jobs, 0).complete(10);
    drop(jobs);
    let error = ready(pin!(done.next_or_submit(1, async { 11 })));
    let error = error.err().expect("it is closed");
    assert_eq!(error.into_inner().0, 1);
    // The unread completion is not lost.
    assert_eq!(take(&mut done).tag, 0);
    assert!(ready(pin!(done.next())).is_none());
    assert!(ready(pin!(done.next_or_submit(2, async { 12 }))).is_err());
}
