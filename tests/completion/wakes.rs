//! The order of completion, and the wake-ups of the reader.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::FusedFuture;
use futures::stream::{Stream, StreamExt};
use throng::Slot;
use tokio::sync::oneshot;

use super::support::{
    Numbers, TEST_TIMEOUT, Wakes, block_on, current_thread, multi_thread, poll_with, rounds, within,
};
use super::{bounded, completed, drain, poll_next, slot, take, unbounded};

#[test]
fn items_come_in_the_order_of_completion() {
    let (jobs, mut done) = unbounded();
    let mut numbers = Numbers::new(7);
    for round in 0..rounds(200, 2_000) {
        let size = 1 + numbers.below(20) as usize;
        let mut promised: Vec<_> = (0..size).map(|tag| slot(&jobs, tag)).collect();
        let mut completed = Vec::new();
        let mut read = Vec::new();
        while !promised.is_empty() {
            let index = numbers.below(promised.len() as u64) as usize;
            let slot = promised.swap_remove(index);
            completed.push(slot.id());
            slot.complete(());
            // Sometimes the reader has taken a part of what has arrived.
            if numbers.below(3) == 0 {
                read.push(take(&mut done).id);
            }
        }
        while read.len() < size {
            read.push(take(&mut done).id);
        }
        assert_eq!(read, completed, "in round {round}");
    }
}

#[tokio::test]
async fn futures_come_in_the_order_of_completion() {
    let (jobs, mut done) = unbounded();
    let mut gates = Vec::new();
    for tag in 0..5 {
        let (open, opened) = oneshot::channel();
        gates.push(Some(open));
        jobs.submit(tag, async move { opened.await.unwrap() })
            .await
            .unwrap();
    }
    for tag in [3, 0, 4, 1, 2] {
        gates[tag].take().unwrap().send(tag * 10).unwrap();
        let completed = within(done.next()).await.unwrap();
        assert_eq!((completed.tag, completed.outcome.unwrap()), (tag, tag * 10));
    }
}

#[test]
fn a_burst_wakes_the_reader_once() {
    let (jobs, mut done) = unbounded();
    let promised: Vec<_> = (0..100).map(|tag| slot(&jobs, tag)).collect();
    let (wakes, waker) = Wakes::new();
    assert!(poll_next(&waker, &mut done).is_pending());
    for slot in promised {
        slot.complete(());
    }
    assert_eq!(wakes.count(), 1);
    for tag in 0..100 {
        assert_eq!(take(&mut done).tag, tag);
    }
}

#[test]
fn the_last_waker_is_woken() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let (before, first) = Wakes::new();
    let (after, second) = Wakes::new();
    assert!(poll_next(&first, &mut done).is_pending());
    assert!(poll_next(&second, &mut done).is_pending());
    promised.complete(());
    assert_eq!((before.count(), after.count()), (0, 1));
    // The earlier waker is not kept.
    assert_eq!(Arc::strong_count(&before), 2);
    take(&mut done);
}

#[tokio::test]
async fn a_stream_is_moved_between_tasks() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let mut done = tokio::spawn(async move {
        let pending = poll_fn(|cx| Poll::Ready(done.poll_next_unpin(cx).is_pending()));
        assert!(pending.await);
        done
    })
    .await
    .unwrap();
    let reader = tokio::spawn(async move { done.next().await.unwrap().tag });
    tokio::task::yield_now().await;
    promised.complete(());
    assert_eq!(within(reader).await.unwrap(), 0);
}

#[test]
fn a_slot_completed_while_the_reader_registers_is_seen() {
    // A waker that completes a slot when it is cloned, which happens within the reader's poll.
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            PROMISED.take().unwrap().complete(());
            RawWaker::new(data, Waker::noop().vtable())
        },
        |_| (),
        |_| (),
        |_| (),
    );
    thread_local! {
        static PROMISED: RefCell<Option<Slot<(), usize>>> = const { RefCell::new(None) };
    }

    let (jobs, mut done) = unbounded();
    PROMISED.set(Some(slot(&jobs, 4)));
    // SAFETY: no function of the table uses the data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let Poll::Ready(Some(completed)) = poll_next(&waker, &mut done) else {
        panic!("the completion was overlooked");
    };
    assert_eq!(completed.tag, 4);
}

#[test]
fn a_waker_may_complete_another_slot() {
    struct Completes(Mutex<Option<Slot<(), usize>>>);
    impl Wake for Completes {
        fn wake(self: Arc<Self>) {
            if let Some(slot) = self.0.lock().unwrap().take() {
                slot.complete(());
            }
        }
    }

    let (jobs, mut done) = unbounded();
    let first = slot(&jobs, 1);
    let second = Mutex::new(Some(slot(&jobs, 2)));
    let waker = Waker::from(Arc::new(Completes(second)));
    assert!(poll_next(&waker, &mut done).is_pending());
    first.complete(());
    assert_eq!([take(&mut done).tag, take(&mut done).tag], [1, 2]);
}

#[test]
fn ready_items_let_others_run() {
    current_thread().block_on(async {
        let (jobs, mut done) = unbounded();
        let fired = Arc::new(AtomicBool::new(false));
        let timer = tokio::spawn({
            let fired = Arc::clone(&fired);
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                fired.store(true, Ordering::SeqCst);
            }
        });
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !fired.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "the loop never yielded");
            slot(&jobs, 0).complete(());
            done.next().await.unwrap();
        }
        timer.await.unwrap();
    });
}

#[tokio::test]
async fn next_loses_nothing_in_a_select() {
    let (jobs, mut done) = bounded(8, 16);
    let items = rounds(5_000, 500_000);
    let submitter = tokio::spawn(async move {
        for tag in 0..items {
            jobs.submit(tag, async move { tag }).await.unwrap();
        }
    });
    let mut seen = vec![false; items];
    let mut read = 0;
    let mut others = 0;
    within(async {
        loop {
            tokio::select! {
                completed = done.next() => {
                    let Some(completed) = completed else { break };
                    assert!(!std::mem::replace(&mut seen[completed.tag], true));
                    read += 1;
                }
                () = tokio::task::yield_now() => others += 1,
            }
        }
    })
    .await;
    submitter.await.unwrap();
    assert_eq!(read, items);
    assert!(others > 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_and_empty_stream_wakes_no_task() {
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
    // Each round polls the stream at its start, and at most once more, when the tick comes.
    assert!(polls <= 2 * TICKS, "polled {polls} times in {TICKS} turns");
}

#[test]
fn a_stream_that_moves_between_tasks_always_wakes_its_reader() {
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
            // One task polls once, and another one waits.
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
fn mixed_ways_of_reading_miss_nothing() {
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
            // The final wait comes after polls with another waker, and without one.
            match numbers.below(4) {
                0 => drain(&mut done).for_each(|item| see(item.tag)),
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
        assert!(drain(&mut done).count() > 0);
    });
}

#[test]
fn a_combinator_that_reads_everything_yields() {
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
fn select_next_some_after_the_end_does_not_panic() {
    let (jobs, mut done) = unbounded::<()>();
    let (wakes, waker) = Wakes::new();
    let mut next = done.select_next_some();
    assert!(poll_with(&waker, &mut next).is_pending());
    drop(jobs);
    // It is woken by the end, and has nothing to return. `select!` then sees that it has terminated.
    assert_eq!(wakes.count(), 1);
    assert!(poll_with(&waker, &mut next).is_pending());
    assert!(next.is_terminated());
}
