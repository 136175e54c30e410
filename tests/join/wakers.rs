//! Wakers that panic: the panic reaches at most the task that polls with that waker, and the next poll registers as
//! if nothing had happened.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::stream::Stream;
use throng::{BlockingPool, ComputePool, PollReserve};

use crate::faulty_waker::{Act, FaultyWaker};
use crate::parts::{Part, bounded_compute_pool, bounded_executor, stream, stream_of_one};
use crate::support::{
    Drops, Gate, PanicsOnDrop, Wakes, block_on, join, panicking_waker, poll_with, ready, receive,
    wait_until,
};
use crate::{busy_and_full, busy_pool};

type PollWith<'a> = dyn FnMut(&Waker) -> Poll<()> + 'a;

/// Something that stores a waker: it is polled with one, and made ready once.
struct Registration<'a> {
    poll: Box<PollWith<'a>>,
    make_ready: Box<dyn FnOnce() + 'a>,
}

impl<'a> Registration<'a> {
    /// A future. It is created again if a poll of it panics.
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

    /// Polls with a waker that panics in this function, and then with one that counts.
    fn survives(mut self, act: Act) {
        let (faulty, waker) = FaultyWaker::panicking_in(act);
        if act == Act::Clone {
            faulty.arm();
            let polled = catch_unwind(AssertUnwindSafe(|| (self.poll)(&waker)));
            assert!(
                polled.is_err(),
                "the poll does not report the panic of its waker"
            );
        } else {
            assert!((self.poll)(&waker).is_pending());
            faulty.arm();
        }
        let (wakes, counts) = Wakes::new();
        assert!((self.poll)(&counts).is_pending());
        assert!(!faulty.disarm(), "it has not panicked");
        assert_eq!(wakes.count(), 0);
        (self.make_ready)();
        wait_until("it is woken", || wakes.count() > 0);
        // The waiter is woken before the permit can be acquired.
        wait_until("it is ready", || (self.poll)(&counts).is_ready());
    }
}

/// Checks both functions in which a waker can panic while another one is registered.
fn survives(check: impl Fn(Act)) {
    check(Act::Clone);
    check(Act::Drop);
}

#[test]
fn a_stream_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (jobs, mut done) = stream::<u8, ()>();
        let open = ready(Box::pin(jobs.slot(()))).unwrap();
        let poll = move |waker: &Waker| {
            let polled = Pin::new(&mut done).poll_next(&mut Context::from_waker(waker));
            polled.map(|item| assert_eq!(item.unwrap().outcome.unwrap(), 7))
        };
        let registration = Registration {
            poll: Box::new(poll),
            make_ready: Box::new(|| open.complete(7)),
        };
        registration.survives(act);
    });
}

#[test]
fn the_abort_of_a_slot_wakes_after_a_panic_of_a_waker() {
    survives(|act| {
        let (jobs, _done) = stream::<(), ()>();
        let mut open = ready(Box::pin(jobs.slot(()))).unwrap();
        let id = open.id();
        let registration = Registration {
            poll: Box::new(move |waker| poll_with(waker, &mut Box::pin(open.aborted()))),
            make_ready: Box::new(move || assert!(jobs.abort(id))),
        };
        registration.survives(act);
    });
}

#[test]
fn a_wrapped_future_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (jobs, _done) = stream::<(), ()>();
        let (id, mut job) = ready(Box::pin(jobs.wrap((), std::future::pending()))).unwrap();
        let registration = Registration {
            poll: Box::new(move |waker| poll_with(waker, &mut job)),
            make_ready: Box::new(move || assert!(jobs.abort(id))),
        };
        registration.survives(act);
    });
}

#[test]
fn a_handle_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (_pool, mut busy, gate) = busy_pool();
        let registration = Registration {
            poll: Box::new(move |waker| poll_with(waker, &mut busy).map(Result::unwrap)),
            make_ready: Box::new(move || gate.open()),
        };
        registration.survives(act);
    });
}

#[test]
fn reserve_of_a_blocking_pool_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (pool, gate) = busy_and_full();
        Registration::of(|| pool.reserve(), || gate.open()).survives(act);
    });
}

#[test]
fn poll_reserve_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (pool, gate) = busy_and_full();
        let mut service = PollReserve::new(pool);
        let poll = move |waker: &Waker| {
            let polled = service.poll_reserve(&mut Context::from_waker(waker));
            polled.map(|permit| drop(permit.unwrap()))
        };
        let registration = Registration {
            poll: Box::new(poll),
            make_ready: Box::new(move || gate.open()),
        };
        registration.survives(act);
    });
}

