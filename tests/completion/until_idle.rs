//! `next_until_idle`: reading until no job is outstanding.

use std::pin::pin;

use super::support::{Wakes, current_thread, poll, poll_with, ready, within};
use super::{slot, take, unbounded};

#[test]
fn it_ends_when_idle_and_the_stream_remains_usable() {
    let (jobs, mut done) = unbounded();
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    for slot in promised {
        assert!(poll(&mut pin!(done.next_until_idle())).is_pending());
        slot.complete(());
        assert!(ready(pin!(done.next_until_idle())).is_some());
    }
    assert!(ready(pin!(done.next_until_idle())).is_none());

    // The next phase.
    slot(&jobs, 2).complete(());
    assert_eq!(ready(pin!(done.next_until_idle())).unwrap().tag, 2);
    assert!(ready(pin!(done.next_until_idle())).is_none());
    assert!(poll(&mut pin!(done.next())).is_pending());

    // Closed.
    slot(&jobs, 3).complete(());
    jobs.close();
    assert_eq!(ready(pin!(done.next_until_idle())).unwrap().tag, 3);
    assert!(ready(pin!(done.next_until_idle())).is_none());
    assert!(ready(pin!(done.next())).is_none());
    assert!(ready(pin!(done.next_until_idle())).is_none());
}

#[test]
fn a_dropped_wait_loses_nothing() {
    let (jobs, mut done) = unbounded();
    for tag in 0..4 {
        slot(&jobs, tag).complete(());
    }
    let open = slot(&jobs, 4);
    assert_eq!(ready(pin!(done.next_until_idle())).unwrap().tag, 0);
    for tag in 1..4 {
        assert_eq!(take(&mut done).tag, tag);
    }
    let (wakes, waker) = Wakes::new();
    {
        let mut next = Box::pin(done.next_until_idle());
        assert!(poll_with(&waker, &mut next).is_pending());
        open.complete(());
        assert_eq!(wakes.count(), 1);
    }
    assert_eq!(ready(pin!(done.next_until_idle())).unwrap().tag, 4);
    assert!(ready(pin!(done.next_until_idle())).is_none());
}

#[test]
fn jobs_that_submit_jobs_are_all_waited_for() {
    current_thread().block_on(async {
        let (jobs, mut done) = unbounded();
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
        let mut items = 0;
        while within(done.next_until_idle()).await.is_some() {
            items += 1;
        }
        assert_eq!(items, 1 + 3 + 3);
    });
}
