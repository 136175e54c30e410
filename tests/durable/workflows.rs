//! Workflows: steps, sleeps and signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt;
use futures::future::join_all;
use throng::Retry;
use throng::durable::{
    Changed, DeadFilter, DeadReason, DurableClient, DurableHandle, Status, TaskChange, TaskContext,
    TaskError, TaskId,
};

use crate::harness::{
    App, Door, Number, SOON, TestStore, builder, reaches, run_due, spawn, start, start_as,
    start_inline, timed,
};
use crate::support::within;

on_all_stores! {
    a_step_runs_once_and_later_runs_get_its_output,
    a_step_that_fails_runs_again,
    a_run_may_try_a_step_again,
    steps_may_run_at_the_same_time,
    a_name_that_is_used_twice_is_fatal,
    a_name_that_is_too_long_is_fatal,
    a_value_that_is_too_large_is_fatal,
    a_stored_value_of_another_type_is_fatal,
    an_output_that_cannot_be_read_is_not_stored,
    a_task_has_a_limited_number_of_steps,
    a_replayed_task_continues_behind_its_last_step,
    a_sleeping_task_holds_no_permit,
    a_short_sleep_does_not_end_the_run,
    a_wait_that_was_dropped_is_repeated,
    a_task_waits_for_a_signal,
    a_signal_that_comes_first_is_kept,
    the_first_of_several_signals_counts,
    a_signal_ends_the_wait_for_any_of_several,
    a_signal_in_time_is_some,
    a_signal_that_is_late_by_a_little_is_none,
    a_signal_to_an_absent_or_ended_task_is_an_error,
    a_signal_that_is_too_large_or_has_no_name_is_an_error,
    a_waiting_task_is_cancelled,
    a_fatal_or_later_error_after_a_wait_does_not_end_it,
    an_error_after_a_wait_may_be_earlier,
    a_wrong_step_beside_a_wait_is_fatal,
    a_step_that_fails_beside_a_wait_is_tried_again,
    a_step_that_fails_does_not_end_a_wait,
    a_run_that_ignores_a_wait_succeeds,
    a_panic_after_a_wait_is_a_failure,
    a_clone_of_the_context_is_the_same_run,
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Counts calls.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicU64>);