#[test]
fn the_end_of_a_blocking_pool_wakes_after_a_panic_of_a_waker() {
    survives(|act| {
        let (pool, gate) = busy_and_full();
        pool.close();
        Registration::of(|| pool.closed(), || gate.open()).survives(act);
    });
}

#[test]
fn reserve_of_a_compute_pool_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (pool, gate) = full_compute();
        Registration::of(|| pool.reserve(), || gate.open()).survives(act);
    });
}

#[test]
fn reserve_of_a_serial_executor_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let executor = bounded_executor();
        let permit = ready(Box::pin(executor.reserve())).unwrap();
        Registration::of(|| executor.reserve(), || drop(permit)).survives(act);
    });
}

#[test]
fn a_submitter_is_woken_after_a_panic_of_a_waker() {
    survives(|act| {
        let (jobs, _done) = stream_of_one::<(), ()>();
        let open = ready(Box::pin(jobs.slot(()))).unwrap();
        Registration::of(|| jobs.slot(()), || open.complete(())).survives(act);
    });
}

fn full_compute() -> (ComputePool, Gate) {
    let pool = bounded_compute_pool();
    let gate = Gate::new();
    let passed = gate.clone();
    let (entered, has_entered) = channel();
    pool.execute(move || {
        entered.send(()).unwrap();
        passed.pass();
    });
    receive(&has_entered);
    (pool, gate)
}

/// Drops a waiter that was woken and not polled again. The waker of the next waiter panics.
fn drop_one_that_was_woken<F: Future>(make: impl Fn() -> F, make_ready: impl FnOnce()) {
    let (wakes, counts) = Wakes::new();
    let mut first = Box::pin(make());
    let mut second = Box::pin(make());
    assert!(poll_with(&counts, &mut first).is_pending());
    assert!(poll_with(&panicking_waker(), &mut second).is_pending());
    make_ready();
    wait_until("the first is woken", || wakes.count() > 0);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(first)));
    assert!(
        dropped.is_ok(),
        "the panic of another waker was not contained"
    );
    // The wake-up was passed on.
    wait_until("the second is ready", || {
        poll_with(Waker::noop(), &mut second).is_ready()
    });
}

#[test]
fn a_dropped_waiter_passes_its_turn_on_and_contains_the_panic_of_the_next() {
    let (pool, gate) = busy_and_full();
    drop_one_that_was_woken(|| pool.reserve(), || gate.open());
    let (pool, gate) = full_compute();
    drop_one_that_was_woken(|| pool.reserve(), || gate.open());

    let executor = bounded_executor();
    let permit = ready(Box::pin(executor.reserve())).unwrap();
    drop_one_that_was_woken(|| executor.reserve(), || drop(permit));

    let (jobs, _done) = stream_of_one::<(), ()>();
    let open = ready(Box::pin(jobs.slot(()))).unwrap();
    drop_one_that_was_woken(|| jobs.slot(()), || open.complete(()));
}

// ===== The parts continue to work =====

struct PanicsInDrop(#[allow(dead_code, reason = "for its drop")] PanicsOnDrop);

impl Wake for PanicsInDrop {
    fn wake(self: Arc<Self>) {}
}

/// Makes wakers that panic when they are used, or when they are dropped after that.
const PANICKING_WAKERS: [fn() -> Waker; 2] = [panicking_waker, || {
    Waker::from(Arc::new(PanicsInDrop(PanicsOnDrop(Drops::new().value()))))
}];

/// Polls a future, which keeps the last reference to the waker.
#[track_caller]
fn waits_with(waker: Waker, future: &mut (impl Future + Unpin)) {
    assert!(poll_with(&waker, future).is_pending());
    // A panic of its drop would be one of the test.
    drop(waker);
}

#[test]
fn a_panic_of_the_waker_of_a_handle_is_contained() {
    for part in Part::all() {
        let thread = part.thread();
        for waker in PANICKING_WAKERS {
            let (mut busy, gate) = part.keep_busy();
            waits_with(waker(), &mut busy);
            gate.open();
            assert_eq!(part.thread(), thread, "{part:?}");
            join(busy).unwrap();
        }
        // The same when an abort wakes it.
        for waker in PANICKING_WAKERS {
            let (busy, gate) = part.keep_busy();
            let mut aborted = part.spawn(|| ());
            waits_with(waker(), &mut aborted);
            aborted.abort();
            assert!(ready(aborted).unwrap_err().is_cancelled());
            gate.open();
            join(busy).unwrap();
        }
        assert_eq!(part.thread(), thread, "{part:?}");
        part.has_panicked(0);
    }
}

#[test]
fn a_panic_of_the_waker_of_a_reservation_is_contained() {
    for waker in PANICKING_WAKERS {
        let (pool, gate) = busy_and_full();
        let mut waiting = Box::pin(pool.reserve());
        waits_with(waker(), &mut waiting);
        gate.open();
        // The permit is reserved for the waiter, although its waker has panicked.
        let permit = block_on(waiting).unwrap();
        join(permit.spawn_blocking(|| ())).unwrap();
        assert_eq!(pool.metrics().largest, 1);
    }
    for waker in PANICKING_WAKERS {
        let (pool, gate) = full_compute();
        let mut waiting = Box::pin(pool.reserve());
        waits_with(waker(), &mut waiting);
        gate.open();
        let permit = block_on(waiting).unwrap();
        join(permit.spawn(|| ())).unwrap();
        assert_eq!(pool.metrics().panicked, 0);
    }
}

/// Two futures wait for one event, which is not lost for the second although the waker of the first panics.
#[track_caller]
fn wakes_both<F: Future>(waker: Waker, make: impl Fn() -> F, make_ready: impl FnOnce()) {
    let (woken, counts) = Wakes::new();
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(make()));
    waits_with(waker, &mut first);
    assert!(poll_with(&counts, &mut second).is_pending());
    make_ready();
    wait_until("the second is woken", || woken.count() > 0);
    // A serial executor wakes its waiters more than once.
    for future in [&mut first, &mut second] {
        wait_until("it is ready", || {
            poll_with(Waker::noop(), future).is_ready()
        });
    }
}

