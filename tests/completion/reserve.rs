//! Reserving room for a job: permits and `PollReserve`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use throng::{BlockingPool, PollReserve};

use super::support::{Drops, Wakes, current_thread, poll, poll_with, ready, within};
use super::{bounded, slot, take, unbounded};

#[tokio::test]
async fn a_permit_submits_futures_closures_and_slots() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let mut ids = vec![
        jobs.reserve()
            .await
            .unwrap()
            .submit(0, async { 0 })
            .unwrap(),
        jobs.reserve()
            .await
            .unwrap()
            .into_owned()
            .submit(1, async { 1 })
            .unwrap(),
    ];
    let permit = jobs.reserve().await.unwrap();
    ids.push(permit.submit_blocking(&pool, 2, || 2).unwrap());
    let permit = jobs.reserve().await.unwrap().into_owned();
    ids.push(permit.submit_blocking(&pool, 3, || 3).unwrap());
    let borrowed = jobs.reserve().await.unwrap().slot(4).unwrap();
    let owned = jobs.reserve().await.unwrap().into_owned().slot(5).unwrap();
    ids.extend([borrowed.id(), owned.id()]);
    borrowed.complete(4);
    owned.complete(5);

    jobs.close();
    let mut read = 0;
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.id, ids[completed.tag]);
        assert_eq!(completed.outcome.unwrap(), completed.tag);
        read += 1;
    }
    assert_eq!(read, 6);
}

#[test]
fn a_permit_counts_towards_both_limits() {
    for (max_running, max_outstanding) in [(1, 1), (1, 2), (2, 1)] {
        let (jobs, mut done) = bounded::<()>(max_running, max_outstanding);
        let permit = ready(pin!(jobs.reserve())).unwrap();
        assert_eq!(jobs.in_flight(), 0);
        assert!(jobs.try_slot(0).unwrap_err().is_full());
        permit.slot(1).unwrap().complete(());
        assert_eq!(jobs.in_flight(), 1);
        assert_eq!(take(&mut done).tag, 1);
        slot(&jobs, 2).complete(());
    }
}

#[test]
fn a_dropped_permit_wakes_a_waiting_submitter() {
    let (jobs, _done) = bounded::<()>(1, 1);
    let owned = ready(pin!(jobs.reserve())).unwrap().into_owned();
    let (wakes, waker) = Wakes::new();
    let mut waits = Box::pin(jobs.reserve());
    assert!(poll_with(&waker, &mut waits).is_pending());
    drop(owned);
    assert_eq!(wakes.count(), 1);
    let permit = ready(waits).unwrap();
    assert!(poll(&mut pin!(jobs.reserve())).is_pending());
    drop(permit);
    slot(&jobs, 0).complete(());
}

#[test]
fn a_dropped_reserve_holds_no_permit() {
    let (jobs, mut done) = bounded::<()>(1, 1);
    let held = slot(&jobs, 0);
    for _ in 0..10 {
        assert!(poll(&mut pin!(jobs.reserve())).is_pending());
    }
    held.complete(());
    take(&mut done);
    drop(ready(pin!(jobs.reserve())).unwrap());
}

#[tokio::test]
async fn a_permit_of_a_closed_stream_returns_the_job() {
    let (jobs, mut done) = bounded::<usize>(2, 2);
    let [first, second] = [jobs.reserve().await.unwrap(), jobs.reserve().await.unwrap()];
    let mut waits = Box::pin(jobs.reserve());
    assert!(poll(&mut waits).is_pending());
    jobs.close();
    assert!(ready(waits).is_err());
    let (tag, future) = first.submit(1, async { 10 }).unwrap_err().into_inner();
    assert_eq!((tag, future.await), (1, 10));
    assert_eq!(second.slot(2).unwrap_err().into_inner(), 2);
    // Permits do not hold the end up.
    assert!(within(done.next()).await.is_none());
    assert!(jobs.reserve().await.is_err());
}

#[test]
fn poll_reserve_waits_for_a_permit() {
    let (jobs, mut done) = bounded(1, 1);
    let held = slot(&jobs, 0);
    let mut reserve = PollReserve::new(jobs.clone());
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    assert!(reserve.poll_reserve(&mut cx).is_pending());
    held.complete(0);
    assert_eq!((take(&mut done).tag, wakes.count()), (0, 1));
    let Poll::Ready(Ok(permit)) = reserve.poll_reserve(&mut cx) else {
        panic!("there is room");
    };
    assert!(jobs.try_slot(1).unwrap_err().is_full());
    permit.slot(2).unwrap().complete(2);
    assert_eq!(take(&mut done).tag, 2);

    let mut cx = Context::from_waker(Waker::noop());
    drop(reserve.poll_reserve(&mut cx));
    slot(&jobs, 3).complete(3);
}

/// What `submit` in `select!` cannot do: the job is made when there is room for it.
#[test]
fn reserve_in_a_select_loses_no_job() {
    const JOBS: usize = 1_000;
    for (max_running, max_outstanding) in [(1, 1), (2, 2), (2, 3), (8, 2)] {
        let captured = Drops::new();
        current_thread().block_on(async {
            let (jobs, mut done) = bounded(max_running, max_outstanding);
            let (mut submitted, mut read) = (0, 0);
            while read < JOBS {
                tokio::select! {
                    permit = jobs.reserve(), if submitted < JOBS => {
                        let value = captured.value();
                        permit.unwrap().submit(submitted, async move { drop(value) }).unwrap();
                        submitted += 1;
                    }
                    completed = within(done.next()) => {
                        completed.unwrap().outcome.unwrap();
                        read += 1;
                    }
                }
            }
            assert_eq!((jobs.in_flight(), captured.count()), (0, JOBS));
        });
    }
}
