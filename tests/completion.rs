//! What `CompletionStream` promises, seen from outside.

#[path = "completion/abort.rs"]
mod abort;
#[path = "completion/backlog.rs"]
mod backlog;
#[path = "completion/combinators.rs"]
mod combinators;
#[path = "completion/fixed.rs"]
mod fixed;
#[path = "completion/large.rs"]
mod large;
#[path = "completion/next_or_submit.rs"]
mod next_or_submit;
#[path = "completion/ordered.rs"]
mod ordered;
#[path = "completion/parts.rs"]
mod parts;
#[path = "completion/pitfalls_bounds.rs"]
mod pitfalls_bounds;
#[path = "completion/pitfalls_items.rs"]
mod pitfalls_items;
#[path = "completion/pitfalls_wakes.rs"]
mod pitfalls_wakes;
#[path = "completion/read.rs"]
mod read;
#[path = "completion/retry.rs"]
mod retry;
#[path = "completion/runners.rs"]
mod runners;
#[path = "completion/slots.rs"]
mod slots;
#[path = "completion/submit.rs"]
mod submit;
mod support;
#[path = "completion/the_end.rs"]
mod the_end;
#[path = "completion/until_idle.rs"]
mod until_idle;

#[path = "completion/in_place.rs"]
mod in_place;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FusedStream, Stream, StreamExt};
use throng::completion::{Completed, Submitter};
use throng::{BlockingPool, CompletionStream, SerialExecutor, Slot};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::support::{
    Drops, Gate, Numbers, PATIENCE, PanicsOnDrop, Wakes, block_on, current_thread, eventually,
    message, multi_thread, panicking_waker, poll, poll_with, ready, receive, rounds, wait_until,
    within,
};

type Ends<T> = (Submitter<T, usize>, CompletionStream<T, usize>);

fn unbounded<T: Send + 'static>() -> Ends<T> {
    CompletionStream::builder().max_running(1 << 20).build()
}

fn bounded<T: Send + 'static>(max_running: usize, max_outstanding: usize) -> Ends<T> {
    CompletionStream::builder()
        .max_running(max_running)
        .max_outstanding(max_outstanding)
        .build()
}

/// Takes an item that must be there.
#[track_caller]
fn take<T: Send + 'static>(done: &mut CompletionStream<T, usize>) -> Completed<T, usize> {
    ready(pin!(done.next())).expect("the stream has not ended")
}

/// Polls once.
fn poll_next<T, K>(
    waker: &Waker,
    done: &mut CompletionStream<T, K>,
) -> Poll<Option<Completed<T, K>>>
where
    T: Send + 'static,
    K: Send + 'static,
{
    Pin::new(done).poll_next(&mut Context::from_waker(waker))
}

/// Promises a completion, for which there must be room.
#[track_caller]
fn slot<T: Send + 'static>(jobs: &Submitter<T, usize>, tag: usize) -> Slot<T, usize> {
    ready(pin!(jobs.slot(tag))).expect("the stream is open")
}

// ===== one item per job =====

#[tokio::test]
async fn a_job_yields_its_output_under_its_name_and_tag() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder().build().unwrap();
    let slot = jobs.slot(3).await.unwrap();
    let ids = BTreeMap::from([
        (0, jobs.submit(0, async { "future" }).await.unwrap()),
        (1, jobs.submit_blocking(&pool, 1, || "pool").await.unwrap()),
        (
            2,
            jobs.submit_blocking(&Handle::current(), 2, || "runtime")
                .await
                .unwrap(),
        ),
        (3, slot.id()),
    ]);
    assert_eq!(jobs.in_flight(), 4);
    slot.complete("slot");
    jobs.close();

    let mut outputs = BTreeMap::new();
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.id, ids[&completed.tag]);
        outputs.insert(completed.tag, completed.outcome.unwrap());
    }
    assert!(
        outputs
            .into_values()
            .eq(["future", "pool", "runtime", "slot"])
    );
    assert_eq!(jobs.in_flight(), 0);
}

#[tokio::test]
async fn a_panic_is_an_item() {
    let (jobs, mut done) = unbounded::<()>();
    let pool = BlockingPool::builder().build().unwrap();
    let panics = || panic!("on purpose");
    let ids = [
        jobs.submit(0, async move { panics() }).await.unwrap(),
        jobs.submit_blocking(&pool, 1, panics).await.unwrap(),
        jobs.submit_blocking(&Handle::current(), 2, panics)
            .await
            .unwrap(),
    ];
    for _ in ids {
        let completed = within(done.next()).await.unwrap();
        let error = completed.outcome.unwrap_err();
        assert!(error.is_panic());
        assert_eq!(error.id(), ids[completed.tag]);
        assert_eq!(message(error.into_panic()), "on purpose");
    }
    assert!(poll(&mut pin!(done.next())).is_pending());
}

