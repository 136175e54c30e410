//! Weak handles, builders, and the replacement of a poisoned state.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use throng::SerialExecutor;
use throng::serial::WeakSerialExecutor;

use crate::occupied::occupy;
use crate::support::{
    Dropped, Drops, Gate, Wakes, block_on, join, multi_thread, poll_with, ready, receive, rounds,
    wait_until,
};

// ===== weak handles =====

#[test]
fn a_weak_handle_is_of_the_same_executor() {
    let executor = SerialExecutor::new(0);
    let weak = executor.downgrade();
    drop(weak.upgrade().unwrap().submit(|n| *n += 1));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
    assert_eq!(format!("{weak:?}"), "WeakSerialExecutor { .. }");
}

#[test]
fn a_weak_handle_does_not_keep_the_state() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let weak = executor.downgrade();
    drop(executor);
    assert_eq!(dropped.count(), 1);
    assert!(weak.clone().upgrade().is_none());
}

#[test]
fn a_weak_handle_can_be_upgraded_until_what_was_accepted_has_run() {
    let dropped = Drops::new();
    let executor = SerialExecutor::new(dropped.value());
    let weak = executor.downgrade();
    let busy = occupy(&executor);
    let queued = executor.submit(|_| ());
    drop(executor);
    let again = weak.upgrade().unwrap().submit(|_| ());
    busy.release();
    join(queued).unwrap();
    join(again).unwrap();
    wait_until("the state is dropped", || dropped.count() == 1);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_state_with_a_weak_handle_of_its_own_executor_is_dropped() {
    struct Actor {
        own: Option<WeakSerialExecutor<Self>>,
        _dropped: Dropped,
    }
    let dropped = Drops::new();
    let executor = SerialExecutor::new(Actor {
        own: None,
        _dropped: dropped.value(),
    });
    let own = executor.downgrade();
    drop(executor.submit(|actor| actor.own = Some(own)));
    let next = executor.submit(|actor| {
        let own = actor.own.as_ref().unwrap().upgrade().unwrap();
        own.submit(|actor| actor.own.is_some())
    });
    assert!(ready(ready(next).unwrap()).unwrap());
    drop(executor);
    assert_eq!(dropped.count(), 1);
}

// ===== builders =====

#[test]
fn a_builder_is_found_through_an_alias_of_any_executor() {
    type Account = SerialExecutor<u64>;
    type Names = SerialExecutor<Vec<String>>;
    let account = Account::builder().build(1).unwrap();
    let names = Names::builder()
        .queue_capacity(1)
        .build(Vec::new())
        .unwrap();
    assert_eq!(account.try_run(|n| *n).unwrap(), 1);
    assert!(names.try_run(|names| names.is_empty()).unwrap());
}

#[test]
fn a_builder_builds_several_executors() {
    let mut builder = SerialExecutor::builder();
    builder.poison_on_panic(false);
    let [one, other] = [1, 2].map(|n| builder.build(n).unwrap());
    drop(one.submit(|_| panic!("on purpose")));
    assert!(!one.is_poisoned());
    assert_eq!(other.try_run(|n| *n).unwrap(), 2);
}

#[test]
fn options_that_would_reject_every_job_are_an_error() {
    let mut builder = SerialExecutor::builder();
    let error = builder
        .queue_capacity(0)
        .inline(false)
        .build(())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains("queue_capacity is 0"), "{text}");
    assert!(text.contains("set queue_capacity to at least 1"), "{text}");
    assert!(builder.inline(true).build(()).is_ok());
    let shown = format!("{builder:?}");
    assert!(shown.contains("queue_capacity: Some(0)"), "{shown}");
}

// ===== reset =====

fn poisoned(state: u32) -> SerialExecutor<u32> {
    let executor = SerialExecutor::new(state);
    drop(executor.submit(|_| panic!("on purpose")));
    assert!(executor.is_poisoned());
    executor
}

#[test]
fn reset_replaces_a_poisoned_state() {
    let executor = poisoned(1);
    assert_eq!(ready(Box::pin(executor.reset(2))), Ok(1));
    assert!(!executor.is_poisoned());
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 2);
}

#[test]
fn reset_returns_the_state_if_the_executor_is_sound_or_closed() {
    let executor = SerialExecutor::new(1);
    assert_eq!(ready(Box::pin(executor.reset(2))), Err(2));
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);

    let executor = poisoned(1);
    executor.close();
    assert_eq!(ready(Box::pin(executor.reset(2))), Err(2));
    let executor = block_on(executor.into_inner()).unwrap_err();
    assert!(executor.is_poisoned());
}

#[test]
fn reset_waits_until_the_executor_is_released() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(1);
    let guard = {
        let _in = runtime.enter();
        join(executor.submit_async(|guard| async move { guard })).unwrap()
    };
    let queued = executor.submit(|n| *n);
    // A panic drops the guard later; until then nothing is poisoned.
    assert_eq!(ready(Box::pin(executor.reset(3))), Err(3));
    let panics = AssertUnwindSafe(|| {
        let _guard = guard;
        panic!("on purpose");
    });
    catch_unwind(panics).unwrap_err();
    assert!(join(queued).unwrap_err().is_poisoned());
    assert_eq!(block_on(executor.reset(4)), Ok(1));
    assert_eq!(join(executor.submit(|n| *n)).unwrap(), 4);
}

#[test]
fn a_waiting_reset_ends_when_the_executor_is_released_sound_or_closed() {
    for end in ["released", "cleared", "closed"] {
        let executor = SerialExecutor::new(1);
        let busy = occupy(&executor);
        let gate = Gate::new();
        let (entered, has_entered) = channel();
        let passed = gate.clone();
        // The handle of the panic is ready while the next job still runs.
        let panics = executor.submit(|_| panic!("on purpose"));
        let captured = OnDrop(Some(Box::new(move || {
            entered.send(()).unwrap();
            passed.pass();
        })));
        // It is refused, and the drop of its captures delays the owner.
        let refused = executor.submit(move |_| drop(captured));
        let released = thread::spawn(move || busy.release());
        receive(&has_entered);
        let panicked: Result<(), _> = join(panics);
        assert!(panicked.unwrap_err().is_panic());

        let (wakes, waker) = Wakes::new();
        let mut reset = Box::pin(executor.reset(2));
        assert!(poll_with(&waker, &mut reset).is_pending());
        match end {
            "cleared" => assert!(executor.clear_poison()),
            "closed" => executor.close(),
            _ => {}
        }
        assert_eq!(wakes.count() > 0, end != "released");
        gate.open();
        released.join().unwrap();
        assert!(wakes.count() > 0, "{end}");
        drop(refused);
        let expected = if end == "released" { Ok(1) } else { Err(2) };
        assert_eq!(ready(reset), expected, "{end}");
    }
}

/// Calls a closure when it is dropped.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().unwrap()();
    }
}

#[test]
fn one_of_many_resets_replaces_the_state() {
    for _ in 0..rounds(200, 20_000) {
        let executor = poisoned(0);
        let replaced = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 1..=3 {
                let (executor, replaced) = (&executor, &replaced);
                scope.spawn(move || match block_on(executor.reset(n)) {
                    Ok(0) => _ = replaced.fetch_add(1, Ordering::SeqCst),
                    Ok(other) => panic!("{other} was never poisoned"),
                    Err(back) => assert_eq!(back, n),
                });
            }
        });
        assert_eq!(replaced.into_inner(), 1);
        assert!((1..=3).contains(&ready(executor.submit(|n| *n)).unwrap()));
    }
}
