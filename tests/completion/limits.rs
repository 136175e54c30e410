//! The limits of running and of outstanding jobs.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use throng::completion::Submitter;
use throng::{BlockingPool, CompletionStream, Slot};
use tokio::time::sleep;

use super::support::{
    Drops, Numbers, Wakes, block_on, eventually, multi_thread, poll, poll_with, ready, rounds,
    wait_until, within,
};
use super::{bounded, slot, take, unbounded};

#[test]
fn no_more_jobs_run_than_allowed() {
    const LIMIT: usize = 3;
    let runtime = multi_thread(2, "worker");
    let pool = BlockingPool::builder().max_threads(8).build().unwrap();
    let (jobs, mut done) = bounded(LIMIT, 64);
    let each = rounds(400, 40_000);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let enter = |running: &AtomicUsize| running.fetch_add(1, Ordering::SeqCst) + 1;
    thread::scope(|scope| {
        for submitter in 0..4 {
            let (jobs, runtime, pool, running) = (jobs.clone(), &runtime, &pool, &running);
            scope.spawn(move || {
                let _in = runtime.enter();
                for _ in 0..each {
                    let running = Arc::clone(running);
                    let submitted = if submitter % 2 == 0 {
                        let future = async move {
                            let now = enter(&running);
                            tokio::task::yield_now().await;
                            running.fetch_sub(1, Ordering::SeqCst);
                            now
                        };
                        block_on(jobs.submit(0, future)).is_ok()
                    } else {
                        let closure = move || {
                            let now = enter(&running);
                            running.fetch_sub(1, Ordering::SeqCst);
                            now
                        };
                        block_on(jobs.submit_blocking(pool, 0, closure)).is_ok()
                    };
                    assert!(submitted);
                }
            });
        }
        drop(jobs);
        let mut items = 0;
        while let Some(completed) = block_on(done.next()) {
            most.fetch_max(completed.outcome.unwrap(), Ordering::SeqCst);
            items += 1;
        }
        assert_eq!(items, 4 * each);
    });
    let most = most.into_inner();
    assert!((1..=LIMIT).contains(&most), "{most} ran at once");
}

#[test]
fn a_submitter_waits_while_too_many_run() {
    let (jobs, mut done) = bounded(2, 10);
    let first = slot(&jobs, 0);
    let _second = slot(&jobs, 1);
    let (wakes, waker) = Wakes::new();
    let mut third = Box::pin(jobs.slot(2));
    assert!(poll_with(&waker, &mut third).is_pending());

    // A completion releases a running permit, whether or not it is read.
    first.complete(());
    assert_eq!(wakes.count(), 1);
    let _third = ready(third).unwrap();
    assert!(poll(&mut pin!(jobs.slot(3))).is_pending());
    take(&mut done);
    assert!(poll(&mut pin!(jobs.slot(3))).is_pending());
}

#[test]
fn a_submitter_waits_while_too_much_is_unread() {
    let (jobs, mut done) = bounded(3, 3);
    for tag in 0..3 {
        slot(&jobs, tag).complete(());
    }
    let (wakes, waker) = Wakes::new();
    let mut fourth = Box::pin(jobs.slot(3));
    assert!(poll_with(&waker, &mut fourth).is_pending());
    assert_eq!(wakes.count(), 0);

    take(&mut done);
    assert_eq!(wakes.count(), 1);
    ready(fourth).unwrap().complete(());
    assert!(poll(&mut pin!(jobs.slot(4))).is_pending());
    assert_eq!(jobs.in_flight(), 3);
}

