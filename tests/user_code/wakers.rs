//! A waker that panics once makes nothing deaf: the next poll registers as if nothing had been.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use throng::blocking::PollReserve;
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};

use crate::stranger::{Act, Stranger};
use crate::support::{Gate, Wakes, panicking_waker, poll_with, ready, receive, wait_until};
use crate::{busy_pool, keep_busy};

type PollWith<'a> = dyn FnMut(&Waker) -> Poll<()> + 'a;

/// Something that stores a waker: polled with one, and made ready once.
struct Place<'a> {
    poll: Box<PollWith<'a>>,
    make_ready: Box<dyn FnOnce() + 'a>,
}

impl<'a> Place<'a> {
    /// A future that is made anew if a poll of it panics.
    fn of<F>(mut make: impl FnMut() -> F + 'a, make_ready: impl FnOnce() + 'a) -> Self
    where
        F: Future + 'a,
    {
        let mut waiting: Option<Pin<Box<F>>> = None;
        let poll = move |waker: &Waker| {
            let mut future = waiting.take().unwrap_or_else(|| Box::pin(make()));
            let polled = poll_with(waker, &mut future).map(drop);
            waiting = Some(future);
            polled
        };
        Self {
            poll: Box::new(poll),
            make_ready: Box::new(make_ready),
        }
    }

    /// Polls it with a waker that panics in this act, and then with one that counts.
    fn survives(mut self, act: Act) {
        let (stranger, waker) = Stranger::panicking_in(act);
        if act == Act::Clone {
            stranger.arm();
            let polled = catch_unwind(AssertUnwindSafe(|| (self.poll)(&waker)));
            assert!(polled.is_err(), "who polls is told that its waker panics");
        } else {
            assert!((self.poll)(&waker).is_pending());
            stranger.arm();
        }
        let (wakes, counts) = Wakes::new();
        assert!((self.poll)(&counts).is_pending());
        assert!(!stranger.disarm(), "it has not panicked");
        assert_eq!(wakes.count(), 0);
        (self.make_ready)();
        wait_until("it is woken", || wakes.count() > 0);
        // Who leaves wakes before another can have its place.
        wait_until("it is ready", || (self.poll)(&counts).is_ready());
    }
}

/// Both ways in which a waker can panic while another is registered in its place.
fn survives(check: impl Fn(Act)) {
    check(Act::Clone);
    check(Act::Drop);
}

#[test]
fn a_stream_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (jobs, mut done) = CompletionStream::<u8>::builder().build();
        let open = ready(Box::pin(jobs.slot(()))).unwrap();
        let poll = move |waker: &Waker| {
            let polled = Pin::new(&mut done).poll_next(&mut Context::from_waker(waker));
            polled.map(|item| assert_eq!(item.unwrap().outcome.unwrap(), 7))
        };
        let place = Place {
            poll: Box::new(poll),
            make_ready: Box::new(|| open.complete(7)),
        };
        place.survives(act);
    });
}

#[test]
fn a_slot_that_is_watched_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (jobs, _done) = CompletionStream::<()>::builder().build();
        let mut open = ready(Box::pin(jobs.slot(()))).unwrap();
        let id = open.id();
        let place = Place {
            poll: Box::new(move |waker| poll_with(waker, &mut Box::pin(open.aborted()))),
            make_ready: Box::new(move || assert!(jobs.abort(id))),
        };
        place.survives(act);
    });
}

#[test]
fn a_wrapped_future_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (jobs, _done) = CompletionStream::<()>::builder().build();
        let mut job = ready(Box::pin(jobs.wrap((), std::future::pending()))).unwrap();
        let id = job.id();
        let place = Place {
            poll: Box::new(move |waker| poll_with(waker, &mut job)),
            make_ready: Box::new(move || assert!(jobs.abort(id))),
        };
        place.survives(act);
    });
}

#[test]
fn a_handle_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (_pool, mut busy, gate) = busy_pool();
        let place = Place {
            poll: Box::new(move |waker| poll_with(waker, &mut busy).map(Result::unwrap)),
            make_ready: Box::new(move || gate.open()),
        };
        place.survives(act);
    });
}