#[test]
fn a_slot_that_is_dropped_is_lost() {
    let (jobs, mut done) = unbounded::<()>();
    drop(slot(&jobs, 5));
    let completed = take(&mut done);
    assert_eq!(completed.tag, 5);
    assert!(completed.outcome.unwrap_err().is_lost());

    // Also by a thread that unwinds.
    let slot = slot(&jobs, 6);
    let thread = thread::spawn(move || {
        let _slot = slot;
        panic!("on purpose");
    });
    thread.join().unwrap_err();
    assert!(take(&mut done).outcome.unwrap_err().is_lost());
}

#[test]
fn without_a_runtime_a_future_is_rejected() {
    let (jobs, mut done) = unbounded();
    let captured = Drops::new();
    let value = captured.value();
    let future = async move { drop(value) };
    let id = ready(pin!(jobs.submit(0, future))).unwrap();
    assert_eq!(captured.count(), 1);
    let error = take(&mut done).outcome.unwrap_err();
    assert!(error.is_rejected());
    assert_eq!(error.id(), id);
    assert!(error.to_string().contains("no Tokio runtime"), "{error}");
}

#[test]
fn a_runtime_that_shuts_down_cancels_its_jobs() {
    let (jobs, mut done) = unbounded::<()>();
    let runtime = current_thread();
    let captured = Drops::new();
    runtime.block_on(async {
        for tag in 0..2 {
            let value = captured.value();
            let future = async move {
                let _value = value;
                pending().await
            };
            jobs.submit(tag, future).await.unwrap();
            // The first is polled once, the second is not.
            if tag == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    assert!(poll_next(Waker::noop(), &mut done).is_pending());

    let dead = runtime.handle().clone();
    drop(runtime);
    assert_eq!(captured.count(), 2);
    for _ in 0..2 {
        assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    }

    // What comes later, too.
    let _in = dead.enter();
    let value = captured.value();
    let future = async move { drop(value) };
    ready(pin!(jobs.submit(2, future))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    let value = captured.value();
    let closure = move || drop(value);
    ready(pin!(jobs.submit_blocking(&dead, 3, closure))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    assert_eq!(captured.count(), 4);
}

#[test]
fn a_pool_that_is_full_or_closed_rejects_the_job() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    ready(pin!(jobs.submit_blocking(&pool, 0, move || passed.pass()))).unwrap();

    let captured = Drops::new();
    let value = captured.value();
    let closure = move || drop(value);
    ready(pin!(jobs.submit_blocking(&pool, 1, closure))).unwrap();
    let completed = take(&mut done);
    assert_eq!(completed.tag, 1);
    assert!(completed.outcome.unwrap_err().is_rejected());
    assert_eq!(captured.count(), 1);

    gate.open();
    block_on(done.next()).unwrap().outcome.unwrap();
    pool.close();
    ready(pin!(jobs.submit_blocking(&pool, 2, || ()))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_rejected());
}

#[tokio::test]
async fn tags_need_not_differ_and_need_not_be_copied() {
    #[derive(Debug, PartialEq)]
    struct Tag(Box<str>);

    let (jobs, mut done) = CompletionStream::builder().build();
    for n in 0..2 {
        let tag = Tag("same".into());
        jobs.submit(tag, async move { n }).await.unwrap();
    }
    jobs.close();
    let mut sum = 0;
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.tag, Tag("same".into()));
        sum += completed.outcome.unwrap();
    }
    assert_eq!(sum, 1);
}

#[tokio::test]
async fn a_future_is_dropped_before_its_completion_is_read() {
    let (jobs, mut done) = unbounded();
    let (captured, outputs) = (Drops::new(), Drops::new());
    let (value, output) = (captured.value(), outputs.value());
    let future = async move {
        tokio::task::yield_now().await;
        drop(value);
        output
    };
    jobs.submit(0, future).await.unwrap();
    eventually("the future is dropped", || captured.count() == 1).await;
    let completed = within(done.next()).await.unwrap();
    assert_eq!(outputs.count(), 0);
    drop(completed);
    assert_eq!(outputs.count(), 1);
}

// ===== pending, and the end =====

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
fn the_end_does_not_wait_for_who_waits_for_room() {
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
async fn a_closed_stream_hands_tag_and_job_back() {
    let (jobs, _done) = unbounded();
    jobs.close();
    let error = jobs.submit(1, async { "future" }).await.unwrap_err();
    assert!(error.is_closed());
    let (tag, future) = error.into_inner();
    assert_eq!((tag, future.await), (1, "future"));

    let pool = BlockingPool::builder().build().unwrap();
    let error = jobs.submit_blocking(&pool, 2, || "closure").await;
    let (tag, closure) = error.unwrap_err().into_inner();
    assert_eq!((tag, closure()), (2, "closure"));

    let error = jobs.slot(3).await.unwrap_err();
    assert!(error.is_closed());
    assert_eq!(error.into_inner(), 3);
    assert_eq!(jobs.in_flight(), 0);
}

#[test]
fn who_waits_for_room_is_told_of_the_end() {
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
fn what_is_accepted_while_somebody_closes_is_yielded() {
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
                    let deadline = Instant::now() + PATIENCE;
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

// ===== bounds =====

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

    // A completion makes room, read or not.
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
fn a_submitter_that_gives_up_takes_no_place() {
    // It waits for the one bound, or, within that, for the other.
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
        // All places are there.
        for tag in 0..max_outstanding {
            slot(&jobs, tag).complete(());
        }
        assert!(poll(&mut pin!(jobs.slot(9))).is_pending());
    }
}

#[test]
fn a_submitter_that_gives_up_passes_its_turn_on() {
    let (jobs, _done) = bounded::<()>(1, 10);
    let first = slot(&jobs, 0);
    let (wakes, waker) = Wakes::new();
    let mut second = Box::pin(jobs.slot(1));
    let mut third = Box::pin(jobs.slot(2));
    assert!(poll(&mut second).is_pending());
    assert!(poll_with(&waker, &mut third).is_pending());
    first.complete(());
    // Woken, it goes without having looked.
    drop(second);
    assert_eq!(wakes.count(), 1);
    ready(third).unwrap().complete(());
}

#[test]
fn two_who_wait_get_two_places_that_are_given_back_at_once() {
    // Wakers that take their time to be cloned: there is no better moment to give the places back.
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
    /// Not for ever: it may be that who gives back waits for this.
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
    // Both have a place, and nobody gave one back in between.
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
    /// Submits the two halves of a job until they are single.
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
        // Jobs hold the other submitters: the last one ends the stream.
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
async fn one_who_cannot_be_sent_submits() {
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
#[should_panic(expected = "at least one job must be allowed to run")]
fn nothing_to_run_is_refused() {
    CompletionStream::<(), ()>::builder().max_running(0);
}

#[test]
#[should_panic(expected = "at least one job must be allowed to be outstanding")]
fn nothing_outstanding_is_refused() {
    CompletionStream::<(), ()>::builder().max_outstanding(0);
}

// ===== order and wake-ups =====

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
            // Sometimes the reader has some, and not all, of what has arrived.
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
async fn futures_come_in_the_order_in_which_they_end() {
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
fn the_one_who_polled_last_is_woken() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let (before, first) = Wakes::new();
    let (after, second) = Wakes::new();
    assert!(poll_next(&first, &mut done).is_pending());
    assert!(poll_next(&second, &mut done).is_pending());
    promised.complete(());
    assert_eq!((before.count(), after.count()), (0, 1));
    // The waker of one who reads no longer is not kept.
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
    // Completes a slot when it is cloned, which a reader does within its poll.
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
        let deadline = Instant::now() + PATIENCE;
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

// ===== size_hint =====

#[test]
fn size_hint_holds_while_others_submit() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = bounded(8, 32);
    let each = rounds(2_000, 100_000);
    let mut hints = Vec::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            let (jobs, runtime) = (jobs.clone(), &runtime);
            scope.spawn(move || {
                let _in = runtime.enter();
                for _ in 0..each {
                    block_on(jobs.submit(0, async {})).unwrap();
                }
            });
        }
        drop(jobs);
        loop {
            hints.push(done.size_hint());
            if block_on(done.next()).is_none() {
                break;
            }
        }
    });
    let items = hints.len() - 1;
    assert_eq!(items, 3 * each);
    for (read, (lower, upper)) in hints.into_iter().enumerate() {
        let left = items - read;
        assert!(lower <= left, "at least {lower} of {left}");
        assert!(
            upper.is_none_or(|upper| upper >= left),
            "{upper:?} of {left}"
        );
    }
}

#[test]
fn size_hint_is_exact_once_closed() {
    let (jobs, mut done) = unbounded();
    assert_eq!(done.size_hint(), (0, None));
    let promised: Vec<_> = (0..4).map(|tag| slot(&jobs, tag)).collect();
    assert_eq!(done.size_hint(), (4, None));
    jobs.close();
    assert_eq!(done.size_hint(), (4, Some(4)));
    for slot in promised {
        slot.complete(());
    }
    for left in (0..4).rev() {
        take(&mut done);
        assert_eq!(done.size_hint(), (left, Some(left)));
    }
    assert!(ready(pin!(done.next())).is_none());
    assert_eq!(done.size_hint(), (0, Some(0)));
}

#[test]
fn size_hint_does_not_count_who_waits_for_room() {
    let (jobs, done) = bounded::<()>(1, 2);
    let _promised = slot(&jobs, 0);
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll(&mut waits).is_pending());
    assert_eq!(done.size_hint(), (1, None));
    jobs.close();
    assert_eq!(done.size_hint(), (1, Some(1)));
}

// ===== dropping the stream =====

#[tokio::test]
async fn dropping_the_stream_drops_its_futures() {
    let (jobs, done) = unbounded::<()>();
    let captured = Drops::new();
    let polled = Arc::new(AtomicUsize::new(0));
    for tag in 0..10 {
        let (value, polls) = (captured.value(), Arc::clone(&polled));
        let future = async move {
            let _value = value;
            polls.fetch_add(1, Ordering::SeqCst);
            pending().await
        };
        jobs.submit(tag, future).await.unwrap();
        // The first half is polled before the stream goes.
        if tag == 4 {
            eventually("they are polled", || polled.load(Ordering::SeqCst) == 5).await;
        }
    }
    drop(done);
    // Those that nobody has polled go at once; the others are told.
    assert!(captured.count() >= 5);
    eventually("all are dropped", || captured.count() == 10).await;
    assert_eq!(polled.load(Ordering::SeqCst), 5);

    let error = jobs.submit(7, async {}).await.unwrap_err();
    assert!(error.is_closed());
    assert_eq!(error.into_inner().0, 7);
    assert_eq!(jobs.in_flight(), 0);
}

#[test]
fn dropping_the_stream_drops_closures_that_have_not_started() {
    let (jobs, done) = unbounded();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (captured, outputs) = (Drops::new(), Drops::new());
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    for tag in 0..5 {
        let (value, output) = (captured.value(), outputs.value());
        let (entered, gate) = (entered.clone(), gate.clone());
        let closure = move || {
            entered.send(tag).unwrap();
            gate.pass();
            drop(value);
            output
        };
        ready(pin!(jobs.submit_blocking(&pool, tag, closure))).unwrap();
    }
    assert_eq!(receive(&has_entered), 0);

    drop(done);
    assert_eq!((captured.count(), outputs.count()), (4, 4));
    // The one that runs goes on, and nobody wants its output.
    gate.open();
    wait_until("the output is dropped", || outputs.count() == 5);
    assert_eq!(captured.count(), 5);
    assert!(has_entered.try_recv().is_err());
}

#[test]
fn dropping_the_stream_drops_what_is_unread() {
    let (jobs, mut done) = CompletionStream::builder().build();
    let (outputs, tags) = (Drops::new(), Drops::new());
    for _ in 0..10 {
        let slot = ready(pin!(jobs.slot(tags.value()))).unwrap();
        slot.complete(outputs.value());
    }
    // One was read; the rest was taken with it.
    drop(ready(pin!(done.next())));
    assert_eq!((outputs.count(), tags.count()), (1, 1));
    let late = ready(pin!(jobs.slot(tags.value()))).unwrap();
    late.complete(outputs.value());
    drop(done);
    assert_eq!((outputs.count(), tags.count()), (11, 11));
}

#[test]
fn dropping_the_stream_tells_open_slots() {
    let (jobs, done) = CompletionStream::builder().build();
    let (outputs, tags) = (Drops::new(), Drops::new());
    let promised = [(); 2].map(|()| ready(pin!(jobs.slot(tags.value()))).unwrap());
    assert!(!promised[0].is_aborted());
    drop(done);
    let [completed, lost] = promised;
    assert!(completed.is_aborted());
    completed.complete(outputs.value());
    assert_eq!((outputs.count(), tags.count()), (1, 1));
    drop(lost);
    assert_eq!((outputs.count(), tags.count()), (1, 2));
    assert!(ready(pin!(jobs.slot(tags.value()))).is_err());
    assert_eq!(tags.count(), 3);
}

#[test]
fn the_stream_goes_while_slots_are_completed() {
    for _ in 0..rounds(300, 30_000) {
        let (jobs, mut done) = CompletionStream::builder().build();
        let (outputs, tags) = (Drops::new(), Drops::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let Ok(slot) = block_on(jobs.slot(tags.value())) else {
                            return;
                        };
                        slot.complete(outputs.value());
                    }
                });
            }
            drop(block_on(done.next()));
            drop(done);
        });
        drop(jobs);
        // Of each job that was accepted, both; of one that was not, the tag.
        assert!(outputs.count() <= tags.count());
        assert_eq!(outputs.count(), outputs.made());
        assert_eq!(tags.count(), tags.made());
    }
}

