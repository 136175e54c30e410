//! What handles, their errors and their names promise, whoever made them.

mod support;

use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::future::{FutureExt, TryFutureExt, join_all, select_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use throng::blocking::{self, Growth, Overflow, Permit};
use throng::completion::{self, Completed, Submitter};
use throng::serial::{self, IntoInnerError, OnPanic};
use throng::{
    AbortHandle, AbortOnDropHandle, BlockingPool, CompletionStream, Id, JoinError, JoinHandle,
    SerialExecutor, Slot, TryRunError, TrySpawnError, Work, spawn_blocking,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::support::{
    Drops, Gate, PATIENCE, PanicsOnDrop, Wakes, block_on, current_thread, join, message,
    multi_thread, panicking_waker, poll, poll_with, ready, receive, rounds, wait_until, within,
};

/// A task that has started and ends with this output once the gate is opened.
fn held<T: Send + 'static>(output: T) -> (JoinHandle<T>, Gate) {
    let gate = Gate::new();
    let passed = gate.clone();
    let (entered, has_entered) = channel();
    let handle = spawn_blocking(move || {
        entered.send(()).unwrap();
        passed.pass();
        output
    });
    receive(&has_entered);
    (handle, gate)
}

/// A handle that is complete at birth.
fn inline<T: Send + 'static>(output: T) -> JoinHandle<T> {
    SerialExecutor::new(()).submit(move |()| output)
}

/// A handle whose task has ended on another thread.
fn ended<T: Send + 'static>(output: T) -> JoinHandle<T> {
    let handle = spawn_blocking(move || output);
    wait_until("the task has ended", || handle.is_finished());
    handle
}

// ===== errors of all kinds =====

fn cancelled() -> JoinError {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    drop(pool.spawn_blocking(move || passed.pass()));
    let handle = pool.spawn_blocking(|| ());
    handle.abort();
    gate.open();
    ready(handle).unwrap_err()
}

fn panicked(payload: impl Any + Send) -> JoinError {
    join(spawn_blocking(move || panic_any(payload))).unwrap_err()
}

/// A pool without a queue, whose only thread is busy until the gate is opened.
fn busy_and_full() -> (BlockingPool, Gate) {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    drop(pool.spawn_blocking(move || passed.pass()));
    (pool, gate)
}

fn rejected() -> JoinError {
    let (pool, gate) = busy_and_full();
    let handle = pool.spawn_blocking(|| ());
    gate.open();
    ready(handle).unwrap_err()
}

fn closed() -> JoinError {
    let executor = SerialExecutor::new(());
    executor.close();
    ready(executor.submit(|()| ())).unwrap_err()
}

fn poisoned() -> JoinError {
    let executor = SerialExecutor::new(());
    drop(executor.submit(|()| panic!("on purpose")));
    ready(executor.submit(|()| ())).unwrap_err()
}

fn lost() -> JoinError {
    let (jobs, mut done) = CompletionStream::<(), ()>::builder().build();
    drop(ready(pin!(jobs.slot(()))).unwrap());
    let completed = ready(pin!(done.next())).unwrap();
    completed.outcome.unwrap_err()
}

