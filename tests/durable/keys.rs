//! Keys: which handle a spawn returns if another task holds its key.

use std::time::Duration;

use throng::durable::{DurableClient, DurableHandle, Key, SpawnOptions, Status, TaskId};

use crate::harness::{Number, TestStore, id, spawn_as, start};

on_all_stores! {
    a_spawn_joins_the_task_that_holds_its_key,
    a_spawn_replaces_the_payload_of_the_task_that_holds_its_key,
    a_rejected_spawn_is_an_error,
    a_rejected_task_among_others_is_no_error,
    each_of_many_tasks_has_its_own_handle,
    spawns_at_once_get_their_own_handles,
    the_end_of_a_task_is_kept_for_its_window,
    a_debounced_task_is_delayed,
    options_that_exclude_a_key_are_refused,
}

const HOUR: Duration = Duration::from_secs(3600);

fn with_key(key: Key) -> SpawnOptions {
    SpawnOptions::new().key(key)
}

/// Returns which of `was_joined`, `has_replaced` and `was_rejected` are true. They are the same for a clone, and none is true for
/// another handle of the task.
fn conflict_of(client: &DurableClient, handle: &DurableHandle<u64>) -> [bool; 3] {
    let conflict = |it: &DurableHandle<u64>| {
        let all = [it.was_joined(), it.has_replaced(), it.was_rejected()];
        (it.id(), all)
    };
    assert_eq!(conflict(&handle.clone()), conflict(handle));
    let attached = client.attach::<Number>(handle.id());
    assert_eq!(conflict(&attached), (handle.id(), NONE));
    conflict(handle).1
}

const NONE: [bool; 3] = [false; 3];
const JOINED: [bool; 3] = [true, false, false];
const REPLACED: [bool; 3] = [false, true, false];
const REJECTED: [bool; 3] = [false, false, true];

async fn a_spawn_joins_the_task_that_holds_its_key(store: TestStore) {
    let client = store.client().await;
    let options = || with_key(Key::new("key"));
    let first = spawn_as(&client, 1, options()).await;
    let second = spawn_as(&client, 2, options()).await;
    let other = spawn_as(&client, 3, with_key(Key::new("other"))).await;
    assert_eq!(conflict_of(&client, &first), NONE);
    assert_eq!(conflict_of(&client, &second), JOINED);
    assert_eq!(conflict_of(&client, &other), NONE);
    assert_eq!(first.id(), second.id());
    let _executor = start(&client, |number, _| async move { Ok(10 * number) }).await;
    assert_eq!(second.await.unwrap(), 10);
    assert_eq!(other.await.unwrap(), 30);
}

async fn a_spawn_replaces_the_payload_of_the_task_that_holds_its_key(store: TestStore) {
    let client = store.client().await;
    let options = || with_key(Key::new("key").replace());
    let first = spawn_as(&client, 1, options()).await;
    let second = spawn_as(&client, 2, options()).await;
    assert_eq!(conflict_of(&client, &first), NONE);
    assert_eq!(conflict_of(&client, &second), REPLACED);
    assert_eq!(first.id(), second.id());
    let _executor = start(&client, |number, _| async move { Ok(10 * number) }).await;
    assert_eq!(first.await.unwrap(), 20);
}

async fn a_rejected_spawn_is_an_error(store: TestStore) {
    let client = store.client().await;
    let options = || with_key(Key::new("key").reject());
    let first = spawn_as(&client, 1, options()).await;
    let rejected = client.spawn_with(Number(2), options()).await;
    let error = rejected.expect_err("another task holds the key");
    assert!(error.is_conflict(), "{error}");
    assert!(!error.is_invalid() && !error.is_unknown(), "{error}");
    assert_eq!(error.task_id(), Some(first.id()));
    first.cancel().await.unwrap();
    assert_eq!(first.status().await.unwrap(), Status::Cancelled);
    spawn_as(&client, 2, options()).await;
}