// ===== slots, from anywhere =====

#[tokio::test]
async fn a_slot_is_completed_from_anywhere() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder().build().unwrap();
    let executor = SerialExecutor::new(40);
    let slots = [0, 1, 2, 3].map(|tag| slot(&jobs, tag));
    drop(jobs);
    let [thread, blocking, pooled, serial] = slots;
    thread::spawn(move || thread.complete(10));
    drop(tokio::task::spawn_blocking(move || blocking.complete(20)));
    drop(pool.spawn_blocking(move || pooled.complete(30)));
    drop(executor.submit(|n| serial.complete(*n)));

    let mut sum = 0;
    while let Some(completed) = within(done.next()).await {
        sum += completed.outcome.unwrap();
    }
    assert_eq!(sum, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_carries_the_output_of_a_foreign_task() {
    let (jobs, mut done) = unbounded();
    for tag in 0..100 {
        let slot = jobs.slot(tag).await.unwrap();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            slot.complete(tag * tag);
        });
    }
    drop(jobs);
    let mut items = 0;
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.outcome.unwrap(), completed.tag * completed.tag);
        items += 1;
    }
    assert_eq!(items, 100);
}

// ===== panics of strangers =====

#[test]
fn a_panic_in_the_readers_waker_harms_no_completion() {
    let (jobs, mut done) = unbounded();
    let promised = [0, 1, 2].map(|tag| slot(&jobs, tag));
    assert!(poll_next(&panicking_waker(), &mut done).is_pending());
    for slot in promised {
        slot.complete(());
    }
    for tag in 0..3 {
        assert_eq!(take(&mut done).tag, tag);
    }
    assert!(poll_next(&panicking_waker(), &mut done).is_pending());
    jobs.close();
    assert!(ready(pin!(done.next())).is_none());
}