impl Calls {
    /// Counts a call. Returns its number, from 1.
    pub(crate) fn add(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

async fn run_now(client: &DurableClient, handle: &DurableHandle<u64>) {
    let changed = client.admin().change(handle.id(), TaskChange::RunNow).await;
    assert_eq!(changed.unwrap(), Changed::Yes);
}

/// Waits until a task is a dead letter. Returns its error.
pub(crate) async fn fatal_error(handle: DurableHandle<u64>) -> String {
    let error = within(handle).await.expect_err("the task has failed");
    assert!(error.is_dead(), "{error}");
    assert_eq!(error.dead_reason(), Some(DeadReason::Fatal), "{error}");
    error.to_string()
}

async fn a_step_runs_once_and_later_runs_get_its_output(store: TestStore) {
    let client = store.client().await;
    let [first, second, runs] = [0; 3].map(|_| Calls::default());
    let (one, two, all) = (first.clone(), second.clone(), runs.clone());
    let _executor = start(&client, move |number, cx| {
        let (first, second, runs) = (one.clone(), two.clone(), all.clone());
        async move {
            let run = runs.add();
            let before = cx
                .step("first", || async { Ok(first.add() * 10 + number) })
                .await?;
            if run == 1 {
                return Err(TaskError::retry("the first run fails"));
            }
            let after = cx.step("second", || async { Ok(second.add()) }).await?;
            if run == 2 {
                return Err(TaskError::retry("the second run fails"));
            }
            Ok(before * 100 + after)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    assert_eq!(within(handle).await.unwrap(), 1701);
    assert_eq!((first.get(), second.get(), runs.get()), (1, 1, 3));
}

async fn a_step_that_fails_runs_again(store: TestStore) {
    let client = store.client().await;
    let calls = Calls::default();
    let counted = calls.clone();
    let _executor = start(&client, move |_, cx| {
        let calls = counted.clone();
        async move {
            cx.step("fails twice", || async {
                match calls.add() {
                    3 => Ok(3),
                    call => Err(TaskError::retry(format!("call {call}"))),
                }
            })
            .await
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 3);
    assert_eq!(calls.get(), 3);
}

async fn a_run_may_try_a_step_again(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        let calls = Calls::default();
        let attempt = || async {
            match calls.add() {
                3 => Ok(3),
                _ => Err(TaskError::retry("not yet")),
            }
        };
        // The second call is dropped before it ends.
        assert!(cx.step("again", attempt).await.is_err());
        tokio::select! {
            biased;
            _ = cx.step("again", std::future::pending::<Result<u64, TaskError>>) => unreachable!("it never ends"),
            () = tokio::task::yield_now() => {}
        }
        assert!(cx.step("again", attempt).await.is_err());
        let output = cx.step("again", attempt).await?;
        let twice = cx.step("again", attempt).await;
        twice.map(|_| output)
    })
    .await;
    // Once it has succeeded, the name is used.
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(error.contains("`step:again` twice"), "{error}");
}

async fn steps_may_run_at_the_same_time(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        let cx = &cx;
        let steps = (0..300_u64).map(|nth| async move {
            let name = format!("step {nth}");
            cx.step(&name, || async { Ok(nth * number) }).await
        });
        let outputs = join_all(steps).await.into_iter();
        outputs.sum::<Result<u64, TaskError>>()
    })
    .await;
    let handles = [spawn(&client, 1).await, spawn(&client, 2).await];
    for (number, handle) in (1..).zip(handles) {
        assert_eq!(within(handle).await.unwrap(), number * 300 * 299 / 2);
    }
}

async fn a_name_that_is_used_twice_is_fatal(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        cx.step("again", || async { Ok(1) }).await?;
        // A sleep may have the name of a step.
        cx.sleep("again", Duration::ZERO).await?;
        match number {
            1 => cx.step("again", || async { Ok(2) }).await,
            _ => cx.sleep("again", Duration::ZERO).await.map(|()| 3),
        }
    })
    .await;
    for (number, name) in [(1, "`step:again`"), (2, "`sleep:again`")] {
        let error = fatal_error(spawn(&client, number).await).await;
        assert!(
            error.contains(&format!("the run uses {name} twice")),
            "{error}"
        );
    }
}

async fn a_name_that_is_too_long_is_fatal(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |len, cx| async move {
        cx.step(&"x".repeat(len as usize), || async { Ok(len) })
            .await
    })
    .await;
    assert_eq!(within(spawn(&client, 128).await).await.unwrap(), 128);
    for len in [0, 129] {
        let error = fatal_error(spawn(&client, len).await).await;
        assert!(
            error.contains(&format!("has 1 to 128 bytes, and this one has {len}")),
            "{error}"
        );
    }
}

async fn a_value_that_is_too_large_is_fatal(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |len, cx| async move {
        // JSON adds the quotes.
        let text = cx.step("large", || async { Ok("x".repeat(len as usize - 2)) });
        Ok(text.await?.len() as u64)
    })
    .await;
    let most = 64 << 10;
    assert_eq!(within(spawn(&client, most).await).await.unwrap(), most - 2);
    let error = fatal_error(spawn(&client, most + 1).await).await;
    assert!(error.contains("`step:large` has 65537 bytes"), "{error}");
}

async fn a_stored_value_of_another_type_is_fatal(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let run = runs.add();
        async move {
            if run == 1 {
                cx.step("typed", || async { Ok("a text".to_owned()) })
                    .await
                    .map(drop)?;
                return Err(TaskError::retry("the first run fails"));
            }
            cx.step("typed", || async { Ok(1) }).await
        }
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(
        error.contains("the stored value of `step:typed` is not of the type"),
        "{error}"
    );
}

async fn a_task_has_a_limited_number_of_steps(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |count, cx| async move {
        let cx = &cx;
        let steps = (0..count)
            .map(|nth| async move { cx.step(&nth.to_string(), || async { Ok(()) }).await });
        for stored in join_all(steps).await {
            stored?;
        }
        Ok(count)
    })
    .await;
    assert_eq!(within(spawn(&client, 8192).await).await.unwrap(), 8192);
    let error = fatal_error(spawn(&client, 8193).await).await;
    assert!(
        error.contains("a task has at most 8192 steps, of 2097152 bytes"),
        "{error}"
    );
}

