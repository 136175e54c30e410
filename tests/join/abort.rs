//! Aborting tasks, and handles that abort on drop.

use std::sync::mpsc::channel;
use std::time::Duration;

use throng::{AbortOnDropHandle, BlockingPool, JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Drops, Gate, Wakes, block_on, join, message, poll_with, ready, receive, wait_until, within,
};
use crate::{busy, ended, held, inline};

#[test]
fn an_abort_after_the_end_changes_nothing() {
    for handle in [inline(5), ended(5)] {
        let abort = handle.abort_handle();
        handle.abort();
        abort.abort();
        assert_eq!(ready(handle).unwrap(), 5);
        abort.abort();
        assert!(abort.is_finished());
    }
}

#[test]
fn an_abort_ends_only_tasks_that_have_not_started() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let passed = gate.clone();
    let running = pool.spawn_blocking(move || {
        entered.send(()).unwrap();
        passed.pass();
        1
    });
    receive(&has_entered);
    let captured = Drops::new();
    let value = captured.value();
    let mut waiting = pool.spawn_blocking(move || drop(value));
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut waiting).is_pending());

    let abort = waiting.abort_handle().clone();
    abort.abort();
    assert_eq!((captured.count(), wakes.count()), (1, 1));
    assert!(abort.is_finished());
    assert!(ready(waiting).unwrap_err().is_cancelled());

    running.abort();
    running.abort_handle().abort();
    assert!(!running.is_finished());
    gate.open();
    assert_eq!(join(running).unwrap(), 1);
}

#[test]
fn an_abort_handle_does_not_keep_the_output() {
    let outputs = Drops::new();
    let handle = ended(outputs.value());
    let abort = handle.abort_handle();
    drop(handle);
    assert_eq!(outputs.count(), 1);
    abort.abort();
    assert!(abort.is_finished());
}

// ===== Abort on drop =====

/// A task that is queued, and its captures.
fn waiting(pool: &BlockingPool) -> (AbortOnDropHandle<u32>, Drops) {
    let captured = Drops::new();
    let value = captured.value();
    let handle = pool.spawn_blocking(move || {
        drop(value);
        8
    });
    (handle.abort_on_drop(), captured)
}

#[test]
fn dropping_the_handle_aborts_its_task() {
    let (pool, gate) = busy();
    let (handle, captured) = waiting(&pool);
    let abort = handle.abort_handle();
    assert_eq!((captured.count(), abort.is_finished()), (0, false));
    drop(handle);
    assert_eq!((captured.count(), abort.is_finished()), (1, true));
    gate.open();
    // Tasks that are submitted later still run.
    join(pool.spawn_blocking(|| ())).unwrap();
    assert_eq!(pool.metrics().cancelled, 1);
}

#[test]
fn dropping_the_handle_does_not_interrupt_a_running_task() {
    let (handle, gate) = held(());
    let abort = handle.abort_handle();
    drop(handle.abort_on_drop());
    assert!(!abort.is_finished());
    gate.open();
    wait_until("the task has ended", || abort.is_finished());
    // It does not affect tasks that have ended.
    drop(inline(1).abort_on_drop());
    drop(ended(1).abort_on_drop());
}

#[test]
fn a_handle_that_aborts_on_drop_returns_the_output() {
    for mut handle in [inline(1), ended(1)].map(JoinHandle::abort_on_drop) {
        assert_eq!(ready(&mut handle).unwrap(), 1);
        assert!(handle.is_finished());
    }
    let (pool, gate) = busy();
    let (awaited, _) = waiting(&pool);
    let (joined, _) = waiting(&pool);
    gate.open();
    assert_eq!(block_on(awaited).unwrap(), 8);
    assert_eq!(joined.detach().blocking_join().unwrap(), 8);
    let panics = spawn_blocking(|| panic!("on purpose")).abort_on_drop();
    let error = panics.detach().blocking_join().unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
}

#[test]
fn a_detached_task_is_not_aborted() {
    let (pool, gate) = busy();
    let (handle, captured) = waiting(&pool);
    let (id, abort) = (handle.id(), handle.abort_handle());
    let handle = handle.detach();
    assert_eq!((handle.id(), captured.count()), (id, 0));
    drop(handle);
    assert_eq!((captured.count(), abort.is_finished()), (0, false));
    gate.open();
    wait_until("the task has ended", || abort.is_finished());
    assert_eq!((captured.count(), pool.metrics().cancelled), (1, 0));
}

#[test]
fn a_handle_that_aborts_on_drop_has_the_id_of_its_task() {
    let (pool, gate) = busy();
    let handle = pool.spawn_blocking(|| ());
    let id = handle.id();
    let handle = handle.abort_on_drop();
    assert_eq!((handle.id(), handle.as_ref().id()), (id, id));
    assert_eq!(handle.abort_handle().id(), id);
    let shown = format!("AbortOnDropHandle {{ id: {id:?}, finished: false }}");
    assert_eq!(format!("{handle:?}"), shown);
    handle.abort();
    assert!(handle.is_finished());
    assert!(ready(handle).unwrap_err().is_cancelled());
    gate.open();
}

#[tokio::test]
async fn a_timeout_aborts_the_task_whose_handle_it_drops() {
    let (pool, gate) = busy();
    let (mut kept, keeps) = waiting(&pool);
    let (dropped, drops) = waiting(&pool);
    let short = Duration::from_millis(1);
    assert!(timeout(short, &mut kept).await.is_err());
    assert!(timeout(short, dropped).await.is_err());
    assert_eq!((keeps.count(), drops.count()), (0, 1));
    gate.open();
    assert_eq!(within(kept).await.unwrap(), 8);
}

#[tokio::test]
async fn a_cancelled_token_aborts_the_task() {
    let (pool, gate) = busy();
    let shutdown = CancellationToken::new();
    let (running, captured) = waiting(&pool);
    let (late, never_waits) = waiting(&pool);
    let waits = shutdown.clone();
    let waits = tokio::spawn(async move { waits.run_until_cancelled(running).await });
    tokio::task::yield_now().await;
    assert_eq!(captured.count(), 0);
    shutdown.cancel();
    assert!(within(waits).await.unwrap().is_none());
    assert_eq!(captured.count(), 1);
    // The same with a token that was cancelled before.
    assert!(shutdown.run_until_cancelled(late).await.is_none());
    assert_eq!(never_waits.count(), 1);

    let goes_on = CancellationToken::new();
    let (handle, _) = waiting(&pool);
    gate.open();
    let output = within(goes_on.run_until_cancelled(handle)).await;
    assert_eq!(output.unwrap().unwrap(), 8);
}