#[test]
fn a_dropped_submission_holds_no_permit() {
    // It waits for the first limit, or has that permit and waits for the second.
    for (max_running, max_outstanding) in [(4, 4), (4, 8)] {
        let (jobs, mut done) = bounded(max_running, max_outstanding);
        for round in 0..3 {
            let promised: Vec<_> = (0..max_running).map(|tag| slot(&jobs, tag)).collect();
            for _ in 0..20 {
                let captured = Drops::new();
                let value = captured.value();
                let mut waits = Box::pin(jobs.submit(9, async move { drop(value) }));
                assert!(poll(&mut waits).is_pending());
                drop(waits);
                assert_eq!(captured.count(), 1);
            }
            assert_eq!(jobs.in_flight(), max_running, "in round {round}");
            for slot in promised {
                slot.complete(());
                take(&mut done);
            }
        }
        // All permits are free.
        for tag in 0..max_outstanding {
            slot(&jobs, tag).complete(());
        }
        assert!(poll(&mut pin!(jobs.slot(9))).is_pending());
    }
}

#[test]
fn a_dropped_submission_passes_its_wake_up_on() {
    let (jobs, _done) = bounded::<()>(1, 10);
    let first = slot(&jobs, 0);
    let (wakes, waker) = Wakes::new();
    let mut second = Box::pin(jobs.slot(1));
    let mut third = Box::pin(jobs.slot(2));
    assert!(poll(&mut second).is_pending());
    assert!(poll_with(&waker, &mut third).is_pending());
    first.complete(());
    // It was woken, and is dropped before it is polled.
    drop(second);
    assert_eq!(wakes.count(), 1);
    ready(third).unwrap().complete(());
}

#[test]
fn two_waiting_submitters_get_two_permits_released_at_once() {
    // Wakers that are slow to clone: the permits are released in the middle of that.
    struct Slow {
        cloning: AtomicBool,
        woken: AtomicBool,
    }
    static SLOW: [Slow; 2] = [const {
        Slow {
            cloning: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        }
    }; 2];
    static GIVEN_BACK: AtomicBool = AtomicBool::new(false);
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| ());
    /// Limited, because the release may itself wait for the clone.
    fn wait_a_while(until: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_millis(50);
        while !until() && Instant::now() < deadline {
            thread::yield_now();
        }
    }
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the data are one of the statics.
        let slow: &Slow = unsafe { &*data.cast() };
        slow.cloning.store(true, Ordering::SeqCst);
        wait_a_while(|| GIVEN_BACK.load(Ordering::SeqCst));
        RawWaker::new(data, &VTABLE)
    }
    fn wake(data: *const ()) {
        // SAFETY: the data are one of the statics.
        let slow: &Slow = unsafe { &*data.cast() };
        slow.woken.store(true, Ordering::SeqCst);
    }

    let (jobs, _done) = bounded(2, 10);
    let held = [0, 1].map(|tag| slot(&jobs, tag));
    let got = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for slow in &SLOW {
            let (jobs, got) = (&jobs, &got);
            scope.spawn(move || {
                let data: *const Slow = slow;
                // SAFETY: the table's functions take a static for what it is.
                let waker = unsafe { Waker::from_raw(RawWaker::new(data.cast(), &VTABLE)) };
                let mut waits = Box::pin(jobs.slot(2));
                let place = loop {
                    match poll_with(&waker, &mut waits) {
                        Poll::Ready(place) => break place.unwrap(),
                        Poll::Pending => wait_until("a place is free and it is told", || {
                            slow.woken.swap(false, Ordering::SeqCst)
                        }),
                    }
                };
                got.lock().unwrap().push(place);
            });
        }
        wait_a_while(|| SLOW.iter().all(|slow| slow.cloning.load(Ordering::SeqCst)));
        held.into_iter().for_each(|slot| slot.complete(()));
        GIVEN_BACK.store(true, Ordering::SeqCst);
    });
    // Both have a permit, and none was released in between.
    assert_eq!(got.lock().unwrap().len(), 2);
}

#[test]
fn a_slow_reader_does_not_stop_what_runs() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = bounded(2, 10);
    let ran = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        for tag in 0..10 {
            let ran = Arc::clone(&ran);
            let future = async move {
                tokio::task::yield_now().await;
                ran.fetch_add(1, Ordering::SeqCst);
            };
            within(jobs.submit(tag, future)).await.unwrap();
        }
        eventually("all have run, unread", || ran.load(Ordering::SeqCst) == 10).await;
        for _ in 0..10 {
            within(done.next()).await.unwrap();
        }
    });
}

