//! Combinators of the `futures` and `tokio-stream` crates with a `CompletionStream`.

use std::convert::Infallible;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::FusedFuture;
use futures::stream::{self, FusedStream, StreamExt};
use futures::{TryStreamExt, select};
use tokio_stream::StreamMap;

use super::support::within;
use super::{completed, output};

#[tokio::test]
async fn every_combinator_works() {
    combinators_of_one_stream().await;
    combinators_of_results().await;
    combinators_that_run_futures().await;
    combinators_of_several_streams().await;
    combinators_with_a_clock().await;
    an_ended_stream_in_a_select_is_passed_over().await;
}

async fn combinators_of_one_stream() {
    // By path: the inherent `next` needs no trait.
    let mut done = completed([1, 2]);
    assert_eq!(StreamExt::next(&mut done).await.map(output), Some(1));
    assert_eq!(done.by_ref().map(output).collect::<Vec<_>>().await, [2]);
    assert!(done.is_terminated());

    let taken = completed(0..10).take(3).map(output);
    assert_eq!(taken.collect::<Vec<_>>().await, [0, 1, 2]);

    let mut chunks = completed(0..5).map(output).ready_chunks(3);
    assert_eq!(chunks.next().await.unwrap(), [0, 1, 2]);
    assert_eq!(chunks.next().await.unwrap(), [3, 4]);

    let chunks = completed(0..5).map(output).chunks(2);
    assert_eq!(chunks.count().await, 3);

    let mut peekable = pin!(completed([7, 8]).map(output).peekable());
    assert_eq!(peekable.as_mut().peek().await, Some(&7));
    assert_eq!(peekable.collect::<Vec<_>>().await, [7, 8]);

    let even = completed(0..6).map(output);
    let even = even.filter(|n| ready(n % 2 == 0));
    assert_eq!(even.fold(0, async |sum, n| sum + n).await, 6);

    let sums = completed(1..5).map(output).scan(0, |sum, n| {
        *sum += n;
        ready(Some(*sum))
    });
    assert_eq!(sums.collect::<Vec<_>>().await, [1, 3, 6, 10]);

    let small = completed(0..10).map(output);
    let small = small.take_while(|n| ready(*n < 4));
    assert_eq!(small.count().await, 4);

    let until = completed(0..10).take_until(ready(()));
    assert_eq!(until.count().await, 0);

    let mut fused = completed([1]).fuse();
    assert!(!fused.is_terminated());
    assert_eq!(fused.next().await.map(output), Some(1));
    assert!(fused.next().await.is_none());
    assert!(fused.is_terminated());

    let unwound = AssertUnwindSafe(completed([1])).catch_unwind();
    assert_eq!(unwound.count().await, 1);
}

async fn combinators_that_run_futures() {
    let jobs = completed(0..100).map(|completed| async move {
        tokio::task::yield_now().await;
        output(completed)
    });
    let sum = jobs.buffer_unordered(8).fold(0, async |sum, n| sum + n);
    assert_eq!(sum.await, 4950);

    let sum = AtomicUsize::new(0);
    let each = completed(0..100).for_each_concurrent(8, |completed| {
        let sum = &sum;
        async move {
            tokio::task::yield_now().await;
            sum.fetch_add(output(completed), Ordering::SeqCst);
        }
    });
    each.await;
    assert_eq!(sum.into_inner(), 4950);

    let (sink, received) = futures::channel::mpsc::unbounded();
    let forwarded = completed(0..5).map(Ok::<_, Infallible>);
    forwarded
        .forward(futures::SinkExt::sink_map_err(sink, |_| unreachable!()))
        .await
        .unwrap();
    assert_eq!(received.count().await, 5);
}

async fn combinators_of_several_streams() {
    let both = stream::select(completed([1, 2]), completed([3]));
    assert_eq!(both.map(output).fold(0, async |sum, n| sum + n).await, 6);

    let both = tokio_stream::StreamExt::merge(completed([1, 2]), completed([3]));
    assert_eq!(both.count().await, 3);

    let all = stream::select_all([completed([1]), completed([2]), completed([])]);
    assert_eq!(all.count().await, 2);

    let pairs = completed([1, 2]).zip(completed(["a", "b"]));
    let pairs = pairs.map(|(number, name)| (output(number), output(name)));
    assert_eq!(pairs.collect::<Vec<_>>().await, [(1, "a"), (2, "b")]);

    let chained = completed([1]).chain(completed([2])).map(output);
    assert_eq!(chained.collect::<Vec<_>>().await, [1, 2]);
}

async fn combinators_of_results() {
    let outcomes = || completed(0..5).map(|completed| completed.outcome);
    let all: Vec<_> = outcomes().try_collect().await.unwrap();
    assert_eq!(all, [0, 1, 2, 3, 4]);

    let mut sum = 0;
    let each = outcomes().try_for_each(|n| {
        sum += n;
        ready(Ok(()))
    });
    each.await.unwrap();
    assert_eq!(sum, 10);

    let sum = AtomicUsize::new(0);
    let each = outcomes().try_for_each_concurrent(2, |n| {
        let sum = &sum;
        async move {
            tokio::task::yield_now().await;
            sum.fetch_add(n, Ordering::SeqCst);
            Ok(())
        }
    });
    each.await.unwrap();
    assert_eq!(sum.into_inner(), 10);
}

async fn combinators_with_a_clock() {
    let minute = Duration::from_secs(60);
    // With an open stream, the combinator waits for as long as it says.
    let (jobs, done) = super::unbounded::<usize>();
    super::slot(&jobs, 0).complete(0);
    let mut timed = pin!(tokio_stream::StreamExt::timeout(
        done,
        Duration::from_millis(1)
    ));
    let first = within(timed.next()).await.unwrap();
    assert_eq!(first.unwrap().tag, 0);
    assert!(within(timed.next()).await.unwrap().is_err());

    let mut chunks = pin!(tokio_stream::StreamExt::chunks_timeout(
        completed(0..5).map(output),
        3,
        minute
    ));
    assert_eq!(within(chunks.next()).await.unwrap(), [0, 1, 2]);
    assert_eq!(within(chunks.next()).await.unwrap(), [3, 4]);

    let slowly = tokio_stream::StreamExt::throttle(completed(0..3), Duration::from_millis(1));
    assert_eq!(within(StreamExt::count(slowly)).await, 3);

    let mut named = StreamMap::new();
    named.insert("one", completed([1]));
    named.insert("two", completed([2, 2]));
    let mut sums = [0, 0];
    while let Some((name, completed)) = within(StreamExt::next(&mut named)).await {
        sums[usize::from(name == "two")] += output(completed);
    }
    assert_eq!(sums, [1, 4]);
}

async fn an_ended_stream_in_a_select_is_passed_over() {
    let mut done = completed([1, 2]);
    let mut seen = Vec::new();
    loop {
        select! {
            completed = done.select_next_some() => seen.push(output(completed)),
            complete => break,
        }
    }
    assert_eq!(seen, [1, 2]);
    assert!(done.is_terminated());
    assert!(done.select_next_some().is_terminated());

    let mut seen = 0;
    let mut done = completed([1, 2]);
    loop {
        tokio::select! {
            Some(completed) = done.next() => seen += output(completed),
            else => break,
        }
    }
    assert_eq!(seen, 3);
}
