//! Handles among other futures: combinators, `select!`, runtimes, and the cooperative budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use futures::future::{FutureExt, TryFutureExt, join_all, select_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use throng::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::support::{
    Wakes, block_on, current_thread, multi_thread, poll, poll_with, ready, receive, rounds, within,
};
use crate::{held, inline};

#[test]
fn a_handle_can_outlive_the_runtime_that_polled_it() {
    let (mut handle, gate) = held(6);
    current_thread().block_on(async {
        assert!(timeout(Duration::ZERO, &mut handle).await.is_err());
    });
    assert!(poll(&mut handle).is_pending());
    gate.open();
    assert_eq!(block_on(handle).unwrap(), 6);
}

#[tokio::test]
async fn a_handle_in_select_loses_nothing() {
    let (mut handle, gate) = held(1);
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = &mut handle => panic!("the gate is closed"),
            () = tokio::task::yield_now() => {}
        }
    }
    gate.open();
    assert_eq!(within(&mut handle).await.unwrap(), 1);

    let (handle, gate) = held(2);
    let mut handle = handle.fuse();
    gate.open();
    let output = futures::select! {
        output = handle => output,
        () = tokio::time::sleep(Duration::from_secs(30)).fuse() => panic!("waited in vain"),
    };
    assert_eq!(output.unwrap(), 2);
}

#[tokio::test]
async fn a_timeout_leaves_the_handle_usable() {
    let (mut handle, gate) = held(3);
    let short = Duration::from_millis(1);
    assert!(timeout(short, &mut handle).await.is_err());
    assert!(timeout(short, &mut handle).await.is_err());
    gate.open();
    assert_eq!(within(handle).await.unwrap(), 3);
}

#[tokio::test]
async fn handles_work_with_join_and_select_combinators() {
    let (first, second) = tokio::join!(spawn_blocking(|| 1), inline(2));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 2));

    let both = tokio::try_join!(spawn_blocking(|| 1), inline(2));
    assert_eq!(both.unwrap(), (1, 2));

    let panics = spawn_blocking(|| panic!("on purpose"));
    let error = futures::try_join!(inline(()), panics).unwrap_err();
    assert!(error.is_panic());

    let all = join_all((0..10).map(|n| spawn_blocking(move || n)));
    let all: Result<Vec<_>, _> = within(all).await.into_iter().collect();
    assert!(all.unwrap().into_iter().eq(0..10));

    let all = try_join_all((0..10).map(inline));
    assert_eq!(within(all).await.unwrap().len(), 10);

    let (never, gate) = held(0);
    let (first, index, others) = within(select_all([never, inline(7)])).await;
    assert_eq!((first.unwrap(), index, others.len()), (7, 1, 1));
    gate.open();
}

#[tokio::test]
async fn handles_work_in_a_set_of_futures() {
    let mut handles = FuturesUnordered::new();
    let mut gates = Vec::new();
    for n in 0..4 {
        let (handle, gate) = held(n);
        handles.push(handle);
        gates.push(gate);
    }
    for n in [2, 0, 3, 1] {
        gates[n].open();
        let output = within(handles.next()).await.unwrap();
        assert_eq!(output.unwrap(), n);
    }
    assert!(handles.next().await.is_none());
}

#[tokio::test]
async fn handles_work_with_future_combinators() {
    let sum = spawn_blocking(|| 1)
        .map_ok(|n| n + 1)
        .and_then(|n| inline(n + 1));
    assert_eq!(within(sum).await.unwrap(), 3);

    let task = tokio::spawn(spawn_blocking(|| 4));
    assert_eq!(within(task).await.unwrap().unwrap(), 4);

    let shared = spawn_blocking(|| 5).map(Result::unwrap).shared();
    assert_eq!(within(shared.clone()).await, within(shared).await);
}

#[test]
fn a_loop_over_ready_handles_yields() {
    current_thread().block_on(async {
        let other = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&other);
        tokio::spawn(async move { runs.store(true, Ordering::SeqCst) });
        let mut awaited = 0;
        while !other.load(Ordering::SeqCst) {
            assert!(awaited < 10_000, "the loop never yielded");
            inline(()).await.unwrap();
            awaited += 1;
        }
    });
}

#[test]
fn without_budget_a_ready_handle_is_pending_and_wakes() {
    current_thread().block_on(async {
        let mut handles: Vec<_> = (0..1_000).map(inline).collect();
        let (wakes, waker) = Wakes::new();
        // All handles are polled within one poll of this task.
        let pending = |handle: &mut JoinHandle<_>| poll_with(&waker, handle).is_pending();
        let refused = handles.iter_mut().filter_map(|handle| {
            let finished = handle.is_finished();
            pending(handle).then_some(finished)
        });
        let refused: Vec<bool> = refused.collect();
        assert!(!refused.is_empty() && refused.len() < 1_000);
        assert!(refused.iter().all(|finished| *finished));
        tokio::task::yield_now().await;
        assert!(wakes.count() > 0, "who is refused is polled again");
        let refused = handles.pop().unwrap();
        assert_eq!(refused.await.unwrap(), 999);
    });
}

#[test]
fn outside_of_a_runtime_there_is_no_budget() {
    for n in 0..1_000 {
        assert_eq!(ready(inline(n)).unwrap(), n);
    }
}

#[test]
fn a_task_of_a_runtime_is_woken_by_a_thread() {
    let runtime = multi_thread(2, "worker");
    for round in 0..rounds(300, 30_000) {
        let (open, opened) = channel();
        let handle = spawn_blocking(move || receive(&opened));
        let task = runtime.spawn(handle);
        thread::scope(|scope| {
            scope.spawn(move || open.send(round).unwrap());
        });
        let output = runtime.block_on(within(task)).unwrap();
        assert_eq!(output.unwrap(), round);
    }
}
