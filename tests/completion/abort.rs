//! Aborting jobs by id, and all jobs.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use throng::BlockingPool;

use super::support::{Drops, Gate, block_on, eventually, poll, ready, receive, rounds, within};
use super::{bounded, slot, take, unbounded};

#[tokio::test]
async fn a_future_is_aborted_polled_or_not() {
    let (jobs, mut done) = unbounded::<()>();
    for polled in [false, true] {
        let captured = Drops::new();
        let value = captured.value();
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        let future = async move {
            let _value = value;
            begins.store(true, Ordering::SeqCst);
            pending().await
        };
        let other = slot(&jobs, 1);
        let id = jobs.submit(0, future).await.unwrap();
        if polled {
            eventually("it is polled", || began.load(Ordering::SeqCst)).await;
        }
        assert!(jobs.abort(id));
        let completed = within(done.next()).await.unwrap();
        assert_eq!((completed.id, completed.tag), (id, 0));
        assert!(completed.outcome.unwrap_err().is_cancelled());
        assert_eq!(captured.count(), 1);
        // The other jobs are not aborted.
        assert!(!other.is_aborted());
        other.complete(());
        take(&mut done).outcome.unwrap();
    }
}

#[test]
fn a_running_closure_is_not_aborted() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (gate, captured) = (Gate::new(), Drops::new());
    let (entered, has_entered) = channel();
    let passed = gate.clone();
    let running = move || {
        entered.send(()).unwrap();
        passed.pass();
        "ran"
    };
    let running = ready(pin!(jobs.submit_blocking(&pool, 0, running))).unwrap();
    receive(&has_entered);
    let value = captured.value();
    let queued = move || {
        drop(value);
        "never runs"
    };
    let queued = ready(pin!(jobs.submit_blocking(&pool, 1, queued))).unwrap();

    assert!(jobs.abort(queued));
    assert_eq!(captured.count(), 1);
    let completed = take(&mut done);
    assert_eq!(completed.id, queued);
    assert!(completed.outcome.unwrap_err().is_cancelled());

    assert!(jobs.abort(running));
    assert!(poll(&mut pin!(done.next())).is_pending());
    gate.open();
    let completed = block_on(done.next()).unwrap();
    assert_eq!(completed.id, running);
    assert_eq!(completed.outcome.unwrap(), "ran");
}

#[test]
fn a_finished_job_is_not_aborted() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    let id = promised.id();
    promised.complete(7);
    // First unread, then read.
    assert!(!jobs.abort(id));
    assert_eq!(jobs.abort_all(), 0);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
    assert!(!jobs.abort(id));

    let (others, _rest) = unbounded::<()>();
    let unknown = slot(&others, 0);
    assert!(!jobs.abort(unknown.id()));
    assert!(!unknown.is_aborted());
}

#[test]
fn an_aborted_slot_can_be_completed_but_runs_nothing() {
    let (jobs, mut done) = unbounded();
    let promised = slot(&jobs, 0);
    assert!(jobs.abort(promised.id()));
    assert!(promised.is_aborted());
    assert!(poll(&mut pin!(done.next())).is_pending());
    // It can still be completed. A closure is dropped without being called.
    promised.complete("completed");
    assert_eq!(take(&mut done).outcome.unwrap(), "completed");

    let promised = slot(&jobs, 1);
    assert!(jobs.abort(promised.id()));
    let captured = Drops::new();
    let value = captured.value();
    promised.run(move || {
        drop(value);
        panic!("it runs")
    });
    assert_eq!(captured.count(), 1);
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn abort_all_leaves_the_stream_open() {
    let (jobs, mut done) = bounded(8, 8);
    for tag in 0..4 {
        jobs.submit(tag, pending()).await.unwrap();
    }
    slot(&jobs, 4).complete(());
    let open = slot(&jobs, 5);
    assert_eq!(jobs.abort_all(), 5);
    assert!(open.is_aborted());
    drop(open);

    let mut cancelled = 0;
    for _ in 0..6 {
        let completed = within(done.next()).await.unwrap();
        match completed.tag {
            4 => completed.outcome.unwrap(),
            _ => {
                assert!(completed.outcome.unwrap_err().is_cancelled());
                cancelled += 1;
            }
        }
    }
    assert_eq!((cancelled, jobs.in_flight()), (5, 0));
    jobs.submit(6, async {}).await.unwrap();
    within(done.next()).await.unwrap().outcome.unwrap();
}

#[test]
fn an_abort_against_a_completion_leaves_one_item() {
    for _ in 0..rounds(300, 30_000) {
        let (jobs, mut done) = unbounded();
        let promised = slot(&jobs, 0);
        let id = promised.id();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                promised.run(|| 7);
            });
            start.wait();
            jobs.abort(id);
        });
        match take(&mut done).outcome {
            Ok(output) => assert_eq!(output, 7),
            Err(error) => assert!(error.is_cancelled()),
        }
        assert_eq!(jobs.in_flight(), 0);
    }
}
