//! Slots that nobody wants any more.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;

use crate::support::{Wakes, block_on, poll_with, ready};
use crate::{slot, take, unbounded};

#[test]
fn who_holds_a_slot_learns_of_an_abort() {
    let (jobs, mut done) = unbounded::<()>();
    let mut open = slot(&jobs, 0);
    let id = open.id();
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut pin!(open.aborted())).is_pending());
    assert!(jobs.abort(id));
    assert_eq!(wakes.count(), 1);
    ready(pin!(open.aborted()));

    drop(open);
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
}

#[test]
fn who_holds_a_slot_learns_that_the_stream_is_gone() {
    let (jobs, done) = unbounded::<()>();
    let mut open = slot(&jobs, 0);
    let waits = thread::spawn(move || block_on(open.aborted()));
    drop(done);
    waits.join().unwrap();
}

#[test]
fn a_slot_that_was_aborted_can_be_completed() {
    let (jobs, mut done) = unbounded();
    let open = slot(&jobs, 0);
    assert!(jobs.abort(open.id()));
    open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
}

#[test]
fn one_who_waits_for_an_abort_and_is_gone_is_not_woken() {
    let (jobs, mut done) = unbounded();
    let mut open = slot(&jobs, 0);
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut pin!(open.aborted())).is_pending());
    open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
    assert_eq!(wakes.count(), 0);
    // Nobody keeps the waker but this test.
    drop(waker);
    assert_eq!(Arc::strong_count(&wakes), 1);
}

#[test]
fn a_panic_in_the_drop_of_the_waker_of_who_waited_is_contained() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the drop of a waker panics");
        }
    }
    let (jobs, mut done) = unbounded();
    let mut open = slot(&jobs, 0);
    let waker = Waker::from(Arc::new(Bomb));
    assert!(poll_with(&waker, &mut pin!(open.aborted())).is_pending());
    // The slot has the last of them now.
    drop(waker);
    open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
}
