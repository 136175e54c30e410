//! `detach`, which lets the jobs run on, and `shutdown`, which waits for them.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use throng::{BlockingPool, CompletionStream};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::support::{
    Drops, Gate, PanicsOnDrop, Wakes, block_on, eventually, poll_with, ready, receive, wait_until,
    within,
};
use super::{bounded, slot, take, unbounded};

#[tokio::test]
async fn a_detached_stream_lets_its_jobs_finish() {
    let (jobs, mut done) = bounded(8, 8);
    let outputs = Drops::new();
    let (open, opened) = oneshot::channel();
    let output = outputs.value();
    let future = async move {
        opened.await.unwrap();
        output
    };
    jobs.submit(0, future).await.unwrap();
    slot(&jobs, 1).complete(outputs.value());
    slot(&jobs, 2).complete(outputs.value());
    drop(take(&mut done));
    let promised = slot(&jobs, 3);
    let (wakes, waker) = Wakes::new();
    let mut waits = Box::pin(async {
        for tag in 4.. {
            std::mem::forget(jobs.slot(tag).await?);
        }
        Ok::<_, throng::Closed<usize>>(())
    });
    assert!(poll_with(&waker, &mut waits).is_pending());

    done.detach();
    // Unread completions are dropped, and no more jobs are accepted.
    assert_eq!(outputs.count(), 2);
    assert_eq!(wakes.count(), 1);
    assert!(ready(waits).is_err());
    // Running jobs are not aborted.
    assert!(!promised.is_aborted());
    promised.complete(outputs.value());
    assert_eq!(outputs.count(), 3);
    open.send(()).unwrap();
    eventually("the job has run", || outputs.count() == 4).await;
}

#[tokio::test]
async fn shutdown_waits_for_every_job() {
    let (jobs, done) = unbounded();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (gate, captured) = (Gate::new(), Drops::new());
    let (entered, has_entered) = channel();
    let (passed, value) = (gate.clone(), captured.value());
    let running = move || {
        entered.send(()).unwrap();
        passed.pass();
        drop(value);
        7
    };
    jobs.submit_blocking(&pool, 0, running).await.unwrap();
    receive(&has_entered);
    jobs.submit_blocking(&pool, 1, || 8).await.unwrap();
    jobs.submit(2, pending()).await.unwrap();
    slot(&jobs, 3).complete(9);
    let open = slot(&jobs, 4);

    let mut shutdown = Box::pin(done.shutdown(Duration::ZERO));
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut shutdown).is_pending());
    assert!(jobs.try_slot(5).unwrap_err().is_closed());
    assert!(open.is_aborted());
    drop(open);
    assert!(wakes.count() > 0);
    assert!(poll_with(&waker, &mut shutdown).is_pending());
    gate.open();
    let all = within(shutdown).await;
    assert_eq!(captured.count(), 1);

    let mut outcomes: Vec<_> = all.into_iter().map(|it| (it.tag, it.outcome)).collect();
    outcomes.sort_by_key(|(tag, _)| *tag);
    let [ran, queued, future, completed, dropped] = <[_; 5]>::try_from(outcomes).unwrap();
    assert_eq!((ran.0, ran.1.unwrap()), (0, 7));
    assert_eq!((queued.0, queued.1.unwrap_err().is_cancelled()), (1, true));
    assert_eq!((future.0, future.1.unwrap_err().is_cancelled()), (2, true));
    assert_eq!((completed.0, completed.1.unwrap()), (3, 9));
    assert_eq!(
        (dropped.0, dropped.1.unwrap_err().is_cancelled()),
        (4, true)
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_aborts_only_after_the_timeout() {
    let (jobs, done) = unbounded();
    let start = Instant::now();
    for seconds in [1, 3] {
        let future = tokio::time::sleep(Duration::from_secs(seconds));
        jobs.submit(0, future).await.unwrap();
    }
    let unread = done.shutdown(Duration::from_secs(2)).await;
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    let [first, second] = <[_; 2]>::try_from(unread).unwrap();
    first.outcome.unwrap();
    assert!(second.outcome.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn shutdown_returns_before_the_timeout_if_all_jobs_have_ended() {
    let (jobs, done) = unbounded();
    let start = Instant::now();
    jobs.submit(0, tokio::task::yield_now()).await.unwrap();
    let unread = done.shutdown(Duration::MAX).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(
        unread
            .into_iter()
            .all(|completed| completed.outcome.is_ok())
    );
}

#[test]
fn a_shutdown_that_is_not_awaited_drops_the_stream() {
    let (jobs, done) = unbounded();
    let outputs = Drops::new();
    slot(&jobs, 0).complete(outputs.value());
    let open = slot(&jobs, 1);
    drop(done.shutdown(Duration::ZERO));
    assert_eq!(outputs.count(), 1);
    assert!(open.is_aborted() && jobs.is_closed());
}

#[test]
fn shutdown_of_an_idle_stream_is_ready_at_once() {
    let (jobs, done) = unbounded::<()>();
    assert!(ready(pin!(done.shutdown(Duration::ZERO))).is_empty());
    assert!(jobs.is_closed());
}

#[test]
fn a_panic_in_a_drop_does_not_stop_detach() {
    let (jobs, done) = CompletionStream::builder().build().unwrap();
    let outputs = Drops::new();
    for tag in 0..2 {
        let slot = ready(pin!(jobs.slot(tag))).unwrap();
        slot.complete(PanicsOnDrop(outputs.value()));
    }
    let open = ready(pin!(jobs.slot(2))).unwrap();
    done.detach();
    assert_eq!(outputs.count(), 2);
    open.complete(PanicsOnDrop(outputs.value()));
    assert_eq!(outputs.count(), 3);
}

#[test]
fn detached_closures_run_to_their_end() {
    let (jobs, done) = unbounded();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let gate = Gate::new();
    let ran = Arc::new(AtomicBool::new(false));
    let passed = gate.clone();
    block_on(jobs.submit_blocking(&pool, 0, move || passed.pass())).unwrap();
    let runs = Arc::clone(&ran);
    let queued = move || runs.store(true, Ordering::SeqCst);
    block_on(jobs.submit_blocking(&pool, 1, queued)).unwrap();
    done.detach();
    gate.open();
    wait_until("the queued closure has run", || ran.load(Ordering::SeqCst));
}

/// Runs the other tasks of this thread until they wait.
async fn let_others_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closed_waits_for_the_close_and_then_for_each_job() {
    let (jobs, mut done) = bounded(4, 4);
    let mut slots: Vec<_> = (0..3).map(|tag| slot(&jobs, tag)).collect();
    let waits = [(); 3].map(|()| {
        let jobs = jobs.clone();
        tokio::spawn(async move { jobs.closed().await })
    });
    let is_waiting = || waits.iter().all(|wait| !wait.is_finished());
    let_others_run().await;
    assert!(is_waiting());
    jobs.close();
    while let Some(slot) = slots.pop() {
        let_others_run().await;
        assert!(is_waiting());
        slot.complete(());
    }
    for wait in waits {
        within(wait).await.unwrap();
    }
    within(jobs.closed()).await;
    for _ in 0..3 {
        assert!(take(&mut done).outcome.is_ok());
    }
}

#[tokio::test]
async fn closed_returns_when_an_idle_stream_is_closed() {
    let (jobs, _done) = bounded::<()>(4, 4);
    let waiting = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.closed().await }
    });
    let_others_run().await;
    assert!(!waiting.is_finished());
    jobs.close();
    within(waiting).await.unwrap();
}

