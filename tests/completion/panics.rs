//! Panics in wakers and drops of the user.

use std::future::pending;
use std::pin::pin;

use throng::{BlockingPool, CompletionStream};

use super::support::{
    Drops, PanicsOnDrop, current_thread, panicking_waker, poll_with, ready, within,
};
use super::{bounded, poll_next, slot, take, unbounded};

#[test]
fn a_panic_in_the_readers_waker_loses_no_completion() {
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
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
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
    // When the runtime drops it,
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

    // when no pool accepts it,
    let pool = BlockingPool::builder().build().unwrap();
    pool.close();
    let bomb = PanicsOnDrop(captured.value());
    let closure = move || drop(bomb);
    jobs.submit_blocking(&pool, 1, closure).await.unwrap();
    let completed = within(done.next()).await.unwrap();
    assert!(completed.outcome.unwrap_err().is_rejected());

    // and when the stream is dropped, which also drops the others.
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
fn a_panic_in_a_waker_that_waits_for_a_running_job_is_contained() {
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
fn a_panic_in_a_waker_that_waits_for_the_reader_is_contained() {
    let (jobs, mut done) = bounded(1, 1);
    slot(&jobs, 0).complete(());
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll_with(&panicking_waker(), &mut waits).is_pending());
    assert_eq!(take(&mut done).tag, 0);
    ready(waits).unwrap().complete(());
    assert_eq!(take(&mut done).tag, 1);
}

#[test]
fn a_panic_in_a_waiting_waker_does_not_stop_a_close() {
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
