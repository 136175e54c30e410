//! `spawn`: a Tokio task with a handle of this crate.

use std::collections::VecDeque;
use std::future::pending;

use throng::{JoinHandle, SerialExecutor, spawn, spawn_blocking};
use tokio::runtime::Runtime;
use tokio::task::yield_now;

use super::support::{Drops, block_on, eventually, within};

#[tokio::test]
async fn one_queue_has_handles_of_all_kinds() {
    let executor = SerialExecutor::new(3);
    let mut tasks = VecDeque::<JoinHandle<u64>>::new();
    tasks.push_back(spawn(async { 1 }));
    tasks.push_back(spawn_blocking(|| 2));
    tasks.push_back(executor.submit(|n| *n));
    for expected in 1..=3 {
        let task = tasks.pop_front().unwrap();
        assert_eq!(within(task).await.unwrap(), expected);
    }
}

/// It runs although the handle is dropped, also if it waits.
#[tokio::test]
async fn a_task_runs_without_its_handle() {
    let ended = Drops::new();
    let value = ended.value();
    drop(spawn(async move {
        yield_now().await;
        drop(value);
    }));
    eventually("it has ended", || ended.count() == 1).await;
}

#[tokio::test]
async fn a_panic_is_an_error_of_the_handle() {
    let task = spawn(async {
        yield_now().await;
        panic!("on purpose")
    });
    let outcome: Result<(), _> = within(task).await;
    assert!(outcome.unwrap_err().is_panic());
}

#[tokio::test]
async fn an_abort_drops_a_future_that_waits() {
    let captures = Drops::new();
    let value = captures.value();
    let task = spawn(async move {
        let _value = value;
        pending::<()>().await
    });
    yield_now().await;
    assert_eq!(captures.count(), 0);
    task.abort();
    assert!(within(task).await.unwrap_err().is_cancelled());
    assert_eq!(captures.count(), 1);
}

/// The future is larger than any cell that is recycled.
#[tokio::test]
async fn a_large_future_has_a_large_output() {
    let large = [7_u8; 10_000];
    let task = spawn(async move {
        yield_now().await;
        large
    });
    assert_eq!(within(task).await.unwrap(), [7; 10_000]);
}

#[test]
fn the_end_of_the_runtime_cancels_the_task() {
    let runtime = Runtime::new().unwrap();
    let entered = runtime.enter();
    let task = spawn(pending::<()>());
    drop(entered);
    runtime.block_on(yield_now());
    drop(runtime);
    assert!(block_on(task).unwrap_err().is_cancelled());
}

#[test]
#[should_panic(expected = "no reactor running")]
fn it_panics_outside_of_a_runtime() {
    drop(spawn(async {}));
}
