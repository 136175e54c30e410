//! `all`, `all_or_abort` and `first_ok`: a fixed number of futures.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use throng::CompletionStream;
use throng::completion::JobError;

use super::support::{Drops, eventually, message, multi_thread, poll, within};
use super::{completed, output};

#[tokio::test]
async fn all_returns_outcomes_in_the_order_of_the_iterator() {
    let futures = (0..100_usize).map(|n| async move {
        for _ in 0..(100 - n) % 7 {
            tokio::task::yield_now().await;
        }
        assert!(n != 50, "not this one");
        n
    });
    let outcomes = within(CompletionStream::all(futures)).await;
    assert_eq!(outcomes.len(), 100);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(output) => assert_eq!(output, n),
            Err(error) => assert_eq!(
                (n, message(error.into_panic())),
                (50, "not this one".into())
            ),
        }
    }
    let none: [std::future::Ready<()>; 0] = [];
    assert!(within(CompletionStream::all(none)).await.is_empty());
}

#[test]
fn many_run_some_at_a_time() {
    let most = Arc::new(AtomicUsize::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    multi_thread(2, "worker").block_on(async {
        let futures = (0..5_000).map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
        assert_eq!(within(CompletionStream::all(futures)).await.len(), 5_000);
    });
    assert!(most.load(Ordering::SeqCst) <= 1_024);
}

/// A future that is never ready.
fn never(captured: &Drops) -> BoxFuture<'static, Result<u32, &'static str>> {
    let value = captured.value();
    async move {
        let _value = value;
        pending().await
    }
    .boxed()
}

#[tokio::test]
async fn the_first_failure_aborts_the_others() {
    let captured = Drops::new();
    let futures = [
        ready(Ok(1)).boxed(),
        never(&captured),
        ready(Err("no")).boxed(),
    ];
    let error = within(CompletionStream::all_or_abort(futures)).await;
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert!(matches!(error, JobError::Failed("no")));
    eventually("the other is dropped", || captured.count() == 1).await;

    let panics = async { panic!("on purpose") };
    let futures = [never(&captured), panics.boxed()];
    let error = within(CompletionStream::all_or_abort(futures)).await;
    let JobError::Ended(error) = error.unwrap_err() else {
        panic!("it did not return");
    };
    assert_eq!(message(error.into_panic()), "on purpose");
    eventually("the other is dropped", || captured.count() == 2).await;

    let futures = (0..10).map(|n| ready(Ok::<_, ()>(n)));
    let outputs = within(CompletionStream::all_or_abort(futures)).await;
    assert!(outputs.unwrap().into_iter().eq(0..10));
}

#[tokio::test]
async fn after_a_failure_no_other_is_started() {
    let made = AtomicUsize::new(0);
    let futures = (0..100_000).map(|n| {
        made.fetch_add(1, Ordering::SeqCst);
        ready(if n == 10 { Err(n) } else { Ok(n) })
    });
    let error = within(CompletionStream::all_or_abort(futures)).await;
    assert!(matches!(error, Err(JobError::Failed(10))));
    assert!(made.into_inner() < 10_000);
}

#[tokio::test]
async fn the_first_success_aborts_the_others() {
    let captured = Drops::new();
    let futures = [
        ready(Err("no")).boxed(),
        never(&captured),
        ready(Ok(7)).boxed(),
    ];
    let first = within(CompletionStream::first_ok(futures)).await;
    assert_eq!(first.unwrap(), 7);
    eventually("the other is dropped", || captured.count() == 1).await;

    let panics: BoxFuture<'_, Result<(), _>> = async { panic!("on purpose") }.boxed();
    let futures = [ready(Err("no")).boxed(), panics];
    let failed = within(CompletionStream::first_ok(futures))
        .await
        .unwrap_err();
    assert!(matches!(failed[0], JobError::Failed("no")));
    assert!(matches!(&failed[1], JobError::Ended(error) if error.is_panic()));
    assert_eq!(failed.len(), 2);

    let none: [std::future::Ready<Result<(), ()>>; 0] = [];
    assert!(
        within(CompletionStream::first_ok(none))
            .await
            .unwrap_err()
            .is_empty()
    );
}

#[tokio::test]
async fn dropping_the_future_aborts_the_jobs() {
    let captured = Drops::new();
    let futures = [never(&captured), never(&captured)];
    let mut all = Box::pin(CompletionStream::all(futures));
    assert!(poll(&mut all).is_pending());
    tokio::task::yield_now().await;
    drop(all);
    eventually("they are dropped", || captured.count() == 2).await;
}

#[tokio::test]
async fn the_combinator_of_the_same_name_stays_usable() {
    let done = completed([2, 4, 6]).map(output);
    assert!(done.all(|n| ready(n % 2 == 0)).await);
    assert!(completed([2, 5]).all(|it| ready(it.tag < 2)).await);
}
