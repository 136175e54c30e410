//! `ordered`: completions in the order of submission.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures::stream::{FusedStream, Stream, StreamExt};
use throng::completion::Completed;

use super::support::{Drops, Numbers, Wakes, multi_thread, poll, poll_with, ready, rounds, within};
use super::{bounded, slot, take, unbounded};

fn poll_ordered<T>(
    stream: &mut (impl Stream<Item = Completed<T, usize>> + Unpin),
) -> Poll<Option<usize>> {
    let polled = Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()));
    polled.map(|item| item.map(|completed| completed.tag))
}

#[test]
fn items_come_in_the_order_of_submission() {
    let mut numbers = Numbers::new(11);
    for round in 0..rounds(200, 2_000) {
        let (jobs, done) = unbounded();
        let mut done = done.ordered();
        let size = 1 + numbers.below(20) as usize;
        let mut open: Vec<_> = (0..size).map(|tag| slot(&jobs, tag)).collect();
        let mut read = 0;
        while !open.is_empty() {
            let slot = open.swap_remove(numbers.below(open.len() as u64) as usize);
            slot.complete(());
            while let Poll::Ready(item) = poll_ordered(&mut done) {
                assert_eq!(item, Some(read), "in round {round}");
                read += 1;
            }
            assert_eq!(jobs.in_flight(), size - read);
        }
        assert_eq!(read, size);
        jobs.close();
        assert_eq!(poll_ordered(&mut done), Poll::Ready(None));
        assert!(done.is_terminated());
        assert_eq!(poll_ordered(&mut done), Poll::Ready(None));
    }
}

#[test]
fn max_outstanding_holds_behind_a_slow_job() {
    let (jobs, done) = bounded(8, 5);
    let mut done = done.ordered();
    let slow = slot(&jobs, 0);
    for tag in 1..5 {
        slot(&jobs, tag).complete(());
        assert!(poll_ordered(&mut done).is_pending());
    }
    // Completions that wait for earlier jobs are unread.
    assert_eq!((jobs.in_flight(), jobs.ready()), (5, 4));
    assert_eq!(done.size_hint(), (5, None));
    let (wakes, waker) = Wakes::new();
    let mut next = Box::pin(jobs.slot(5));
    assert!(poll_with(&waker, &mut next).is_pending());
    slow.complete(());
    assert_eq!(wakes.count(), 0);
    assert_eq!(poll_ordered(&mut done), Poll::Ready(Some(0)));
    assert_eq!(wakes.count(), 1);
    ready(next).unwrap().complete(());
    for tag in 1..6 {
        assert_eq!(poll_ordered(&mut done), Poll::Ready(Some(tag)));
    }
    assert!(poll_ordered(&mut done).is_pending());
}

#[test]
fn jobs_that_were_read_before_are_not_waited_for() {
    let (jobs, mut done) = unbounded();
    let mut open: Vec<_> = (0..6).map(|tag| Some(slot(&jobs, tag))).collect();
    let mut complete = |tag: usize| open[tag].take().unwrap().complete(());
    for tag in [3, 1] {
        complete(tag);
        assert_eq!(take(&mut done).tag, tag);
    }
    // Completions that have arrived, some of which the reader has taken from the queue.
    [5, 4].into_iter().for_each(&mut complete);
    let mut done = done.ordered();
    assert!(poll_ordered(&mut done).is_pending());
    slot(&jobs, 6).complete(());
    complete(2);
    assert!(poll_ordered(&mut done).is_pending());
    complete(0);
    jobs.close();
    for tag in [0, 2, 4, 5, 6] {
        assert_eq!(poll_ordered(&mut done), Poll::Ready(Some(tag)));
    }
    assert_eq!(poll_ordered(&mut done), Poll::Ready(None));
}

#[test]
fn a_dropped_next_loses_nothing() {
    let (jobs, done) = unbounded();
    let mut done = done.ordered();
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    let (wakes, waker) = Wakes::new();
    let [first, second] = promised;
    {
        let mut next = Box::pin(done.next());
        assert!(poll_with(&waker, &mut next).is_pending());
        second.complete(());
        assert!(poll(&mut next).is_pending());
    }
    // The last waker is woken.
    let mut next = Box::pin(done.next());
    assert!(poll_with(&waker, &mut next).is_pending());
    first.complete(());
    assert_eq!(wakes.count(), 2);
    assert_eq!(ready(next).unwrap().tag, 0);
    assert_eq!(ready(pin!(done.next())).unwrap().tag, 1);
}

#[test]
fn completions_that_wait_for_earlier_jobs_are_dropped_with_the_stream() {
    let (jobs, done) = unbounded();
    let outputs = Drops::new();
    let mut done = done.ordered();
    let open = slot(&jobs, 0);
    for tag in 1..4 {
        slot(&jobs, tag).complete(outputs.value());
        assert!(poll_ordered(&mut done).is_pending());
    }
    drop(done);
    assert_eq!(outputs.count(), 3);
    assert!(open.is_aborted());
    open.complete(outputs.value());
    assert_eq!(outputs.count(), 4);
}

#[test]
fn many_jobs_in_order() {
    let items = rounds(20_000, 1_000_000);
    multi_thread(2, "worker").block_on(async {
        let (jobs, done) = bounded(64, 256);
        tokio::spawn(async move {
            for tag in 0..items {
                let future = async move {
                    for _ in 0..tag % 7 {
                        tokio::task::yield_now().await;
                    }
                };
                jobs.submit(tag, future).await.unwrap();
            }
        });
        let mut done = done.ordered().enumerate();
        let mut read = 0;
        while let Some((index, completed)) = within(done.next()).await {
            assert_eq!(completed.tag, index);
            read += 1;
        }
        assert_eq!(read, items);
    });
}
