//! Futures that are too large for a recycled cell: each is a Tokio task.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::yield_now;

use crate::support::{Dropped, Drops, PanicsOnDrop, current_thread, eventually, message, within};
use crate::support::{multi_thread, poll};
use crate::{submit_on, take, unbounded};

/// A future that is larger than a recycled cell, and owns a value.
async fn large<O>(value: impl Sized, future: impl Future<Output = O>) -> O {
    let much = [1_u8; 300];
    let output = future.await;
    std::hint::black_box(&much);
    drop(value);
    output
}

#[tokio::test]
async fn large_futures_yield_their_outputs() {
    let (jobs, mut done) = unbounded();
    let captured = Drops::new();
    for n in 0..10 {
        let waits = async move {
            for _ in 0..n {
                yield_now().await;
            }
            n
        };
        let id = jobs
            .submit(n, large(captured.value(), waits))
            .await
            .unwrap();
        let completed = within(done.next()).await.unwrap();
        assert_eq!((completed.id, completed.tag), (id, n));
        assert_eq!(completed.outcome.unwrap(), n);
        // The future's values are dropped before its item can be read.
        assert_eq!(captured.count(), n + 1);
    }
}

#[tokio::test]
async fn panics_of_large_futures_are_items() {
    let (jobs, mut done) = unbounded();
    let captured = Drops::new();
    let panics = || -> usize { panic!("on purpose") };
    let future = large(captured.value(), async move { panics() });
    jobs.submit(0, future).await.unwrap();
    let error = within(done.next()).await.unwrap().outcome.unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
    assert_eq!(captured.count(), 1);

    // A panic in a drop when the future has ended is the outcome,
    let bomb = PanicsOnDrop(captured.value());
    jobs.submit(1, large(bomb, async { 7 })).await.unwrap();
    assert!(
        within(done.next())
            .await
            .unwrap()
            .outcome
            .unwrap_err()
            .is_panic()
    );

    // but not a panic in a drop when the future is aborted.
    let bomb = PanicsOnDrop(captured.value());
    let id = jobs.submit(2, large(bomb, pending())).await.unwrap();
    assert!(jobs.abort(id));
    let error = within(done.next()).await.unwrap().outcome.unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(captured.count(), 3);
}

#[tokio::test]
async fn an_abort_ends_a_large_future_polled_or_not() {
    let (jobs, mut done) = unbounded::<()>();
    let captured = Drops::new();
    for polled in [true, false] {
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let future = async move {
            begins.store(true, Ordering::SeqCst);
            pending().await
        };
        let id = jobs
            .submit(0, large(captured.value(), future))
            .await
            .unwrap();
        if polled {
            eventually("it was polled", || begun.load(Ordering::SeqCst)).await;
        }
        assert!(jobs.abort(id));
        assert!(
            within(done.next())
                .await
                .unwrap()
                .outcome
                .unwrap_err()
                .is_cancelled()
        );
        assert_eq!(begun.load(Ordering::SeqCst), polled);
        assert!(!jobs.abort(id));
    }
    assert_eq!(captured.count(), 2);
}

/// The abort comes after the check whether the job was aborted, and before the waker is registered.
#[tokio::test]
async fn an_abort_during_a_poll_ends_a_large_future() {
    let (jobs, mut done) = unbounded::<()>();
    let captured = Drops::new();
    let aborts = jobs.clone();
    let future = async move {
        assert_eq!(aborts.abort_all(), 1);
        pending().await
    };
    jobs.submit(0, large(captured.value(), future))
        .await
        .unwrap();
    let completed = within(done.next()).await.unwrap();
    assert!(completed.outcome.unwrap_err().is_cancelled());
    assert_eq!(captured.count(), 1);
}

#[test]
fn a_runtime_that_shuts_down_cancels_large_futures() {
    let (jobs, mut done) = unbounded::<()>();
    let captured = Drops::new();
    let runtime = multi_thread(1, "goes");
    current_thread().block_on(async {
        for tag in 0..10 {
            let future = large(captured.value(), pending());
            submit_on(&jobs, runtime.handle(), tag, future)
                .await
                .unwrap();
        }
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        // The runtime is also gone for later jobs.
        let future = large(captured.value(), pending());
        submit_on(&jobs, &handle, 10, future).await.unwrap();
        for _ in 0..11 {
            let completed = within(done.next()).await.unwrap();
            assert!(completed.outcome.unwrap_err().is_cancelled());
        }
    });
    assert_eq!(captured.count(), 11);
}

#[test]
fn without_a_runtime_large_futures_are_rejected() {
    for in_place in [false, true] {
        let (jobs, mut done) = throng::CompletionStream::<(), usize>::builder()
            .poll_in_place(in_place)
            .build()
            .unwrap();
        let captured = Drops::new();
        let value: Dropped = captured.value();
        jobs.try_submit(0, large(value, pending())).unwrap();
        assert_eq!(captured.count(), 1);
        assert!(take(&mut done).outcome.unwrap_err().is_rejected());
        assert!(poll(&mut pin!(done.next())).is_pending());
    }
}