#[test]
fn jobs_are_submitted_while_others_are_read() {
    /// Splits a job in two and submits the halves, down to single ones.
    fn split(jobs: Submitter<usize, usize>, size: usize) -> BoxFuture<'static, usize> {
        let future = async move {
            if size == 1 {
                return 1;
            }
            for half in [size / 2, size - size / 2] {
                let future = split(jobs.clone(), half);
                jobs.submit(half, future).await.unwrap();
            }
            0
        };
        future.boxed()
    }

    let (jobs, mut done) = unbounded();
    multi_thread(2, "worker").block_on(async {
        let leaves = rounds(1_000, 100_000);
        let root = split(jobs.clone(), leaves);
        jobs.submit(leaves, root).await.unwrap();
        // The jobs hold the other submitters, and the last of them ends the stream.
        drop(jobs);
        let (mut items, mut sum) = (0, 0);
        while let Some(completed) = within(done.next()).await {
            items += 1;
            sum += completed.outcome.unwrap();
        }
        assert_eq!((items, sum), (2 * leaves - 1, leaves));
    });
}

#[tokio::test]
async fn a_task_that_is_not_send_submits() {
    let (jobs, mut done) = bounded(1, 2);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move {
        let sent = Rc::new(Cell::new(0));
        for tag in 0..5 {
            jobs.submit(tag, async {}).await.unwrap();
            sent.set(sent.get() + 1);
        }
        assert_eq!(sent.get(), 5);
    });
    let read = async {
        let mut tags = Vec::new();
        while let Some(completed) = done.next().await {
            tags.push(completed.tag);
        }
        tags
    };
    let tags = within(local.run_until(read)).await;
    assert_eq!(tags, [0, 1, 2, 3, 4]);
}

#[test]
fn a_limit_of_zero_is_invalid() {
    let builder = CompletionStream::<(), ()>::builder;
    for (option, built) in [
        ("max_running", builder().max_running(0).build()),
        ("max_outstanding", builder().max_outstanding(0).build()),
    ] {
        let error = built.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(&format!("`{option}` is 0")), "{text}");
        assert!(text.contains("set it to 1 or more"), "{text}");
    }
}

const RUNNING: usize = 3;
const OUTSTANDING: usize = 5;

#[test]
fn a_waiting_submission_is_not_in_flight() {
    let (jobs, mut done) = bounded(1, 10);
    let running = slot::<()>(&jobs, 0);
    let mut waiting: Vec<_> = (1..=5).map(|tag| Box::pin(jobs.slot(tag))).collect();
    for slot in &mut waiting {
        assert!(poll(slot).is_pending());
    }
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 0));
    running.complete(());
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 1));
    assert_eq!(done.try_next().map(|completed| completed.tag), Some(0));
    assert_eq!((jobs.in_flight(), jobs.ready()), (0, 0));
}

#[test]
fn both_limits_hold_while_submissions_are_dropped() {
    const SUBMITTERS: usize = 3;
    let (jobs, mut done) = bounded(RUNNING, OUTSTANDING);
    let (promise, promised) = channel::<Slot<(), usize>>();
    // Incremented after a permit was acquired, and decremented before it is released.
    let running = &AtomicUsize::new(0);
    let each = rounds(3_000, 300_000);
    thread::scope(|scope| {
        for seed in 0..SUBMITTERS {
            let (jobs, promise) = (&jobs, promise.clone());
            scope.spawn(move || {
                let mut numbers = Numbers::new(seed as u64);
                let mut accepted = 0;
                while accepted < each {
                    let Some(slot) = slot_or_drop(jobs, &mut numbers) else {
                        thread::yield_now();
                        continue;
                    };
                    assert!(running.fetch_add(1, Ordering::SeqCst) < RUNNING);
                    assert!(jobs.in_flight() <= OUTSTANDING);
                    promise.send(slot).unwrap();
                    accepted += 1;
                }
            });
        }
        drop(promise);
        scope.spawn(move || {
            for slot in promised {
                running.fetch_sub(1, Ordering::SeqCst);
                slot.complete(());
            }
        });
        for _ in 0..SUBMITTERS * each {
            assert!(jobs.in_flight() <= OUTSTANDING);
            block_on(done.next()).unwrap();
        }
    });
    assert_all_permits_are_free(&jobs);
}