#[test]
fn a_panic_in_the_drop_of_what_is_unread_is_contained() {
    let (jobs, mut done) = CompletionStream::builder().build();
    let (outputs, tags) = (Drops::new(), Drops::new());
    for _ in 0..5 {
        let tag = PanicsOnDrop(tags.value());
        let slot = ready(pin!(jobs.slot(tag))).unwrap();
        slot.complete(PanicsOnDrop(outputs.value()));
    }
    let read = ready(pin!(done.next())).unwrap();
    std::mem::forget(read);
    let tag = PanicsOnDrop(tags.value());
    let open = ready(pin!(jobs.slot(tag))).unwrap();
    drop(done);
    assert_eq!((outputs.count(), tags.count()), (4, 4));
    open.complete(PanicsOnDrop(outputs.value()));
    assert_eq!((outputs.count(), tags.count()), (5, 5));
}

#[tokio::test]
async fn a_panic_in_the_drop_of_a_job_is_contained() {
    // When the runtime lets it go,
    let (jobs, mut done) = unbounded::<()>();
    let captured = Drops::new();
    let bomb = PanicsOnDrop(captured.value());
    let future = async move {
        let _bomb = bomb;
        pending().await
    };
    let runtime = current_thread();
    {
        let _in = runtime.enter();
        jobs.submit(0, future).await.unwrap();
    }
    runtime.shutdown_background();
    let completed = within(done.next()).await.unwrap();
    assert!(completed.outcome.unwrap_err().is_cancelled());

    // when nobody takes it,
    let pool = BlockingPool::builder().build().unwrap();
    pool.close();
    let bomb = PanicsOnDrop(captured.value());
    let closure = move || drop(bomb);
    jobs.submit_blocking(&pool, 1, closure).await.unwrap();
    let completed = within(done.next()).await.unwrap();
    assert!(completed.outcome.unwrap_err().is_rejected());

    // and when the stream goes: others go too.
    let bomb = PanicsOnDrop(captured.value());
    let future = async move {
        let _bomb = bomb;
        pending().await
    };
    jobs.submit(2, future).await.unwrap();
    let others = Drops::new();
    let value = others.value();
    let future = async move {
        let _value = value;
        pending().await
    };
    jobs.submit(3, future).await.unwrap();
    drop(done);
    assert_eq!((captured.count(), others.count()), (3, 1));
}

