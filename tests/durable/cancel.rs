//! Tasks that are cancelled: before they run, while they do, and after.

use std::time::Duration;

use throng::Retry;
use throng::durable::{DurableClient, SpawnOptions, Status, StopReason, TaskError};

use crate::harness::{Door, TestStore, builder, id, reaches, spawn, spawn_as, start, start_as};
use crate::ledger::assert_balanced;
use crate::support::{Drops, within};

on_all_stores! {
    a_task_that_is_cancelled_before_it_runs_never_does,
    a_delayed_task_can_be_cancelled,
    a_task_between_two_attempts_can_be_cancelled,
    a_running_task_sees_that_it_is_cancelled,
    another_process_can_cancel_a_running_task,
    a_task_that_succeeds_all_the_same_has_succeeded,
    a_task_that_panics_when_it_is_cancelled_is_cancelled,
    a_task_that_snoozes_when_it_is_cancelled_is_cancelled,
    a_task_that_fails_at_its_last_attempt_when_it_is_cancelled_is_cancelled,
    a_task_that_fails_for_good_when_it_is_cancelled_is_cancelled,
    what_has_ended_cannot_be_cancelled,
    many_tasks_are_cancelled_in_one_call,
    whoever_waits_is_told_of_a_cancel,
    what_a_cancelled_task_has_captured_is_dropped,
}

async fn a_task_that_is_cancelled_before_it_runs_never_does(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 1).await;
    assert!(handle.cancel().await.unwrap());
    assert!(!handle.cancel().await.unwrap());
    assert_eq!(handle.status().await.unwrap(), Status::Cancelled);
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(within(spawn(&client, 2).await).await.unwrap(), 2);
    assert_eq!(executor.metrics().claimed, 1);
    let error = within(handle).await.unwrap_err();
    assert!(error.is_cancelled() && !error.is_dead(), "{error}");
    let counts = client.counts().await.unwrap();
    // "How often one was cancelled while it ran."
    assert_eq!((counts.cancelled, counts.kept), (0, 2));
    assert_balanced(&counts);
}

async fn a_delayed_task_can_be_cancelled(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let later = SpawnOptions::new().delay(Duration::from_secs(3600));
    let handle = spawn_as(&client, 1, later).await;
    assert!(handle.cancel().await.unwrap());
    assert!(within(handle).await.unwrap_err().is_cancelled());
    assert_eq!(client.counts().await.unwrap().delayed, 0);
}

async fn a_task_between_two_attempts_can_be_cancelled(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, _| async {
        Err(TaskError::retry_after("later", Duration::from_secs(3600)))
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    assert!(handle.cancel().await.unwrap());
    assert!(within(handle).await.unwrap_err().is_cancelled());
}

/// The reactions of a task to its cancellation.
#[derive(Clone, Copy, Debug)]
enum Then {
    Fails,
    FailsForGood,
    Succeeds,
    Snoozes,
    Panics,
}

/// Cancels a task that runs, from another client or the same; the error that its handle gives.
async fn cancelled(
    client: &DurableClient,
    canceller: &DurableClient,
    retry: Retry,
    then: Then,
) -> Result<u64, throng::durable::DurableError> {
    let _executor = start_as(builder(client).retry(retry), move |_, cx| async move {
        cx.stopped().await;
        assert_eq!(cx.stop_reason(), Some(StopReason::Cancelled));
        assert_eq!(cx.stopped().await, StopReason::Cancelled);
        match then {
            Then::Fails => Err("told to stop".into()),
            Then::FailsForGood => Err(TaskError::fatal("told to stop")),
            Then::Succeeds => Ok(7),
            Then::Snoozes => Err(TaskError::snooze(Duration::ZERO)),
            Then::Panics => panic!("told to stop"),
        }
    })
    .await;
    let handle = spawn(client, 1).await;
    reaches(&handle, Status::Running).await;
    let ids = [handle.id()];
    assert_eq!(canceller.cancel(&ids).await.unwrap(), 1);
    canceller.cancel(&ids).await.unwrap();
    let end = within(handle).await;
    assert_eq!(canceller.cancel(&ids).await.unwrap(), 0);
    assert_balanced(&client.counts().await.unwrap());
    end
}

async fn a_running_task_sees_that_it_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let end = cancelled(&client, &client, Retry::exponential(), Then::Fails).await;
    assert!(end.unwrap_err().is_cancelled());
    assert_eq!(client.counts().await.unwrap().cancelled, 1);
}