/// The others are a wait for the end, and a submission that has lost so often that the next permit is for it.
#[tokio::test]
async fn closed_does_not_depend_on_waits_that_are_not_polled() {
    let (jobs, _done) = bounded(1, 10);
    let mut running = slot(&jobs, 0);
    let mut submission = Box::pin(jobs.slot(1));
    let waker = std::task::Waker::noop();
    assert!(poll_with(waker, &mut submission).is_pending());
    for tag in 2..4 {
        running.complete(());
        running = slot(&jobs, tag);
        assert!(poll_with(waker, &mut submission).is_pending());
    }
    jobs.close();
    let mut first = Box::pin(jobs.closed());
    assert!(poll_with(waker, &mut first).is_pending());
    let waiting = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.closed().await }
    });
    let_others_run().await;
    running.complete(());
    within(waiting).await.unwrap();
}

#[tokio::test]
async fn closed_waits_for_an_unused_permit() {
    let (jobs, _done) = bounded::<()>(4, 4);
    let permit = jobs.reserve().await.unwrap();
    let waiting = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.closed().await }
    });
    jobs.close();
    let_others_run().await;
    assert!(!waiting.is_finished());
    drop(permit);
    within(waiting).await.unwrap();
}

/// A stream that is dropped aborts its jobs, and its submitters can wait for their end.
#[tokio::test]
async fn closed_waits_for_the_jobs_of_a_dropped_stream() {
    let (jobs, done) = bounded::<()>(4, 4);
    jobs.submit(0, pending()).await.unwrap();
    let slot = slot(&jobs, 1);
    drop(done);
    let mut closed = Box::pin(jobs.closed());
    assert!(poll_with(std::task::Waker::noop(), &mut closed).is_pending());
    drop(slot);
    within(closed).await;
}

#[tokio::test]
async fn shutdown_now_aborts_the_jobs_and_ends_the_stream() {
    let (jobs, mut done) = bounded(4, 4);
    slot(&jobs, 0).complete(());
    jobs.submit(1, pending()).await.unwrap();
    assert_eq!(done.shutdown_now(), 1);
    assert!(jobs.is_closed());
    let outcomes = [within(done.next()).await, within(done.next()).await];
    let [first, second] = outcomes.map(|completed| completed.unwrap());
    assert!(first.tag == 0 && first.outcome.is_ok());
    assert!(second.tag == 1 && second.outcome.unwrap_err().is_cancelled());
    assert!(within(done.next()).await.is_none());
    assert_eq!(done.shutdown_now(), 0);
}