/// Waits for a slot, or tries to get one, or drops the wait.
fn slot_or_drop(jobs: &Submitter<(), usize>, numbers: &mut Numbers) -> Option<Slot<(), usize>> {
    match numbers.below(3) {
        0 => block_on(jobs.slot(0)).ok(),
        1 => jobs.try_slot(0).ok(),
        _ => match poll(&mut pin!(jobs.slot(0))) {
            Poll::Ready(slot) => slot.ok(),
            Poll::Pending => None,
        },
    }
}

/// Checks that no job is in flight, and that all permits are free.
fn assert_all_permits_are_free(jobs: &Submitter<(), usize>) {
    assert_eq!(jobs.in_flight(), 0);
    let held: Vec<_> = (0..RUNNING).map(|tag| slot(jobs, tag)).collect();
    assert!(jobs.try_slot(9).unwrap_err().is_full());
    held.into_iter().for_each(|slot| slot.complete(()));
    for tag in RUNNING..OUTSTANDING {
        slot(jobs, tag).complete(());
    }
    assert!(jobs.try_slot(9).unwrap_err().is_full());
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_while_the_reader_is_busy() {
    const JOBS: usize = 12;
    const AT_ONCE: usize = 4;
    let second = Duration::from_secs(1);
    let (jobs, mut done) = bounded(AT_ONCE, JOBS);
    let began = tokio::time::Instant::now();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::clone(&ends);
    tokio::spawn(async move {
        for tag in 0..JOBS {
            let ended = Arc::clone(&ended);
            let future = async move {
                sleep(second).await;
                ended.lock().unwrap().push(began.elapsed());
            };
            jobs.submit(tag, future).await.unwrap();
        }
    });
    let mut read = 0;
    while within(done.next()).await.is_some() {
        // Much longer than all jobs take.
        sleep(20 * second).await;
        read += 1;
        assert_eq!(ends.lock().unwrap().len(), JOBS);
    }
    assert_eq!(read, JOBS);
    // The jobs run in groups of the limit, and do not wait for the reader. (A Tokio timer may be late by its
    // resolution.)
    for (index, end) in ends.lock().unwrap().iter().enumerate() {
        let turn = u32::try_from(index / AT_ONCE).unwrap() + 1;
        let late = end.checked_sub(turn * second);
        assert!(
            late.is_some_and(|late| late < second / 10),
            "{index}: {end:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_reader_submitters_wait_and_jobs_complete() {
    let (jobs, mut done) = bounded(RUNNING, OUTSTANDING);
    let accepted = Arc::new(AtomicUsize::new(0));
    let (submitter, accepts) = (jobs.clone(), Arc::clone(&accepted));
    tokio::spawn(async move {
        for tag in 0..3 * OUTSTANDING {
            let future = sleep(Duration::from_secs(1));
            submitter.submit(tag, future).await.unwrap();
            accepts.fetch_add(1, Ordering::SeqCst);
        }
    });
    // The paused clock advances only when no task can run.
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(accepted.load(Ordering::SeqCst), OUTSTANDING);
    assert_eq!((jobs.in_flight(), jobs.ready()), (OUTSTANDING, OUTSTANDING));
    for read in 1..=OUTSTANDING {
        within(done.next()).await.unwrap();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(accepted.load(Ordering::SeqCst), OUTSTANDING + read);
    }
}