#[test]
fn a_panic_in_the_waker_of_one_who_waits_for_another_to_end_is_contained() {
    let (jobs, mut done) = bounded(1, 2);
    let promised = slot(&jobs, 0);
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll_with(&panicking_waker(), &mut waits).is_pending());
    promised.complete(());
    assert_eq!(take(&mut done).tag, 0);
    ready(waits).unwrap().complete(());
    assert_eq!(take(&mut done).tag, 1);
}

#[test]
fn a_panic_in_the_waker_of_one_who_waits_for_the_reader_is_contained() {
    let (jobs, mut done) = bounded(1, 1);
    slot(&jobs, 0).complete(());
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll_with(&panicking_waker(), &mut waits).is_pending());
    assert_eq!(take(&mut done).tag, 0);
    ready(waits).unwrap().complete(());
    assert_eq!(take(&mut done).tag, 1);
}

#[test]
fn a_panic_in_the_waker_of_one_who_waits_does_not_stop_a_close() {
    let (jobs, mut done) = bounded::<()>(1, 1);
    let promised = slot(&jobs, 0);
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll_with(&panicking_waker(), &mut waits).is_pending());
    jobs.close();
    drop(promised);
    assert_eq!(take(&mut done).tag, 0);
    assert!(ready(pin!(done.next())).is_none());
    assert!(ready(waits).is_err());
}

