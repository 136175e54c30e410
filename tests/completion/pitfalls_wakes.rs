//! Who reads is woken when there is something, wherever it has gone, and lets others run.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::StreamExt;
use futures::future::FusedFuture;
use futures::stream::Stream;
use throng::Slot;

use super::support::{
    Numbers, Wakes, block_on, current_thread, multi_thread, poll_with, rounds, within,
};
use super::{completed, poll_next, slot, unbounded};

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_open_and_empty_wakes_nobody() {
    const TICKS: usize = 100;
    let (_jobs, mut done) = unbounded::<()>();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut polls = 0;
    for _ in 0..TICKS {
        let next = poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut done).poll_next(cx)
        });
        tokio::select! {
            item = next => panic!("an item of nothing: {item:?}"),
            _ = ticks.tick() => {}
        }
    }
    // Each turn polls it when it begins, and once more at most, when the tick comes.
    assert!(polls <= 2 * TICKS, "polled {polls} times in {TICKS} turns");
}

#[test]
fn a_reader_that_goes_from_task_to_task_is_always_woken() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    let (promise, promised) = channel::<Slot<(), usize>>();
    let completer = thread::spawn(move || {
        for slot in promised {
            slot.complete(());
        }
    });
    runtime.block_on(async {
        for tag in 0..rounds(2_000, 200_000) {
            promise.send(slot(&jobs, tag)).unwrap();
            // One task looks, and goes; another waits.
            let look = async move {
                let found = poll_fn(|cx| Poll::Ready(done.poll_next_unpin(cx))).await;
                (done, found)
            };
            let (mut moved, found) = within(tokio::spawn(look)).await.unwrap();
            let wait = async move {
                let completed = match found {
                    Poll::Ready(completed) => completed,
                    Poll::Pending => moved.next().await,
                };
                (moved, completed)
            };
            let (moved, completed) = within(tokio::spawn(wait)).await.unwrap();
            assert_eq!(completed.unwrap().tag, tag);
            done = moved;
        }
    });
    drop(promise);
    completer.join().unwrap();
}

#[test]
fn reading_in_all_ways_by_turns_misses_nothing() {
    const COMPLETERS: usize = 2;
    let (jobs, mut done) = unbounded();
    let each = rounds(5_000, 500_000);
    let mut numbers = Numbers::new(3);
    let mut seen = vec![false; COMPLETERS * each];
    let mut see = |tag: usize| assert!(!std::mem::replace(&mut seen[tag], true));
    thread::scope(|scope| {
        for completer in 0..COMPLETERS {
            let jobs = jobs.clone();
            scope.spawn(move || {
                for tag in completer * each..(completer + 1) * each {
                    slot(&jobs, tag).complete(());
                }
            });
        }
        drop(jobs);
        loop {
            // Who waits at last has left the waker of another before, and looked without one.
            match numbers.below(4) {
                0 => done.drain_ready().for_each(|item| see(item.tag)),
                1 => done.try_next().into_iter().for_each(|item| see(item.tag)),
                2 => match poll_next(Waker::noop(), &mut done) {
                    Poll::Ready(Some(item)) => see(item.tag),
                    Poll::Ready(None) => break,
                    Poll::Pending => {}
                },
                _ => match block_on(done.next()) {
                    Some(item) => see(item.tag),
                    None => break,
                },
            }
        }
    });
    assert!(seen.into_iter().all(|seen| seen));
}

#[test]
fn a_timer_fires_while_a_million_items_are_ready() {
    const ITEMS: usize = 1_000_000;
    current_thread().block_on(async {
        let mut done = completed(0..ITEMS);
        let fired = Arc::new(AtomicBool::new(false));
        let fires = Arc::clone(&fired);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            fires.store(true, Ordering::SeqCst);
        });
        let mut read = 0;
        while done.next().await.is_some() && !fired.load(Ordering::SeqCst) {
            read += 1;
        }
        assert!(read < ITEMS, "all was read, and the timer had not fired");
        assert!(done.drain_ready().count() > 0);
    });
}

#[test]
fn a_combinator_that_reads_all_lets_others_run() {
    current_thread().block_on(async {
        let done = completed(0..10_000);
        let turns = Arc::new(AtomicBool::new(false));
        let turn = Arc::clone(&turns);
        tokio::spawn(async move { turn.store(true, Ordering::SeqCst) });
        let before = done.take_while(|_| std::future::ready(!turns.load(Ordering::SeqCst)));
        assert!(before.count().await < 10_000);
    });
}

#[test]
fn who_waits_in_the_next_of_a_select_is_not_told_of_the_end_by_a_panic() {
    let (jobs, mut done) = unbounded::<()>();
    let (wakes, waker) = Wakes::new();
    let mut next = done.select_next_some();
    assert!(poll_with(&waker, &mut next).is_pending());
    drop(jobs);
    // Woken by the end, it has nothing to return; `select!` sees then that it has terminated.
    assert_eq!(wakes.count(), 1);
    assert!(poll_with(&waker, &mut next).is_pending());
    assert!(next.is_terminated());
}