#[test]
fn a_reserve_of_a_blocking_pool_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (pool, gate) = full();
        Place::of(|| pool.reserve(), || gate.open()).survives(act);
    });
}

#[test]
fn a_service_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (pool, gate) = full();
        let mut service = PollReserve::new(pool);
        let poll = move |waker: &Waker| {
            let polled = service.poll_reserve(&mut Context::from_waker(waker));
            polled.map(Result::unwrap)
        };
        let place = Place {
            poll: Box::new(poll),
            make_ready: Box::new(move || gate.open()),
        };
        place.survives(act);
    });
}

#[test]
fn the_end_of_a_blocking_pool_is_heard_after_a_waker_that_panics() {
    survives(|act| {
        let (pool, gate) = full();
        pool.shutdown();
        Place::of(|| pool.terminated(), || gate.open()).survives(act);
    });
}

#[test]
fn a_reserve_of_a_compute_pool_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (pool, gate) = full_compute();
        Place::of(|| pool.reserve(), || gate.open()).survives(act);
    });
}

#[test]
fn a_reserve_of_a_serial_executor_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let executor = SerialExecutor::builder().capacity(1).build(());
        let permit = ready(Box::pin(executor.reserve())).unwrap();
        Place::of(|| executor.reserve(), || drop(permit)).survives(act);
    });
}

#[test]
fn a_submitter_is_not_deaf_after_a_waker_that_panics() {
    survives(|act| {
        let (jobs, _done) = CompletionStream::<()>::builder().max_running(1).build();
        let open = ready(Box::pin(jobs.slot(()))).unwrap();
        Place::of(|| jobs.slot(()), || open.complete(())).survives(act);
    });
}

/// A pool of one thread, which is busy, and whose queue is full.
fn full() -> (BlockingPool, Gate) {
    let mut builder = BlockingPool::builder();
    let pool = builder.max_threads(1).queue_capacity(0).build().unwrap();
    let (busy, gate) = keep_busy(&pool);
    drop(busy);
    (pool, gate)
}

fn full_compute() -> (ComputePool, Gate) {
    let mut builder = ComputePool::builder();
    let pool = builder.threads(1).max_outstanding(1).build().unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    let (entered, has_entered) = std::sync::mpsc::channel();
    pool.execute(move || {
        entered.send(()).unwrap();
        passed.pass();
    });
    receive(&has_entered);
    (pool, gate)
}

/// Has one wait that is woken and not polled again, and behind it one whose waker panics.
fn drop_one_that_was_woken<F: Future>(make: impl Fn() -> F, make_room: impl FnOnce()) {
    let (wakes, counts) = Wakes::new();
    let mut first = Box::pin(make());
    let mut second = Box::pin(make());
    assert!(poll_with(&counts, &mut first).is_pending());
    assert!(poll_with(&panicking_waker(), &mut second).is_pending());
    make_room();
    wait_until("the first is woken", || wakes.count() > 0);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(first)));
    assert!(
        dropped.is_ok(),
        "the waker of another was called uncontained"
    );
    // Its turn has been passed on.
    wait_until("the second has it", || {
        poll_with(Waker::noop(), &mut second).is_ready()
    });
}

#[test]
fn who_no_longer_waits_for_a_place_does_not_hear_the_panic_of_the_next() {
    let (pool, gate) = full();
    drop_one_that_was_woken(|| pool.reserve(), || gate.open());
    let (pool, gate) = full_compute();
    drop_one_that_was_woken(|| pool.reserve(), || gate.open());

    let executor = SerialExecutor::builder().capacity(1).build(());
    let permit = ready(Box::pin(executor.reserve())).unwrap();
    drop_one_that_was_woken(|| executor.reserve(), || drop(permit));

    let (jobs, _done) = CompletionStream::<()>::builder().max_running(1).build();
    let open = ready(Box::pin(jobs.slot(()))).unwrap();
    drop_one_that_was_woken(|| jobs.slot(()), || open.complete(()));
}
