//! Dropping a stream.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use throng::{BlockingPool, CompletionStream};

use super::support::{Drops, Gate, block_on, eventually, ready, receive, rounds, wait_until};
use super::unbounded;

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
        // The first half is polled before the stream is dropped.
        if tag == 4 {
            eventually("they are polled", || polled.load(Ordering::SeqCst) == 5).await;
        }
    }
    drop(done);
    // Futures that were not polled are dropped at once, the others soon.
    assert!(captured.count() >= 5);
    eventually("all are dropped", || captured.count() == 10).await;
    assert_eq!(polled.load(Ordering::SeqCst), 5);

    let error = jobs.submit(7, async {}).await.unwrap_err();
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
    // The running closure goes on, and its output is dropped.
    gate.open();
    wait_until("the output is dropped", || outputs.count() == 5);
    assert_eq!(captured.count(), 5);
    assert!(has_entered.try_recv().is_err());
}

#[test]
fn dropping_the_stream_drops_what_is_unread() {
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    let (outputs, tags) = (Drops::new(), Drops::new());
    for _ in 0..10 {
        let slot = ready(pin!(jobs.slot(tags.value()))).unwrap();
        slot.complete(outputs.value());
    }
    // One was read. The others were taken from the queue at the same time.
    drop(ready(pin!(done.next())));
    assert_eq!((outputs.count(), tags.count()), (1, 1));
    let late = ready(pin!(jobs.slot(tags.value()))).unwrap();
    late.complete(outputs.value());
    drop(done);
    assert_eq!((outputs.count(), tags.count()), (11, 11));
}

#[test]
fn dropping_the_stream_aborts_open_slots() {
    let (jobs, done) = CompletionStream::builder().build().unwrap();
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
fn slots_complete_while_the_stream_is_dropped() {
    for _ in 0..rounds(300, 30_000) {
        let (jobs, mut done) = CompletionStream::builder().build().unwrap();
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
        // Output and tag of each accepted job, and the tag of each rejected one.
        assert!(outputs.count() <= tags.count());
        assert_eq!(outputs.count(), outputs.made());
        assert_eq!(tags.count(), tags.made());
    }
}