// ===== closed streams =====

/// A closed stream of these outputs.
fn completed<T: Send + 'static>(
    outputs: impl IntoIterator<Item = T>,
) -> CompletionStream<T, usize> {
    let (jobs, done) = unbounded();
    for (tag, output) in outputs.into_iter().enumerate() {
        slot(&jobs, tag).complete(output);
    }
    done
}

fn output<T>(completed: Completed<T, usize>) -> T {
    completed.outcome.expect("it has completed")
}

// ===== many =====

#[test]
fn as_many_items_as_jobs() {
    const SUBMITTERS: usize = 4;
    let runtime = multi_thread(2, "worker");
    let pool = BlockingPool::builder().max_threads(2).build().unwrap();
    let (jobs, mut done) = bounded(64, 256);
    let each = rounds(100_000, 1_000_000) / SUBMITTERS;
    runtime.block_on(async {
        for submitter in 0..SUBMITTERS {
            let (jobs, pool) = (jobs.clone(), pool.clone());
            tokio::spawn(async move {
                for n in submitter * each..(submitter + 1) * each {
                    match n % 3 {
                        0 => drop(jobs.submit(n, async move { n }).await.unwrap()),
                        1 => drop(jobs.submit_blocking(&pool, n, move || n).await.unwrap()),
                        _ => jobs.slot(n).await.unwrap().complete(n),
                    }
                }
            });
        }
        drop(jobs);
        let (mut items, mut sum) = (0, 0);
        while let Some(completed) = within(done.next()).await {
            let n = completed.outcome.unwrap();
            assert_eq!(completed.tag, n);
            items += 1;
            sum += n;
        }
        let expected = SUBMITTERS * each;
        assert_eq!((items, sum), (expected, expected * (expected - 1) / 2));
    });
}

// ===== texts =====

#[test]
fn both_ends_tell_their_condition() {
    let (jobs, done) = bounded(2, 4);
    let open = slot(&jobs, 0);
    slot(&jobs, 1).complete(());
    for text in [format!("{jobs:?}"), format!("{done:?}")] {
        assert!(text.contains("running: 1"), "{text}");
        assert!(text.contains("outstanding: 2"), "{text}");
        assert!(text.contains("closed: false"), "{text}");
    }
    let text = format!("{open:?}");
    assert!(text.contains(&format!("{:?}", open.id())), "{text}");
    open.complete(());
    jobs.close();
    assert!(format!("{done:?}").contains("closed: true"));

    let text = format!("{:?}", CompletionStream::<(), ()>::builder().max_running(3));
    assert!(text.contains("max_running: 3"), "{text}");
}
