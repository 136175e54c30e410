//! Panics of tasks, captures, outputs and wakers. The thread survives them all.

use std::future::Future;
use std::panic::{panic_any, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

use throng::BlockingPool;
use throng::blocking::{Builder, Metrics};

use crate::pools::{Busy, output, when, when_idle};
use crate::support::{self, Gate, join};

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Not while the test itself panics.
        if !thread::panicking() {
            panic_any("a bomb");
        }
    }
}

/// A payload whose drop panics with a payload of the same kind.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

/// A pool of one thread, which must survive the test.
struct OneThread {
    pool: BlockingPool,
    thread: ThreadId,
}

impl OneThread {
    fn new() -> Self {
        Self::of(BlockingPool::builder().max_threads(1))
    }

    fn with_queue_capacity(tasks: usize) -> Self {
        Self::of(BlockingPool::builder().max_threads(1).queue_capacity(tasks))
    }

    fn of(builder: &Builder) -> Self {
        let pool = builder.build().unwrap();
        let thread = output(pool.spawn_blocking(|| thread::current().id()));
        when_idle(&pool);
        Self { pool, thread }
    }

    /// Checks that the thread has survived, and returns what was counted.
    #[track_caller]
    fn check(self) -> Metrics {
        let thread = output(self.pool.spawn_blocking(|| thread::current().id()));
        assert_eq!(thread, self.thread);
        let mut metrics = when_idle(&self.pool);
        assert_eq!((metrics.threads, metrics.largest), (1, 1));
        let ended = metrics.completed + metrics.panicked + metrics.cancelled;
        assert_eq!(metrics.submitted, ended);
        metrics.completed -= 2;
        metrics
    }
}

#[test]
fn a_panic_of_the_closure_reaches_the_handle() {
    let one = OneThread::new();
    let error = join(one.pool.spawn_blocking(|| panic!("as it should"))).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    let said = error.into_panic().downcast::<&str>().unwrap();
    assert_eq!(*said, "as it should");

    let number = 7;
    let error = join(one.pool.spawn_blocking(move || panic!("number {number}"))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("panicked with message \"number 7\""),
        "{text}"
    );

    let error = join(one.pool.spawn_blocking(|| resume_unwind(Box::new(7)))).unwrap_err();
    let payload = error.try_into_panic().unwrap();
    assert_eq!(*payload.downcast::<i32>().unwrap(), 7);
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.panicked), (0, 3));
}

#[test]
fn a_panic_of_a_detached_task_is_counted() {
    let one = OneThread::new();
    let busy = Busy::keep(&one.pool, 1);
    drop(one.pool.spawn_blocking(|| panic!("as it should")));
    busy.release();
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.panicked), (1, 1));
}

#[test]
fn a_capture_of_an_aborted_closure_may_panic_in_its_drop() {
    let one = OneThread::new();
    let busy = Busy::keep(&one.pool, 1);
    let bomb = Bomb;
    let handle = one.pool.spawn_blocking(move || drop(bomb));
    // The panic is contained, and does not reach the caller.
    handle.abort();
    assert!(join(handle).unwrap_err().is_cancelled());
    busy.release();
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.cancelled), (1, 1));
}

#[test]
fn a_capture_may_panic_in_its_drop() {
    let one = OneThread::new();
    let bomb = Bomb;
    let handle = one.pool.spawn_blocking(move || {
        let _bomb = &bomb;
    });
    assert!(join(handle).unwrap_err().is_panic());
    assert_eq!(one.check().panicked, 1);
}

#[test]
fn the_output_of_a_detached_task_may_panic_in_its_drop() {
    let one = OneThread::new();
    let busy = Busy::keep(&one.pool, 1);
    drop(one.pool.spawn_blocking(|| Bomb));
    busy.release();
    let metrics = one.check();
    // The task has returned.
    assert_eq!((metrics.completed, metrics.panicked), (2, 0));
}

#[test]
fn a_panic_payload_of_a_detached_task_may_panic_in_its_drop() {
    let one = OneThread::new();
    let busy = Busy::keep(&one.pool, 1);
    drop(one.pool.spawn_blocking(|| panic_any(Payload)));
    drop(one.pool.spawn_blocking(|| panic_any(Bomb)));
    busy.release();
    assert_eq!(one.check().panicked, 2);
}

/// A waker that panics when it is used, or, with a bomb, when it is dropped afterwards.
struct PanicsInWake(#[allow(dead_code, reason = "for its drop")] Option<Bomb>);

impl Wake for PanicsInWake {
    fn wake(self: Arc<Self>) {
        assert!(self.0.is_some(), "as it should");
    }
}

impl PanicsInWake {
    /// One of each kind.
    fn both() -> [Waker; 2] {
        [None, Some(Bomb)].map(|bomb| Waker::from(Arc::new(Self(bomb))))
    }
}

/// Polls with a waker, and leaves its last reference to the future.
#[track_caller]
fn poll_with(waker: Waker, future: &mut (impl Future + Unpin)) {
    assert!(support::poll_with(&waker, future).is_pending());
}

#[test]
fn the_waker_of_a_handle_may_panic() {
    for waker in PanicsInWake::both() {
        let one = OneThread::new();
        let gate = Gate::new();
        let mut handle = pin!(one.pool.spawn_blocking({
            let gate = gate.clone();
            move || gate.pass()
        }));
        poll_with(waker, &mut handle);
        gate.open();
        let metrics = one.check();
        assert_eq!((metrics.completed, metrics.panicked), (1, 0));
    }
}

#[test]
fn the_waker_of_a_reservation_may_panic() {
    for waker in PanicsInWake::both() {
        let one = OneThread::with_queue_capacity(0);
        let pool = one.pool.clone();
        let busy = Busy::keep(&pool, 1);
        let mut waiting = pin!(pool.reserve());
        poll_with(waker, &mut waiting);
        busy.release();
        when_idle(&pool);
        assert_eq!(one.check().completed, 1);
    }
}

#[test]
fn the_waker_of_closed_may_panic() {
    for waker in PanicsInWake::both() {
        let pool = OneThread::new().pool;
        let mut waiting = pin!(pool.closed());
        poll_with(waker, &mut waiting);
        pool.close();
        when(&pool, |metrics| metrics.threads == 0);
    }
    for waker in PanicsInWake::both() {
        let pool = BlockingPool::builder().build().unwrap();
        let mut waiting = pin!(pool.closed());
        poll_with(waker, &mut waiting);
        // There is no thread, so `close` calls the waker.
        pool.close();
    }
}
