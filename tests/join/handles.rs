//! The handle: its state, waits of threads, wakers, and detached tasks.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Poll, Waker};
use std::thread;

use throng::{BlockingPool, spawn_blocking};

use crate::support::{
    Drops, Gate, Wakes, message, poll, poll_with, ready, receive, rounds, wait_until,
};
use crate::{ended, held, inline};

#[test]
fn debug_output_shows_whether_the_task_has_ended() {
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
fn a_handle_is_finished_once_its_task_has_ended() {
    assert!(inline(1).is_finished());

    let (mut handle, gate) = held(1);
    let abort = handle.abort_handle();
    assert!(!handle.is_finished() && !abort.is_finished());
    gate.open();
    wait_until("the task has ended", || abort.is_finished());
    assert!(handle.is_finished());
    assert_eq!(ready(&mut handle).unwrap(), 1);
    // It stays finished when the output is gone.
    assert!(handle.is_finished() && abort.is_finished());
    assert!(handle.abort_handle().is_finished());
}

#[test]
fn a_poll_after_the_output_was_returned_panics() {
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
        // A wake-up without a reason does not end the wait.
        joiner.thread().unpark();
        gate.open();
        joiner.join().unwrap().unwrap();
    });
}

#[test]
fn a_polled_handle_can_be_joined_by_a_thread() {
    let (mut handle, gate) = held(4);
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut handle).is_pending());
    thread::scope(|scope| {
        let joiner = scope.spawn(move || handle.blocking_join());
        gate.open();
        assert_eq!(joiner.join().unwrap().unwrap(), 4);
    });
    // The waker of the earlier poll may have been woken, too.
    assert!(wakes.count() <= 1);
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let (mut handle, gate) = held(());
    let (before, first) = Wakes::new();
    let (after, second) = Wakes::new();
    assert!(poll_with(&first, &mut handle).is_pending());
    assert!(poll_with(&first, &mut handle).is_pending());
    assert!(poll_with(&second, &mut handle).is_pending());
    // The waker that was replaced is dropped.
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
fn polls_with_the_same_waker_clone_it_once() {
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

#[test]
fn dropping_a_handle_detaches_its_task() {
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
fn dropping_a_handle_drops_its_waker() {
    let (mut handle, gate) = held(());
    let (wakes, waker) = Wakes::new();
    assert!(poll_with(&waker, &mut handle).is_pending());
    drop((handle, waker));
    assert_eq!(Arc::strong_count(&wakes), 1);
    gate.open();
}

#[test]
fn a_permit_is_released_before_the_outcome_is_visible() {
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    for round in 0..2_000 {
        let task = pool.try_spawn_blocking(move || round);
        assert_eq!(task.unwrap().blocking_join().unwrap(), round);
    }
}
