//! Behaviour that depends on time, on a clock that the tests move.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DeadFilter, DeadReason, DurableExecutor, DurableTask, Run, SpawnOptions, Status, TaskContext,
    TaskError,
};

use crate::harness::{builder, id, run_due, spawn, spawn_as, start, start_inline, timed};
use crate::support::within;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn a_delayed_task_runs_when_it_is_due_and_not_before() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    let handle = spawn_as(&client, 1, SpawnOptions::new().delay(HOUR)).await;
    clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(run_due(&mut executor).await, 0);
    assert_eq!(handle.status().await.unwrap(), Status::Delayed);
    clock.advance(Duration::from_millis(1));
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(within(handle).await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_due_earlier_runs_earlier() {
    let (clock, client) = timed();
    let order = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&order);
    let mut executor = start_inline(builder(&client), move |number, _| {
        ran.lock().unwrap().push(number);
        async move { Ok(number) }
    })
    .await;
    for number in [3, 1, 4, 2] {
        let delay = SECOND * number as u32;
        drop(spawn_as(&client, number, SpawnOptions::new().delay(delay)).await);
    }
    clock.advance(HOUR);
    assert_eq!(run_due(&mut executor).await, 4);
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_running_executor_follows_the_clock() {
    let (clock, client) = timed();
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = spawn_as(&client, 1, SpawnOptions::new().delay(DAY)).await;
    clock.advance(DAY);
    assert_eq!(within(handle).await.unwrap(), 1);
}

#[tokio::test]
async fn a_wait_that_the_task_names_is_kept_exactly() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |_, cx| async move {
        match cx.attempt() {
            1 => Err(TaskError::retry_after("told to", HOUR)),
            attempt => Ok(attempt.into()),
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    assert_eq!(run_due(&mut executor).await, 1);
    clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(run_due(&mut executor).await, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(within(handle).await.unwrap(), 2);
}

#[tokio::test]
async fn a_snooze_is_kept_exactly() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |_, _| async {
        Err(TaskError::snooze(HOUR))
    })
    .await;
    let handle = spawn(&client, 1).await;
    for _ in 0..3 {
        assert_eq!(run_due(&mut executor).await, 1);
        assert_eq!(handle.status().await.unwrap(), Status::Delayed);
        clock.advance(HOUR - Duration::from_millis(1));
        assert_eq!(run_due(&mut executor).await, 0);
        clock.advance(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn waits_between_attempts_are_as_long_as_the_retry_says_at_most() {
    let (clock, client) = timed();
    // Of such long delays, hardly any is so short that the next attempt is due at once.
    let retry = Retry::exponential().base(HOUR).cap(4 * HOUR).attempts(4);
    let mut executor = start_inline(builder(&client).retry(retry), |_, _| async {
        Err(TaskError::retry("no"))
    })
    .await;
    let handle = spawn(&client, 1).await;
    for most in [0, 1, 2, 4] {
        clock.advance(HOUR * most);
        assert_eq!(run_due(&mut executor).await, 1);
    }
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
}

#[tokio::test]
async fn an_end_is_kept_as_long_as_was_said() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    let long = SpawnOptions::new().retention(HOUR);
    let as_usual = spawn(&client, 1).await;
    let long = spawn_as(&client, 2, long).await;
    let cancelled = spawn_as(&client, 3, SpawnOptions::new().retention(SECOND)).await;
    cancelled.cancel().await.unwrap();
    assert_eq!(run_due(&mut executor).await, 2);
    clock.advance(SECOND);
    assert!(within(cancelled).await.unwrap_err().is_expired());
    clock.advance(Duration::from_secs(598));
    assert_eq!(as_usual.status().await.unwrap(), Status::Done);
    clock.advance(SECOND);
    assert_eq!(as_usual.status().await.unwrap(), Status::Absent);
    let error = within(as_usual).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
    assert_eq!(within(long).await.unwrap(), 2);
}

#[tokio::test]
async fn an_id_is_free_again_when_its_end_is_not_kept() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    let options = SpawnOptions::new().id(id(1)).retention(HOUR);
    drop(spawn_as(&client, 1, options.clone()).await);
    assert_eq!(run_due(&mut executor).await, 1);
    clock.advance(HOUR - Duration::from_millis(1));
    drop(spawn_as(&client, 2, options.clone()).await);
    assert_eq!(run_due(&mut executor).await, 0);
    clock.advance(Duration::from_millis(1));
    let handle = spawn_as(&client, 3, options).await;
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(within(handle).await.unwrap(), 3);
}

#[tokio::test]
async fn dead_letters_are_kept_for_30_days() {
    let (clock, client) = timed();
    let mut executor = start_inline(builder(&client), |_, _| async {
        Err(TaskError::fatal("no"))
    })
    .await;
    let handle = spawn(&client, 1).await;
    run_due(&mut executor).await;
    clock.advance(30 * DAY - Duration::from_millis(1));
    let dead_letters = client
        .dead_letters()
        .list(DeadFilter::all(), 9)
        .await
        .unwrap();
    assert_eq!(dead_letters[0].age, 30 * DAY - Duration::from_millis(1));
    clock.advance(Duration::from_millis(1));
    assert_eq!(handle.status().await.unwrap(), Status::Absent);
    let dead_letters = client
        .dead_letters()
        .list(DeadFilter::all(), 9)
        .await
        .unwrap();
    assert_eq!(dead_letters, []);
}

/// A task that is not registered where tests run it.
#[derive(Serialize, Deserialize)]
struct Strange;

impl DurableTask for Strange {
    const NAME: &'static str = "strange";
    type Output = u32;
}

impl Run<()> for Strange {
    async fn run(self, cx: TaskContext<()>) -> Result<u32, TaskError> {
        Ok(cx.attempt())
    }
}

#[tokio::test]
async fn a_task_that_nobody_knows_waits_for_as_long_as_it_takes() {
    let (clock, client) = timed();
    let mut ignorant = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    let handle = client.spawn(Strange).await.unwrap();
    assert_eq!(run_due(&mut ignorant).await, 0);
    clock.advance(400 * DAY);
    assert_eq!(run_due(&mut ignorant).await, 0);
    assert_eq!(handle.status().await.unwrap(), Status::Waiting);

    let mut knowing = DurableExecutor::builder::<()>(client.clone());
    let mut knowing = knowing
        .register::<Strange>()
        .start_inline(())
        .await
        .unwrap();
    assert_eq!(run_due(&mut knowing).await, 1);
    assert_eq!(within(handle).await.unwrap(), 1);
}

#[tokio::test]
async fn an_executor_without_a_type_is_refused() {
    let (_, client) = timed();
    let started = DurableExecutor::builder::<()>(client)
        .start_inline(())
        .await;
    let error = started.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("call `register`"), "{error}");
}