async fn a_rejected_task_among_others_is_no_error(store: TestStore) {
    let client = store.client().await;
    let rejecting = || with_key(Key::new("key").reject());
    let holder = spawn_as(&client, 0, rejecting()).await;
    let tasks = [
        (Number(1), SpawnOptions::new()),
        (Number(2), rejecting()),
        (Number(3), with_key(Key::new("key"))),
        (Number(4), SpawnOptions::new()),
    ];
    let handles = client.spawn_all_with(tasks).await.unwrap();
    let conflicts: Vec<_> = handles.iter().map(|it| conflict_of(&client, it)).collect();
    assert_eq!(conflicts, [NONE, REJECTED, JOINED, NONE]);
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    for (handle, expected) in handles.into_iter().zip([1, 0, 0, 4]) {
        assert_eq!(expected == 0, handle.id() == holder.id());
        assert_eq!(handle.await.unwrap(), expected);
    }
}

/// There are so many tasks that it takes several requests to store them.
async fn each_of_many_tasks_has_its_own_handle(store: TestStore) {
    let client = store.client().await;
    let held = [10, 255, 256, 290, 511, 600];
    let keyed = |number: u64| (Number(number), with_key(Key::new(number.to_string())));
    let holders = client.spawn_all_with(held.map(keyed)).await.unwrap();
    let holders: Vec<_> = holders.iter().map(|it| it.id()).collect();
    let handles = client.spawn_all_with((0..700).map(keyed)).await.unwrap();
    assert_eq!(handles.len(), 700);
    let joined = (0..).zip(&handles).filter(|(_, it)| it.was_joined());
    let joined: Vec<(u64, TaskId)> = joined.map(|(at, it)| (at, it.id())).collect();
    let expected: Vec<_> = held.into_iter().zip(holders).collect();
    assert_eq!(joined, expected);
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    for (handle, number) in handles.into_iter().zip(0..) {
        assert_eq!(handle.await.unwrap(), number);
    }
}

/// One request stores tasks of several callers.
async fn spawns_at_once_get_their_own_handles(store: TestStore) {
    let client = store.client().await;
    let keyed = |number: u64| (Number(number), with_key(Key::new((number / 3).to_string())));
    let spawns = (0..60).map(|number| {
        let (task, options) = keyed(number);
        client.spawn_with(task, options)
    });
    let spawned = futures::future::join_all(spawns).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    for (handle, number) in spawned.into_iter().zip(0..) {
        assert_eq!(handle.unwrap().await.unwrap() / 3, number / 3);
    }
}

/// Otherwise, a spawn within the window would join a task whose output is lost.
async fn the_end_of_a_task_is_kept_for_its_window(store: TestStore) {
    let client = store.client().await;
    let throttled = |key: &str| {
        let key = Key::new(key).throttle(HOUR);
        with_key(key).retention(Duration::ZERO)
    };
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let first = spawn_as(&client, 1, throttled("key")).await;
    assert_eq!(first.await.unwrap(), 1);
    let second = spawn_as(&client, 2, throttled("key")).await;
    assert!(second.was_joined());
    assert_eq!(second.await.unwrap(), 1);
}

async fn a_debounced_task_is_delayed(store: TestStore) {
    let client = store.client().await;
    let debounced = |text: &str| with_key(Key::new(text).debounce(HOUR));
    let first = spawn_as(&client, 1, debounced("key")).await;
    assert_eq!(first.status().await.unwrap(), Status::Delayed);
    let second = spawn_as(&client, 2, debounced("key")).await;
    assert_eq!(conflict_of(&client, &second), REPLACED);
    assert_eq!(second.status().await.unwrap(), Status::Delayed);
    let at_once = Key::new("soon").debounce(HOUR).at_latest(Duration::ZERO);
    let soon = spawn_as(&client, 3, with_key(at_once)).await;
    assert_eq!(soon.status().await.unwrap(), Status::Waiting);
}

async fn options_that_exclude_a_key_are_refused(store: TestStore) {
    let client = store.client().await;
    let debounced = Key::new("key").debounce(HOUR);
    for options in [
        with_key(Key::new("key")).id(id(1)),
        with_key(debounced).delay(HOUR),
        with_key(Key::new("key").throttle(HOUR).replace()),
    ] {
        let refused = client.spawn_with(Number(1), options).await;
        let error = refused.expect_err("the options exclude each other");
        assert!(error.is_invalid(), "{error}");
    }
    assert_eq!(client.counts().await.unwrap().stored, 0);
}