/// One error of each kind, with what `Display` says behind its name, and what it becomes as an
/// `io::Error`.
fn errors() -> [(JoinError, &'static str, io::ErrorKind); 8] {
    use io::ErrorKind::{Other, WouldBlock};

    let poisoned_text = "did not run: an earlier job panicked and left the state poisoned";
    [
        (cancelled(), "was cancelled", Other),
        (panicked("a"), "panicked with message \"a\"", Other),
        (
            panicked(String::from("b")),
            "panicked with message \"b\"",
            Other,
        ),
        (panicked(7), "panicked", Other),
        (rejected(), "was rejected: the queue is full", WouldBlock),
        (closed(), "was submitted to a closed executor", Other),
        (poisoned(), poisoned_text, Other),
        (lost(), "was lost: its slot was dropped", Other),
    ]
}

#[test]
fn an_error_is_of_one_kind() {
    let kinds = errors().map(|(error, ..)| {
        let kinds = [
            error.is_cancelled(),
            error.is_panic(),
            error.is_rejected(),
            error.is_closed(),
            error.is_poisoned(),
            error.is_lost(),
            error.is_would_deadlock(),
        ];
        assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{error}");
        kinds.iter().position(|is| *is).unwrap()
    });
    assert_eq!(kinds, [0, 1, 1, 1, 2, 3, 4, 5]);
}

#[test]
fn an_error_tells_its_task_and_why() {
    for (error, text, _) in errors() {
        let id = error.id();
        assert_eq!(error.to_string(), format!("task {id} {text}"));
        let debug = format!("JoinError({id:?}: task {id} {text})");
        assert_eq!(format!("{error:?}"), debug);
    }
}

#[test]
fn only_a_rejection_has_a_source() {
    for (error, ..) in errors() {
        let source = error.source();
        assert_eq!(source.is_some(), error.is_rejected(), "{error}");
        if let Some(source) = source {
            let source: &io::Error = source.downcast_ref().unwrap();
            assert_eq!(source.kind(), io::ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn an_error_becomes_one_of_io() {
    for (error, text, kind) in errors() {
        let converted = io::Error::from(error);
        assert_eq!(converted.kind(), kind, "{text}");
        let inner: &JoinError = converted.get_ref().unwrap().downcast_ref().unwrap();
        assert!(inner.to_string().ends_with(text));
        assert!(converted.to_string().ends_with(text));
    }
}

#[test]
fn a_panic_gives_its_payload() {
    assert_eq!(message(panicked("a").into_panic()), "a");
    assert_eq!(message(panicked(String::from("b")).into_panic()), "b");
    assert_eq!(*panicked(7).into_panic().downcast::<i32>().unwrap(), 7);
    let payload = panicked("a").try_into_panic().unwrap();
    assert_eq!(message(payload), "a");
}

#[test]
fn what_is_no_panic_has_no_payload() {
    for (error, ..) in errors() {
        if error.is_panic() {
            continue;
        }
        let (id, text) = (error.id(), error.to_string());
        let error = error.try_into_panic().unwrap_err();
        assert_eq!((error.id(), error.to_string()), (id, text.clone()));
        let wrapped = std::panic::AssertUnwindSafe(error);
        let payload = catch_unwind(|| {
            let wrapped = wrapped;
            wrapped.0.into_panic()
        });
        let said = message(payload.unwrap_err());
        assert_eq!(said, format!("the task did not panic: {text}"));
    }
}

#[test]
fn errors_that_hand_something_back_tell_why() {
    let (jobs, _done) = CompletionStream::<(), &str>::builder().build();
    jobs.close();
    let error = ready(pin!(jobs.slot("tag"))).unwrap_err();
    assert!(error.is_closed() && !error.is_full());
    assert_eq!(error.to_string(), "the executor is closed");
    assert_eq!(format!("{error:?}"), "TrySpawnError(Closed)");
    assert!(error.source().is_none());
    assert_eq!(error.into_inner(), "tag");

    let (full, gate) = busy_and_full();
    let error = full.try_spawn_blocking(|| 1).unwrap_err();
    gate.open();
    assert!(error.is_full() && !error.is_closed());
    assert_eq!(format!("{error:?}"), "TrySpawnError(Full)");
    assert!(error.source().is_none());
    assert_eq!(error.into_inner()(), 1);
}

// ===== names =====

#[test]
fn a_task_keeps_its_name() {
    let (mut handle, gate) = held(());
    let id = handle.id();
    let abort = handle.abort_handle();
    assert!(poll(&mut handle).is_pending());
    assert_eq!((handle.id(), abort.id()), (id, id));
    gate.open();
    wait_until("the task has ended", || handle.is_finished());
    ready(&mut handle).unwrap();
    assert_eq!((handle.id(), abort.id(), abort.clone().id()), (id, id, id));

    let handle = SerialExecutor::new(()).submit(|()| panic!("on purpose"));
    let id = handle.id();
    assert_eq!(handle.abort_handle().id(), id);
    assert_eq!(ready(handle).unwrap_err().id(), id);

    let handle = spawn_blocking(|| panic!("on purpose"));
    let id = handle.id();
    assert_eq!(join::<()>(handle).unwrap_err().id(), id);
}

#[test]
fn no_two_tasks_have_the_same_name() {
    const THREADS: usize = 4;
    let each = rounds(10_000, 1_000_000);
    let executor = SerialExecutor::new(());
    let barrier = Barrier::new(THREADS);
    let ids: Vec<HashSet<Id>> = thread::scope(|scope| {
        let spawner = || {
            barrier.wait();
            (0..each).map(|_| executor.submit(|()| ()).id()).collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(spawner)).collect();
        let ids = threads.into_iter().map(|thread| thread.join().unwrap());
        ids.collect()
    });
    let all: HashSet<Id> = ids.into_iter().flatten().collect();
    assert_eq!(all.len(), THREADS * each);
}

#[test]
fn a_name_can_be_compared_and_shown() {
    let (first, second) = (inline(()).id(), inline(()).id());
    assert_ne!(first, second);
    assert_ne!(first < second, second < first);
    let number: u64 = first.to_string().parse().unwrap();
    assert_eq!(format!("{first:?}"), format!("Id({number})"));
}

// ===== the handle =====

#[test]
fn a_handle_tells_its_condition() {
    let (handle, gate) = held(());
    let id = handle.id();
    let texts = |finished| {
        [
            format!("JoinHandle {{ id: {id:?}, finished: {finished} }}"),
            format!("AbortHandle {{ id: {id:?}, finished: {finished} }}"),
        ]
    };
    let abort = handle.abort_handle();
    assert_eq!([format!("{handle:?}"), format!("{abort:?}")], texts(false));
    gate.open();
    wait_until("the task has ended", || handle.is_finished());
    assert_eq!([format!("{handle:?}"), format!("{abort:?}")], texts(true));
}

#[test]
fn a_handle_is_finished_when_its_task_has_ended() {
    assert!(inline(1).is_finished());

    let (mut handle, gate) = held(1);
    let abort = handle.abort_handle();
    assert!(!handle.is_finished() && !abort.is_finished());
    gate.open();
    wait_until("the task has ended", || abort.is_finished());
    assert!(handle.is_finished());
    assert_eq!(ready(&mut handle).unwrap(), 1);
    // And stays so when the output is gone.
    assert!(handle.is_finished() && abort.is_finished());
    assert!(handle.abort_handle().is_finished());
}

#[test]
fn polling_after_the_end_panics() {
    for mut handle in [inline(()), ended(())] {
        ready(&mut handle).unwrap();
        let payload = catch_unwind(|| {
            let mut handle = handle;
            drop(poll(&mut handle));
        });
        let said = message(payload.unwrap_err());
        assert_eq!(said, "`JoinHandle` polled after it was ready");
    }

    let mut handle = inline(());
    ready(&mut handle).unwrap();
    let payload = catch_unwind(|| handle.blocking_join());
    let said = message(payload.unwrap_err());
    assert_eq!(said, "`JoinHandle` polled after it was ready");
}

#[test]
fn a_thread_can_wait_for_a_handle() {
    assert_eq!(inline(1).blocking_join().unwrap(), 1);
    assert_eq!(ended(2).blocking_join().unwrap(), 2);
    assert!(inline(3).blocking_join().is_ok());

    for round in 0..rounds(500, 50_000) {
        let (send, receiver) = channel();
        let handle = spawn_blocking(move || receive(&receiver));
        thread::scope(|scope| {
            let joiner = scope.spawn(|| handle.blocking_join());
            send.send(round).unwrap();
            assert_eq!(joiner.join().unwrap().unwrap(), round);
        });
    }

    let (handle, gate) = held(());
    let (joins, will_join) = channel();
    thread::scope(|scope| {
        let joiner = scope.spawn(move || {
            joins.send(()).unwrap();
            handle.blocking_join()
        });
        receive(&will_join);
        // It may have been unparked before: that is not the end.
        joiner.thread().unpark();
        gate.open();
        joiner.join().unwrap().unwrap();
    });
}

#[test]
fn blocking_join_works_for_one_that_was_polled() {
    let (mut handle, gate) = held(4);
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut handle).is_pending());
    thread::scope(|scope| {
        let joiner = scope.spawn(move || handle.blocking_join());
        gate.open();
        assert_eq!(joiner.join().unwrap().unwrap(), 4);
    });
    // Whoever polled before may have been woken, or not any more.
    assert!(wakes.count() <= 1);
}

#[test]
fn the_one_who_polled_last_is_woken() {
    let (mut handle, gate) = held(());
    let (before, first) = Wakes::new();
    let (after, second) = Wakes::new();
    assert!(poll_with(&first, &mut handle).is_pending());
    assert!(poll_with(&first, &mut handle).is_pending());
    assert!(poll_with(&second, &mut handle).is_pending());
    // What is not needed any more is not kept.
    assert_eq!(Arc::strong_count(&before), 2);
    gate.open();
    wait_until("the waker is used", || after.count() > 0);
    assert_eq!((before.count(), after.count()), (0, 1));
    ready(&mut handle).unwrap();
}

#[test]
fn wakers_change_while_the_task_ends() {
    let wakers: Vec<_> = (0..4).map(|_| Wakes::new()).collect();
    for _ in 0..rounds(2_000, 200_000) {
        let (wakes, last) = Wakes::new();
        let (open, opened) = channel();
        let mut handle = spawn_blocking(move || receive(&opened));
        thread::scope(|scope| {
            scope.spawn(move || open.send(()).unwrap());
            for (_, waker) in &wakers {
                if poll_with(waker, &mut handle).is_ready() {
                    return;
                }
            }
            if poll_with(&last, &mut handle).is_pending() {
                wait_until("the last waker is used", || wakes.count() == 1);
                ready(&mut handle).unwrap();
            }
        });
    }
    for (wakes, waker) in wakers {
        drop(waker);
        wait_until("no waker is kept", || Arc::strong_count(&wakes) == 1);
    }
}

#[test]
fn a_handle_that_is_dropped_lets_its_task_run() {
    let (entered, has_entered) = channel();
    let gate = Gate::new();
    let passed = gate.clone();
    let outputs = Drops::new();
    let output = outputs.value();
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let handle = spawn_blocking(move || {
        entered.send(()).unwrap();
        passed.pass();
        runs.store(true, Ordering::SeqCst);
        output
    });
    let abort = handle.abort_handle();
    let (_, waker) = Wakes::new();
    let mut handle = handle;
    assert!(poll_with(&waker, &mut handle).is_pending());
    receive(&has_entered);
    drop(handle);
    gate.open();
    wait_until("the output is dropped", || outputs.count() == 1);
    assert!(ran.load(Ordering::SeqCst));
    wait_until("the task has ended", || abort.is_finished());
}

#[test]
fn a_handle_that_is_dropped_drops_its_waker() {
    let (mut handle, gate) = held(());
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut handle).is_pending());
    drop((handle, waker));
    assert_eq!(Arc::strong_count(&wakes), 1);
    gate.open();
}

#[test]
fn a_panicking_waker_harms_nobody_else() {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    let mut first = pool.spawn_blocking(move || passed.pass());
    let second = pool.spawn_blocking(|| 2);
    assert!(poll_with(&panicking_waker(), &mut first).is_pending());
    gate.open();
    assert_eq!(join(second).unwrap(), 2);
    join(first).unwrap();
}

// ===== abort =====

#[test]
fn abort_after_the_end_changes_nothing() {
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
fn abort_ends_what_has_not_started_and_nothing_else() {
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

// ===== abort on drop =====

/// A pool whose one thread is busy until the gate is opened, so that its tasks wait.
fn busy() -> (BlockingPool, Gate) {
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    drop(pool.spawn_blocking(move || passed.pass()));
    (pool, gate)
}

/// A task that waits, and what it has captured.
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
fn a_dropped_handle_takes_its_task_with_it() {
    let (pool, gate) = busy();
    let (handle, captured) = waiting(&pool);
    let abort = handle.abort_handle();
    assert_eq!((captured.count(), abort.is_finished()), (0, false));
    drop(handle);
    assert_eq!((captured.count(), abort.is_finished()), (1, true));
    gate.open();
    // Those who came later run, as ever.
    join(pool.spawn_blocking(|| ())).unwrap();
    assert_eq!(pool.metrics().cancelled, 1);
}

#[test]
fn a_dropped_handle_leaves_what_runs_alone() {
    let (handle, gate) = held(());
    let abort = handle.abort_handle();
    drop(handle.abort_on_drop());
    assert!(!abort.is_finished());
    gate.open();
    wait_until("the task has ended", || abort.is_finished());
    // What has ended is not harmed, either.
    drop(inline(1).abort_on_drop());
    drop(ended(1).abort_on_drop());
}

#[test]
fn a_handle_that_aborts_on_drop_gives_the_output_before() {
    for mut handle in [inline(1), ended(1)].map(JoinHandle::abort_on_drop) {
        assert_eq!(ready(&mut handle).unwrap(), 1);
        assert!(handle.is_finished());
    }
    let (pool, gate) = busy();
    let (awaited, _) = waiting(&pool);
    let (joined, _) = waiting(&pool);
    gate.open();
    assert_eq!(block_on(awaited).unwrap(), 8);
    assert_eq!(joined.blocking_join().unwrap(), 8);
    let panics = spawn_blocking(|| panic!("on purpose")).abort_on_drop();
    let error = panics.blocking_join().unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
}

#[test]
fn a_detached_task_runs_although_its_handle_is_dropped() {
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
fn a_handle_that_aborts_on_drop_is_one_of_the_same_task() {
    let (pool, gate) = busy();
    let handle = pool.spawn_blocking(|| ());
    let id = handle.id();
    let handle = AbortOnDropHandle::new(handle);
    assert_eq!((handle.id(), handle.as_ref().id()), (id, id));
    assert_eq!(handle.abort_handle().id(), id);
    let shown = format!("AbortOnDropHandle {{ id: {id:?}, finished: false }}");
    assert_eq!(format!("{handle:?}"), shown);
    handle.abort();
    assert!(handle.is_finished());
    assert!(ready(handle).unwrap_err().is_cancelled());
    gate.open();
}

#[test]
fn a_panic_in_what_a_dropped_task_captured_harms_nobody() {
    let (pool, gate) = busy();
    let captured = Drops::new();
    let value = PanicsOnDrop(captured.value());
    drop(pool.spawn_blocking(move || drop(value)).abort_on_drop());
    assert_eq!(captured.count(), 1);
    gate.open();
    join(pool.spawn_blocking(|| ())).unwrap();
}

#[tokio::test]
async fn what_is_waited_for_within_a_time_ends_with_it() {
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
async fn a_token_that_is_cancelled_cancels_the_task() {
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
    // Of a token that was cancelled before, too.
    assert!(shutdown.run_until_cancelled(late).await.is_none());
    assert_eq!(never_waits.count(), 1);

    let goes_on = CancellationToken::new();
    let (handle, _) = waiting(&pool);
    gate.open();
    let output = within(goes_on.run_until_cancelled(handle)).await;
    assert_eq!(output.unwrap().unwrap(), 8);
}

// ===== among other futures =====

#[test]
fn a_handle_may_outlive_the_runtime_that_polled_it() {
    let (mut handle, gate) = held(6);
    current_thread().block_on(async {
        assert!(timeout(Duration::ZERO, &mut handle).await.is_err());
    });
    assert!(poll(&mut handle).is_pending());
    gate.open();
    assert_eq!(block_on(handle).unwrap(), 6);
}

#[tokio::test]
async fn a_handle_in_a_select_loses_nothing() {
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
        () = tokio::time::sleep(PATIENCE).fuse() => panic!("waited in vain"),
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
async fn handles_are_joined() {
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
async fn handles_are_collected_as_they_end() {
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
async fn a_handle_is_a_future_like_others() {
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
fn ready_handles_let_others_run() {
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
fn a_handle_without_budget_is_pending_and_wakes() {
    current_thread().block_on(async {
        let mut handles: Vec<_> = (0..1_000).map(inline).collect();
        let (wakes, waker) = Wakes::new();
        // All within one poll of this task.
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
fn a_thread_outside_of_a_runtime_has_no_budget_to_use_up() {
    for n in 0..1_000 {
        assert_eq!(ready(inline(n)).unwrap(), n);
    }
}

#[test]
fn a_handle_in_a_runtime_is_woken_by_a_thread_and_the_other_way_round() {
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

#[test]
fn the_output_of_a_ready_handle_is_dropped_with_it() {
    let outputs = Drops::new();
    drop(inline(outputs.value()));
    assert_eq!(outputs.count(), 1);
    drop(ended(outputs.value()));
    assert_eq!(outputs.count(), 2);
    let mut handle = ended(outputs.value());
    let output = ready(&mut handle).unwrap();
    drop(handle);
    assert_eq!(outputs.count(), 2);
    drop(output);
    assert_eq!(outputs.count(), 3);
    // A panic in it is contained if the task ended on another thread.
    drop(ended(PanicsOnDrop(outputs.value())));
    assert_eq!(outputs.count(), 4);
}

#[test]
fn polls_with_the_same_waker_keep_it_once() {
    let (mut handle, gate) = held(());
    let (wakes, waker) = Wakes::new();
    for _ in 0..10 {
        assert!(poll_with(&waker, &mut handle).is_pending());
        assert_eq!(Arc::strong_count(&wakes), 3);
    }
    gate.open();
    wait_until("the waker is used", || wakes.count() == 1);
    assert!(matches!(
        poll_with(Waker::noop(), &mut handle),
        Poll::Ready(Ok(()))
    ));
    drop(waker);
    wait_until("no waker is kept", || Arc::strong_count(&wakes) == 1);
}

// ===== what the types are =====

/// Checks, when this file is compiled, that a type has traits, or (`!`) that it has not.
macro_rules! assert_type {
    ($type:ty: $($(!$not:ident)? $($has:ident)?)&+) => {
        $($(assert_type!(@has $type, $has);)? $(assert_type!(@not $type, $not);)?)+
    };
    (@has $type:ty, $trait:ident) => {
        const _: fn() = || {
            fn has<T: ?Sized + $trait>() {}
            has::<$type>();
        };
    };
    (@not $type:ty, $trait:ident) => {
        const _: fn() = || {
            // If the type has the trait there are two candidates, and inference fails.
            trait Ambiguous<A> {
                fn candidate() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            #[allow(dead_code, reason = "it is the second candidate")]
            struct Second;
            impl<T: ?Sized + $trait> Ambiguous<Second> for T {}
            <$type as Ambiguous<_>>::candidate();
        };
    };
}

/// Can be sent and shared.
type Both = u8;
/// Can be sent, and not shared.
type Sent = Cell<u8>;
/// Neither.
type Neither = Rc<u8>;

// As Tokio's.
assert_type!(JoinHandle<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(JoinHandle<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(JoinHandle<Neither>: !Send & !Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Neither>: !Send & !Sync & Unpin);
assert_type!(AbortHandle: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(JoinError: Send & Sync & Unpin & Error);
assert_type!(Id: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Copy);

assert_type!(TrySpawnError<Both>: Send & Sync & Unpin & Error);
assert_type!(TrySpawnError<Sent>: Send & Sync & Unpin & Error);
assert_type!(TrySpawnError<Neither>: !Send & Sync & Unpin & Error);
assert_type!(TryRunError<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Error);
assert_type!(TryRunError<Sent>: Send & Sync & Unpin & Error);
assert_type!(TryRunError<Neither>: !Send & Sync & Unpin & Error);

assert_type!(Slot<Both, Both>: Send & Sync & Unpin);
assert_type!(Slot<Sent, Sent>: Send & Sync & Unpin);
assert_type!(Slot<Neither, Both>: !Send & !Sync);
assert_type!(Slot<Both, Neither>: !Send & !Sync);
assert_type!(Work: Send & Sync & Unpin);

// A state that cannot be shared is fine; one that cannot be sent is not.
assert_type!(SerialExecutor<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(SerialExecutor<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(SerialExecutor<Neither>: !Send & !Sync & Unpin & Clone);
assert_type!(IntoInnerError<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Error);
assert_type!(IntoInnerError<Neither>: !Send & !Sync & Error);
assert_type!(serial::Builder<Cell<u8>>: Send & Sync & Unpin);
assert_type!(serial::WeakSerialExecutor<Cell<u8>>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(serial::Metrics: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);
assert_type!(OnPanic: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Copy & Eq);

assert_type!(CompletionStream<Both, Both>: Send & Unpin);
assert_type!(CompletionStream<Sent, Sent>: Send & Unpin);
assert_type!(CompletionStream<Neither, Both>: !Send & !Sync & Unpin);
assert_type!(CompletionStream<Both, Neither>: !Send & !Sync & Unpin);
assert_type!(Submitter<Both, Both>: Send & Sync & Unpin & Clone);
assert_type!(Submitter<Sent, Sent>: Send & Sync & Unpin & Clone);
assert_type!(Submitter<Neither, Both>: !Send & !Sync & Unpin & Clone);
assert_type!(Completed<Both, Both>: Send & Sync & Unpin);
assert_type!(Completed<Sent, Both>: Send & !Sync & Unpin);
assert_type!(Completed<Neither, Both>: !Send & !Sync & Unpin);
assert_type!(completion::Builder<Neither, Neither>: Send & Sync & Unpin & UnwindSafe);

assert_type!(BlockingPool: Send & Sync & Unpin & Clone);
assert_type!(Permit<'static>: Send & Sync & Unpin);
assert_type!(blocking::Histogram: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);
assert_type!(blocking::Builder: Send & Sync & Unpin & Clone);
assert_type!(blocking::Metrics: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);
assert_type!(Growth: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Copy & Eq);
assert_type!(Overflow: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);

/// Futures of this crate can be spawned, also if what they carry cannot be shared. Never called.
#[allow(dead_code, reason = "it is enough that it compiles")]
fn futures_can_be_sent(
    executor: SerialExecutor<Sent>,
    jobs: &Submitter<Sent, Sent>,
    done: &mut CompletionStream<Sent, Sent>,
    pool: &BlockingPool,
) {
    fn sent(_: impl Send) {}
    sent(executor.into_inner());
    sent(jobs.slot(Cell::new(0)));
    sent(jobs.submit(Cell::new(0), async { Cell::new(0) }));
    sent(jobs.submit_blocking(pool, Cell::new(0), || Cell::new(0)));
    sent(done.next());
    sent(pool.reserve());
    sent(pool.terminated());
}