async fn another_process_can_cancel_a_running_task(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let end = cancelled(&client, &other, Retry::exponential(), Then::Fails).await;
    assert!(end.unwrap_err().is_cancelled());
}

async fn a_task_that_succeeds_all_the_same_has_succeeded(store: TestStore) {
    let client = store.client().await;
    let end = cancelled(
        &client,
        &client,
        Retry::exponential().attempts(1),
        Then::Succeeds,
    )
    .await;
    assert_eq!(end.unwrap(), 7);
}

async fn a_task_that_panics_when_it_is_cancelled_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let end = cancelled(&client, &client, Retry::exponential(), Then::Panics).await;
    assert!(end.unwrap_err().is_cancelled());
}

async fn a_task_that_snoozes_when_it_is_cancelled_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let end = cancelled(
        &client,
        &client,
        Retry::exponential().attempts(1),
        Then::Snoozes,
    )
    .await;
    assert!(end.unwrap_err().is_cancelled());
}

async fn a_task_that_fails_at_its_last_attempt_when_it_is_cancelled_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let error = cancelled(
        &client,
        &client,
        Retry::exponential().attempts(1),
        Then::Fails,
    )
    .await;
    let error = error.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
}

async fn a_task_that_fails_for_good_when_it_is_cancelled_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let error = cancelled(
        &client,
        &client,
        Retry::exponential().attempts(1),
        Then::FailsForGood,
    )
    .await;
    let error = error.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
}

async fn what_has_ended_cannot_be_cancelled(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let mut handle = spawn(&client, 1).await;
    within(&mut handle).await.unwrap();
    assert!(!handle.cancel().await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 1);
    let unknown = client.attach::<crate::harness::Number>(id(9));
    assert!(!unknown.cancel().await.unwrap());
    assert_eq!(client.cancel(&[]).await.unwrap(), 0);
}

async fn many_tasks_are_cancelled_in_one_call(store: TestStore) {
    let client = store.client().await;
    let handles = client
        .spawn_all((0..1_000).map(crate::harness::Number))
        .await
        .unwrap();
    let mut ids: Vec<_> = handles.iter().map(|handle| handle.id()).collect();
    ids.push(id(9));
    assert_eq!(client.cancel(&ids).await.unwrap(), 1_000);
    assert_eq!(client.cancel(&ids).await.unwrap(), 0);
    for handle in handles {
        assert!(within(handle).await.unwrap_err().is_cancelled());
    }
}

async fn whoever_waits_is_told_of_a_cancel(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let handle = spawn(&client, 1).await;
    let same = other.attach::<crate::harness::Number>(handle.id());
    let waits = tokio::spawn(same);
    tokio::task::yield_now().await;
    handle.cancel().await.unwrap();
    assert!(within(waits).await.unwrap().unwrap_err().is_cancelled());
}

async fn what_a_cancelled_task_has_captured_is_dropped(store: TestStore) {
    let (client, drops, door) = (store.client().await, Drops::new(), Door::new());
    let (counted, held) = (drops.clone(), door.clone());
    let _executor = start(&client, move |_, cx| {
        let (value, door) = (counted.value(), held.clone());
        async move {
            tokio::select! {
                _ = cx.stopped() => {}
                () = door.pass() => {}
            }
            drop(value);
            Err("told to stop".into())
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Running).await;
    crate::harness::until("it runs", || drops.made() == 1).await;
    handle.cancel().await.unwrap();
    assert!(within(handle).await.unwrap_err().is_cancelled());
    assert_eq!((drops.made(), drops.count()), (1, 1));
}
