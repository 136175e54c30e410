//! Slots: they are completed from anywhere, and their holder can wait for an abort.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;

use throng::{BlockingPool, SerialExecutor};

use super::support::{Wakes, block_on, poll_with, ready, within};
use super::{slot, take, unbounded};

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

#[test]
fn aborted_is_ready_after_an_abort() {
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
fn aborted_is_ready_after_the_stream_is_dropped() {
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
fn a_dropped_wait_for_an_abort_is_not_woken() {
    let (jobs, mut done) = unbounded();
    let mut open = slot(&jobs, 0);
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut pin!(open.aborted())).is_pending());
    open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
    assert_eq!(wakes.count(), 0);
    // Only this test has the waker.
    drop(waker);
    assert_eq!(Arc::strong_count(&wakes), 1);
}

#[test]
fn a_panic_in_the_drop_of_a_waiting_waker_is_contained() {
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
    // The slot has the last clone now.
    drop(waker);
    open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
}