async fn a_replayed_task_continues_behind_its_last_step(store: TestStore) {
    let client = store.client().await;
    let (calls, runs) = (Calls::default(), Calls::default());
    let (counted, all) = (calls.clone(), runs.clone());
    let _executor = start(&client, move |_, cx| {
        let (calls, run) = (counted.clone(), all.add());
        async move {
            let output = cx.step("once", || async { Ok(calls.add()) }).await?;
            match run {
                1 => Err(TaskError::fatal("the first run fails for good")),
                _ => Ok(output + 10),
            }
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    fatal_error(handle).await;
    let replayed = client.dead_letters().replay(DeadFilter::ids([id])).await;
    assert_eq!(replayed.unwrap(), 1);
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 11);
    assert_eq!((calls.get(), runs.get()), (1, 2));
}

// ===== Sleeps =====

async fn a_sleeping_task_holds_no_permit(store: TestStore) {
    let client = store.client().await;
    let mut one_at_a_time = builder(&client);
    one_at_a_time.max_running(1);
    let _executor = start_as(&one_at_a_time, |number, cx| async move {
        if number < 3 {
            cx.sleep("long", HOUR).await?;
        }
        Ok(number)
    })
    .await;
    for number in 1..=2 {
        reaches(&spawn(&client, number).await, Status::Delayed).await;
    }
    assert_eq!(within(spawn(&client, 3).await).await.unwrap(), 3);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.delayed, counts.running, counts.retried), (2, 0, 0));
}