#[test]
fn all_waiters_of_closed_are_woken_although_a_waker_panics() {
    for waker in PANICKING_WAKERS {
        for part in Part::all() {
            let (busy, gate) = part.keep_busy();
            part.close();
            wakes_both(waker(), || part.closed(), || gate.open());
            join(busy).unwrap();
        }
        // `close` itself wakes those who wait for an idle part.
        for part in Part::all() {
            wakes_both(waker(), || part.closed(), || part.close());
        }
    }
}

#[test]
fn all_waiters_of_reserve_are_woken_by_close_although_a_waker_panics() {
    for waker in PANICKING_WAKERS {
        let (pool, gate) = busy_and_full();
        wakes_both(waker(), || pool.reserve(), || pool.close());
        gate.open();
        let (pool, gate) = full_compute();
        wakes_both(waker(), || pool.reserve(), || pool.close());
        gate.open();
        let executor = bounded_executor();
        let permit = ready(Box::pin(executor.reserve())).unwrap();
        wakes_both(waker(), || executor.reserve(), || executor.close());
        drop(permit);
    }
}

#[tokio::test]
async fn a_panic_of_a_waker_costs_the_pool_no_thread() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let (open, opened) = channel();
    let running = pool.spawn_blocking(move || opened.recv().unwrap());
    {
        let mut waiting = pin!(pool.reserve());
        assert!(poll_with(&panicking_waker(), &mut waiting).is_pending());
        open.send(()).unwrap();
        running.await.unwrap();
    }
    let permit = pool.reserve().await.unwrap();
    permit.spawn_blocking(|| ()).await.unwrap();
    {
        let permit = pool.reserve().await.unwrap();
        let mut waiting = pin!(pool.reserve());
        assert!(poll_with(&panicking_waker(), &mut waiting).is_pending());
        pool.close();
        drop(permit);
    }
    pool.closed().await;
    assert_eq!(pool.metrics().threads, 0);
}

#[tokio::test]
async fn a_panic_of_a_waker_costs_the_stream_no_item() {
    let (jobs, mut done) = stream_of_one::<u32, u32>();
    let slot = jobs.slot(1).await.unwrap();
    let mut waiting = pin!(jobs.slot(2));
    assert!(poll_with(&panicking_waker(), &mut waiting).is_pending());
    slot.complete(7);
    assert_eq!(done.next().await.unwrap().outcome.unwrap(), 7);
}

#[tokio::test]
async fn the_end_of_a_stream_does_not_wait_for_a_submitter_whose_waker_panicked() {
    let (jobs, mut done) = stream_of_one::<u32, u32>();
    let slot = jobs.slot(1).await.unwrap();
    let mut waiting = pin!(jobs.slot(2));
    assert!(poll_with(&panicking_waker(), &mut waiting).is_pending());
    jobs.close();
    slot.complete(7);
    assert_eq!(done.next().await.unwrap().tag, 1);
    let end = tokio::time::timeout(Duration::from_secs(20), done.next()).await;
    assert!(end.expect("the end does not come").is_none());
    assert!(waiting.await.is_err());
}
