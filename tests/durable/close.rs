//! An executor that was closed: it claims nothing more, and its runs end as usual.

use std::pin::pin;
use std::time::{Duration, Instant};

use throng::durable::{DurableExecutor, DurableHandle, SpawnOptions, Status, TaskError};

use crate::harness::{
    Door, Number, TestStore, builder, id, reaches, spawn, spawn_as, start, start_as, until,
};
use crate::ledger::assert_balanced;
use crate::support::{poll, within};

on_all_stores! {
    a_closed_executor_runs_what_it_has_claimed_and_claims_nothing_more,
    the_runs_of_a_closed_executor_go_on_while_others_run_new_tasks,
    a_failure_after_a_close_counts_like_any_other,
    a_run_of_a_closed_executor_awaits_a_task_that_another_claims,
    a_shutdown_after_a_close_gives_back_what_still_runs,
}

/// Starts an executor that runs three tasks at a time, and spawns three tasks that run until the door is open. A task that is asked to
/// stop becomes a dead letter.
async fn three_at_the_door(store: &TestStore, door: &Door) -> (DurableExecutor, Handles) {
    let client = store.client().await;
    let held = door.clone();
    let executor = start_as(builder(&client).max_running(3), move |number, cx| {
        let door = held.clone();
        async move {
            tokio::select! {
                biased;
                _ = cx.stopped() => Err(TaskError::fatal("it was asked to stop")),
                () = door.pass() => Ok(number),
            }
        }
    })
    .await;
    let handles = client.spawn_all((0..3).map(Number)).await.unwrap();
    run(&executor, 3).await;
    (executor, handles)
}

type Handles = Vec<DurableHandle<u64>>;

/// Waits until an executor runs `count` tasks. If it were closed before a claim has arrived, it would give the tasks of that claim back.
async fn run(executor: &DurableExecutor, count: u64) {
    until("they run", || executor.metrics().running == count).await;
}

async fn assert_outputs(handles: Handles, expected: impl IntoIterator<Item = u64>) {
    for (handle, expected) in handles.into_iter().zip(expected) {
        assert_eq!(within(handle).await.unwrap(), expected);
    }
}

async fn a_closed_executor_runs_what_it_has_claimed_and_claims_nothing_more(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let (executor, handles) = three_at_the_door(&store, &door).await;
    let waiting = spawn(&client, 3).await;
    executor.close();
    let later = spawn(executor.client(), 4).await;
    let mut closed = pin!(executor.closed());
    assert!(poll(&mut closed).is_pending());
    door.open();
    within(closed).await;
    // The store has the outcomes by then.
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.done, counts.running, counts.waiting), (3, 0, 2));
    assert_eq!((counts.claimed, counts.released), (3, 0));
    assert_balanced(&counts);
    assert_outputs(handles, 0..3).await;
    let _other = start(&client, |number, _| async move { Ok(number + 100) }).await;
    assert_outputs(vec![waiting, later], [103, 104]).await;
}

async fn the_runs_of_a_closed_executor_go_on_while_others_run_new_tasks(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let (executor, handles) = three_at_the_door(&store, &door).await;
    executor.close();
    let _other = start(&client, |number, _| async move { Ok(number + 100) }).await;
    let later = executor.client().spawn_all((10..30).map(Number)).await;
    assert_outputs(later.unwrap(), 110..130).await;
    let mut closed = pin!(executor.closed());
    assert!(poll(&mut closed).is_pending());
    door.open();
    within(closed).await;
    assert_outputs(handles, 0..3).await;
    assert_eq!(executor.metrics().claimed, 3);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.done, counts.released, counts.dead), (23, 0, 0));
    // Its client stays open.
    let last = spawn(executor.client(), 40).await;
    assert_eq!(within(last).await.unwrap(), 140);
}

async fn a_failure_after_a_close_counts_like_any_other(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let executor = start(&client, move |_, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Err("it fails".into())
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    run(&executor, 1).await;
    executor.close();
    door.open();
    within(executor.closed()).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.retried, counts.released), (1, 0));
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    assert_eq!(within(handle).await.unwrap(), 2);
}

async fn a_run_of_a_closed_executor_awaits_a_task_that_another_claims(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let executor = start(&client, move |_, cx| {
        let door = held.clone();
        async move {
            door.pass().await;
            let child = spawn_as(cx.client(), 100, SpawnOptions::new().id(id(100))).await;
            Ok(child.await? + 1)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    run(&executor, 1).await;
    executor.close();
    door.open();
    reaches(&client.attach::<Number>(id(100)), Status::Waiting).await;
    let mut closed = pin!(executor.closed());
    assert!(poll(&mut closed).is_pending());
    let other = start(&client, |number, _| async move { Ok(number) }).await;
    within(closed).await;
    assert_eq!(within(handle).await.unwrap(), 101);
    // The end of a task may be known before its worker has counted it.
    until("both have counted", || {
        [&executor, &other].map(|it| it.metrics().completed) == [1, 1]
    })
    .await;
}

async fn a_shutdown_after_a_close_gives_back_what_still_runs(store: TestStore) {
    const GRACE: Duration = Duration::from_millis(100);
    let client = store.client().await;
    let executor = start(&client, |number, _| async move {
        Door::new().pass().await;
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 1).await;
    run(&executor, 1).await;
    executor.close();
    let begun = Instant::now();
    within(executor.shutdown(GRACE)).await;
    assert!(begun.elapsed() >= GRACE, "{:?}", begun.elapsed());
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.waiting), (1, 1));
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    assert_eq!(within(handle).await.unwrap(), 1);
}