async fn a_short_sleep_does_not_end_the_run(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let all = runs.clone();
    let _executor = start(&client, move |_, cx| {
        all.add();
        async move {
            let begun = Instant::now();
            cx.sleep("short", Duration::from_millis(80)).await?;
            cx.sleep_until("past", SystemTime::UNIX_EPOCH).await?;
            Ok(begun.elapsed().as_millis() as u64)
        }
    })
    .await;
    let slept = within(spawn(&client, 1).await).await.unwrap();
    assert!(slept >= 80, "{slept}");
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn a_task_sleeps_for_days() {
    let (clock, client) = timed();
    let steps = Calls::default();
    let counted = steps.clone();
    let mut executor = start_inline(builder(&client), move |number, cx| {
        let steps = counted.clone();
        async move {
            cx.step("before", || async { Ok(steps.add()) }).await?;
            cx.sleep("trial", 14 * DAY).await?;
            cx.step("after", || async { Ok(steps.add()) }).await?;
            cx.sleep("notice", 3 * DAY).await?;
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    assert_eq!((run_due(&mut executor).await, steps.get()), (1, 1));
    clock.advance(13 * DAY);
    assert_eq!(run_due(&mut executor).await, 0);
    // A run in between sleeps on.
    run_now(&client, &handle).await;
    assert_eq!((run_due(&mut executor).await, steps.get()), (1, 1));
    assert_eq!(handle.status().await.unwrap(), Status::Delayed);
    clock.advance(DAY);
    assert_eq!((run_due(&mut executor).await, steps.get()), (1, 2));
    clock.advance(3 * DAY - HOUR);
    assert_eq!(run_due(&mut executor).await, 0);
    clock.advance(HOUR);
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(handle.await.unwrap(), 7);
    assert_eq!(steps.get(), 2);
}

#[tokio::test]
async fn the_first_of_several_waits_ends_first() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, cx| async move {
        let both = (cx.sleep("two hours", 2 * HOUR), cx.sleep("one hour", HOUR));
        tokio::try_join!(both.0, both.1)?;
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 7).await;
    // The first wait ends the run. So the second one begins with the first run or with the second, depending on when its step is stored.
    assert_eq!(run_due(&mut executor).await, 1);
    clock.advance(2 * HOUR);
    assert_eq!(run_due(&mut executor).await, 1);
    // Its result is kept for an hour.
    if handle.status().await.unwrap() == Status::Delayed {
        clock.advance(HOUR);
        assert_eq!(run_due(&mut executor).await, 1);
    }
    assert_eq!(handle.await.unwrap(), 7);
}

#[tokio::test]
async fn waits_that_are_asked_for_together_end_one_after_the_other() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, cx| async move {
        let slept = tokio::join!(cx.sleep("two hours", 2 * HOUR), cx.sleep("one hour", HOUR));
        slept.0.and(slept.1)?;
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    for _ in 0..2 {
        clock.advance(HOUR - Duration::from_secs(10));
        assert_eq!(run_due(&mut executor).await, 0);
        clock.advance(Duration::from_secs(10));
        assert_eq!(run_due(&mut executor).await, 1);
    }
    assert_eq!(handle.await.unwrap(), 7);
}

#[tokio::test]
async fn a_sleep_forgets_failures() {
    let (clock, client) = timed();
    let mut retried = builder(&client);
    retried.retry(Retry::exponential().attempts(2).max_elapsed(HOUR));
    let runs = Calls::default();
    let mut executor = start_inline(retried, move |number, cx| {
        let run = runs.add();
        async move {
            for day in 0..5 {
                cx.sleep(&day.to_string(), DAY).await?;
                // The run after each sleep fails once.
                if run == 2 * day + 2 {
                    // A random delay could be so short that the next attempt is due at once.
                    return Err(TaskError::retry_after("once a day", HOUR / 2));
                }
                assert_eq!(
                    cx.attempt(),
                    if run == 2 * day + 3 { 2 } else { cx.attempt() }
                );
            }
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 7).await;
    assert_eq!(run_due(&mut executor).await, 1);
    for _ in 0..5 {
        clock.advance(DAY);
        assert_eq!(run_due(&mut executor).await, 1);
        assert_eq!(handle.errors().await.unwrap().len(), 1);
        clock.advance(HOUR);
        assert_eq!(run_due(&mut executor).await, 1);
    }
    assert_eq!(handle.await.unwrap(), 7);
}

#[tokio::test]
async fn a_sleep_of_any_length_is_possible() {
    let (_, client) = timed();
    let mut executor = start_inline(builder(&client), |_, cx| async move {
        cx.sleep("for ever", Duration::MAX).await?;
        Ok(0)
    })
    .await;
    let handle = spawn(&client, 1).await;
    for _ in 0..2 {
        assert_eq!(run_due(&mut executor).await, 1);
        assert_eq!(handle.status().await.unwrap(), Status::Delayed);
        run_now(&client, &handle).await;
    }
}

// ===== Signals =====

/// A task that waits for a signal with the value of the output.
async fn awaits_signal(_: u64, cx: TaskContext<App>) -> Result<u64, TaskError> {
    cx.signal("go").await
}

async fn a_task_waits_for_a_signal(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let executor = start(&client, awaits_signal).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    assert!(other.signal(handle.id(), "go", &7).await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 7);
    assert_eq!(executor.metrics().late_wakes, 0);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.snoozed, counts.retried, counts.claimed), (1, 0, 2));
}

async fn a_signal_that_comes_first_is_kept(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let handle = spawn(&client, 1).await;
    // It waits, and no worker has claimed it.
    assert!(other.signal(handle.id(), "go", &7).await.unwrap());
    let door = Door::new();
    let run_door = door.clone();
    let _executor = start(&client, move |_, cx| {
        let door = run_door.clone();
        async move {
            let first: u64 = cx.signal("go").await?;
            door.pass().await;
            let second: u64 = cx.signal("on").await?;
            Ok(first * 10 + second)
        }
    })
    .await;
    reaches(&handle, Status::Running).await;
    assert!(other.signal(handle.id(), "on", &8).await.unwrap());
    door.open();
    assert_eq!(within(handle).await.unwrap(), 78);
}

async fn the_first_of_several_signals_counts(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 1).await;
    assert!(client.signal(handle.id(), "go", &7).await.unwrap());
    assert!(!client.signal(handle.id(), "go", &8).await.unwrap());
    let _executor = start(&client, awaits_signal).await;
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn a_signal_ends_the_wait_for_any_of_several(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, cx| async move {
        let signals = tokio::join!(cx.signal::<u64>("a"), cx.signal::<u64>("b"));
        signals.0.or(signals.1)
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    // A signal that it does not wait for changes nothing.
    assert!(client.signal(handle.id(), "c", &9).await.unwrap());
    assert!(client.signal(handle.id(), "b", &7).await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 7);
    assert_eq!(executor.metrics().late_wakes, 0);
}

async fn a_signal_in_time_is_some(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        Ok(cx.signal_within("go", HOUR).await?.unwrap_or(1))
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    assert!(client.signal(handle.id(), "go", &7).await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn a_signal_that_is_late_by_a_little_is_none(store: TestStore) {
    let client = store.client().await;
    let (passed, door) = (Door::new(), Door::new());
    let (run_passed, run_door) = (passed.clone(), door.clone());
    let runs = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let (passed, door, run) = (run_passed.clone(), run_door.clone(), runs.add());
        async move {
            let signal: Option<u64> = cx.signal_within("go", Duration::from_millis(10)).await?;
            passed.open();
            door.pass().await;
            match run {
                1 => Err(TaskError::retry("the first run fails")),
                _ => Ok(signal.unwrap_or(run)),
            }
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    within(passed.pass()).await;
    assert!(!client.signal(handle.id(), "go", &7).await.unwrap());
    door.open();
    // All runs get the same answer.
    assert_eq!(within(handle).await.unwrap(), 2);
}

#[tokio::test]
async fn a_task_waits_for_a_signal_for_days() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, cx| async move {
        let signal = cx.signal_within("go", number as u32 * DAY).await?;
        Ok(signal.unwrap_or(100))
    })
    .await;
    let handles = [spawn(&client, 2).await, spawn(&client, 3).await];
    assert_eq!(run_due(&mut executor).await, 2);
    clock.advance(DAY);
    // The tasks look for their signals from time to time.
    run_due(&mut executor).await;
    clock.advance(DAY);
    run_due(&mut executor).await;
    let [in_vain, other] = handles;
    assert_eq!(in_vain.await.unwrap(), 100);
    assert_eq!(other.status().await.unwrap(), Status::Delayed);
    assert!(client.signal(other.id(), "go", &7).await.unwrap());
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(other.await.unwrap(), 7);
}

async fn a_signal_to_an_absent_or_ended_task_is_an_error(store: TestStore) {
    let client = store.client().await;
    let error = client.signal(TaskId::new(), "go", &7).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
    let _executor = start(&client, awaits_signal).await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    assert!(client.signal(id, "go", &7).await.unwrap());
    within(handle).await.unwrap();
    let error = client.signal(id, "go", &7).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
    assert_eq!(error.task_id(), Some(id));
}

async fn a_signal_that_is_too_large_or_has_no_name_is_an_error(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 1).await;
    let long = "x".repeat(129);
    for name in ["", &long] {
        let error = client.signal(handle.id(), name, &7).await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    let large = "x".repeat(64 << 10);
    let error = client.signal(handle.id(), "go", &large).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
    // A value of another type is found when the task reads it.
    assert!(client.signal(handle.id(), "go", "a text").await.unwrap());
    let _executor = start(&client, awaits_signal).await;
    let error = fatal_error(handle).await;
    assert!(error.contains("`signal:go`"), "{error}");
}

// ===== How runs end =====

async fn a_waiting_task_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, awaits_signal).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    handle.cancel().await.unwrap();
    assert!(within(handle).await.unwrap_err().is_cancelled());
}

async fn a_fatal_or_later_error_after_a_wait_does_not_end_it(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        match (cx.signal("go").await, number) {
            (Ok(signal), _) => Ok(signal),
            (Err(_), 0) => Err(TaskError::fatal("mapped")),
            (Err(_), 1) => Err(TaskError::retry_after("mapped", DAY)),
            (Err(_), _) => Err(TaskError::snooze(DAY)),
        }
    })
    .await;
    for number in 0..3 {
        let handle = spawn(&client, number).await;
        reaches(&handle, Status::Delayed).await;
        assert!(client.signal(handle.id(), "go", &7).await.unwrap());
        assert_eq!(within(handle).await.unwrap(), 7);
    }
}

async fn an_error_after_a_wait_may_be_earlier(store: TestStore) {
    let client = store.client().await;
    let calls = Calls::default();
    let _executor = start(&client, move |number, cx| {
        let calls = calls.clone();
        async move {
            assert!(cx.signal::<u64>("go").await.is_err());
            match (calls.add(), number) {
                (1, _) => Err(TaskError::retry("a run fails")),
                (2, _) => Err(TaskError::snooze(Duration::from_millis(10))),
                (3, _) => Err(TaskError::retry_after("another run fails", Duration::ZERO)),
                (call, _) => Ok(call),
            }
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 4);
}

async fn a_wrong_step_beside_a_wait_is_fatal(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        let both = tokio::join!(cx.signal::<u64>("go"), cx.signal::<u64>("go"));
        both.0.and(both.1)
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(error.contains("the run uses `signal:go` twice"), "{error}");
}

async fn an_output_that_cannot_be_read_is_not_stored(store: TestStore) {
    let client = store.client().await;
    let calls = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let calls = calls.clone();
        async move {
            let output = || match calls.add() {
                1 => f64::NAN,
                _ => 7.0,
            };
            let output = cx.step("step", || async { Ok(output()) }).await?;
            Ok(output as u64)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    let error = fatal_error(handle).await;
    assert!(error.contains("`step:step` was not stored"), "{error}");
    let replayed = client.dead_letters().replay(DeadFilter::ids([id])).await;
    assert_eq!(replayed.unwrap(), 1);
    let handle = client.attach::<Number>(id);
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn a_wait_that_was_dropped_is_repeated(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        let short = Duration::from_millis(20);
        assert!(cx.sleep("sleep", short).now_or_never().is_none());
        cx.sleep("sleep", short).await?;
        let receive = || cx.signal_within::<u64>("go", short);
        assert!(receive().now_or_never().is_none());
        Ok(receive().await?.unwrap_or(7))
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 7);
}

async fn a_step_that_fails_beside_a_wait_is_tried_again(store: TestStore) {
    let client = store.client().await;
    let calls = Calls::default();
    let _executor = start(&client, move |number, cx| {
        let calls = calls.clone();
        async move {
            // The first signal has arrived, and the run does not need the second.
            let signals = tokio::join!(cx.signal::<u64>("go"), cx.signal::<u64>("other"));
            let go = signals.0?;
            assert!(signals.1.is_err());
            let step = cx.step("step", || async {
                match (calls.add(), number) {
                    (1, _) => Err(TaskError::retry("the first call fails")),
                    (_, 1) => Ok(go),
                    _ => Err(TaskError::fatal("the second call fails for good")),
                }
            });
            step.await
        }
    })
    .await;
    for number in 1..=2 {
        let handle = spawn(&client, number).await;
        assert!(client.signal(handle.id(), "go", &7).await.unwrap());
        match number {
            1 => assert_eq!(within(handle).await.unwrap(), 7),
            _ => assert!(fatal_error(handle).await.contains("fails for good")),
        }
    }
}

async fn a_step_that_fails_does_not_end_a_wait(store: TestStore) {
    let client = store.client().await;
    let calls = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let calls = calls.clone();
        async move {
            let failing = || async {
                calls.add();
                Err::<(), _>(TaskError::retry("it always fails"))
            };
            let both = tokio::join!(cx.step("step", failing), cx.signal::<u64>("go"));
            // The run ends with the error of the wait.
            both.1.map(|_| calls.get())
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    assert!(client.signal(handle.id(), "go", &7).await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 2);
}

async fn a_run_that_ignores_a_wait_succeeds(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        _ = cx.signal::<u64>("go").await;
        _ = cx.sleep("long", HOUR).await;
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
}

async fn a_panic_after_a_wait_is_a_failure(store: TestStore) {
    let client = store.client().await;
    let mut once = builder(&client);
    once.retry(SOON.attempts(1));
    let _executor = start_as(&once, |_, cx| async move {
        Ok(cx.signal("go").await.expect("the signal has arrived"))
    })
    .await;
    let error = within(spawn(&client, 1).await).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts), "{error}");
}

async fn a_clone_of_the_context_is_the_same_run(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        let other = cx.clone();
        let stored = tokio::spawn(async move { other.step("a", || async { Ok(1) }).await });
        stored.await??;
        match number {
            1 => cx.step("a", || async { Ok(2) }).await,
            _ => cx.step("b", || async { Ok(2) }).await,
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 2).await).await.unwrap(), 2);
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(error.contains("twice"), "{error}");
}
