//! Dead letters: listed, replayed, deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use throng::durable::{
    DeadFilter, DeadReason, DurableClient, DurableExecutor, DurableTask, Run, Status, TaskContext,
    TaskError,
};

use crate::harness::{
    App, Number, TestStore, pass_a_millisecond, reaches, spawn, spawn_as, start, timed,
};
use crate::support::within;

on_all_stores! {
    the_newest_dead_letters_are_listed_first,
    dead_letters_are_found_by_name_and_by_id,
    a_replayed_task_runs_again_as_if_it_never_had,
    a_deleted_dead_letter_is_gone,
    a_dead_letter_keeps_its_id,
    a_dead_letter_cannot_be_cancelled,
    a_dead_letter_has_its_payload_until_it_is_replayed,
    a_large_payload_of_a_dead_letter_is_read,
    a_task_that_no_run_can_decode_still_has_its_payload,
    a_dead_letter_of_another_type_is_not_decoded,
}

/// An executor whose tasks die, until it is told that they should not.
async fn mortal(client: &DurableClient) -> (DurableExecutor, Arc<AtomicBool>) {
    let healed = Arc::new(AtomicBool::new(false));
    let heals = Arc::clone(&healed);
    let executor = start(client, move |_, cx| {
        let healed = heals.load(Ordering::SeqCst);
        async move {
            match healed {
                true => Ok(cx.attempt().into()),
                false => Err(TaskError::fatal("not healed")),
            }
        }
    });
    (executor.await, healed)
}

async fn the_newest_dead_letters_are_listed_first(store: TestStore) {
    let client = store.client().await;
    let _executor = mortal(&client).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let handle = spawn(&client, number).await;
        ids.push(handle.id());
        within(handle).await.unwrap_err();
        // The order is that of the milliseconds of death.
        pass_a_millisecond(&client).await;
    }
    ids.reverse();
    for limit in [0, 1, 3, 5, 100] {
        let dead_letters = client.dead_letters().list(DeadFilter::all(), limit).await;
        let listed: Vec<_> = dead_letters
            .unwrap()
            .iter()
            .map(|dead_letter| dead_letter.id)
            .collect();
        assert_eq!(listed, ids[..limit.min(5)]);
    }
}

async fn dead_letters_are_found_by_name_and_by_id(store: TestStore) {
    let client = store.client().await;
    let _executor = mortal(&client).await;
    let (first, second) = (spawn(&client, 1).await, spawn(&client, 2).await);
    let (one, two) = (first.id(), second.id());
    within(first).await.unwrap_err();
    within(second).await.unwrap_err();
    let unknown = crate::harness::id(9);
    for (filter, found) in [
        (DeadFilter::all(), 2),
        (DeadFilter::name("number"), 2),
        (DeadFilter::name("numbe"), 0),
        (DeadFilter::name("%"), 0),
        (DeadFilter::ids([]), 0),
        (DeadFilter::ids([one]), 1),
        (DeadFilter::ids([one, unknown]), 1),
        (DeadFilter::ids([one, two, one]), 2),
    ] {
        let dead_letters = client.dead_letters().list(filter.clone(), 9).await.unwrap();
        assert_eq!(dead_letters.len(), found, "{filter:?}");
    }
    let dead = client.dead_letters();
    assert_eq!(dead.delete(DeadFilter::ids([])).await.unwrap(), 0);
    assert_eq!(dead.replay(DeadFilter::name("other")).await.unwrap(), 0);
    assert_eq!(
        dead.delete(DeadFilter::ids([two, unknown])).await.unwrap(),
        1
    );
    assert_eq!(client.counts().await.unwrap().dead, 1);
}

async fn a_replayed_task_runs_again_as_if_it_never_had(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let (_executor, healed) = mortal(&client).await;
    let mut handle = spawn(&client, 1).await;
    assert!(within(&mut handle).await.unwrap_err().is_dead());
    healed.store(true, Ordering::SeqCst);
    let replayed = other.dead_letters().replay(DeadFilter::all()).await;
    assert_eq!(replayed.unwrap(), 1);
    assert_eq!(within(&mut handle).await.unwrap(), 1);
    assert_eq!(within(handle).await.unwrap(), 1);
    let again = other.dead_letters().replay(DeadFilter::all()).await;
    assert_eq!(again.unwrap(), 0);
}

async fn a_deleted_dead_letter_is_gone(store: TestStore) {
    let client = store.client().await;
    let _executor = mortal(&client).await;
    let mut handle = spawn(&client, 1).await;
    within(&mut handle).await.unwrap_err();
    let deleted = client.dead_letters().delete(DeadFilter::all()).await;
    assert_eq!(deleted.unwrap(), 1);
    assert_eq!(handle.status().await.unwrap(), Status::Absent);
    assert!(within(handle).await.unwrap_err().is_expired());
}

async fn a_dead_letter_keeps_its_id(store: TestStore) {
    let client = store.client().await;
    let (_executor, healed) = mortal(&client).await;
    let options = throng::durable::SpawnOptions::new().id(crate::harness::id(1));
    let handle = spawn_as(&client, 1, options.clone()).await;
    reaches(&handle, Status::Dead).await;
    healed.store(true, Ordering::SeqCst);
    let same = spawn_as(&client, 1, options.clone()).await;
    assert!(within(same).await.unwrap_err().is_dead());
    client
        .dead_letters()
        .delete(DeadFilter::all())
        .await
        .unwrap();
    let new = spawn_as(&client, 1, options).await;
    assert_eq!(within(new).await.unwrap(), 1);
}

async fn a_dead_letter_cannot_be_cancelled(store: TestStore) {
    let client = store.client().await;
    let _executor = mortal(&client).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Dead).await;
    assert!(!handle.cancel().await.unwrap());
    assert!(within(handle).await.unwrap_err().is_dead());
}

async fn a_dead_letter_has_its_payload_until_it_is_replayed(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let (_executor, healed) = mortal(&client).await;
    let handle = spawn(&client, 7).await;
    let id = handle.id();
    reaches(&handle, Status::Dead).await;
    let dead = other.dead_letters();
    assert_eq!(dead.payload(id).await.unwrap(), Some(b"7".to_vec()));
    let task = dead.task::<Number>(id).await.unwrap();
    assert_eq!(task.map(|task| task.0), Some(7));
    let unknown = crate::harness::id(9);
    assert_eq!(dead.payload(unknown).await.unwrap(), None);
    assert!(dead.task::<Number>(unknown).await.unwrap().is_none());
    healed.store(true, Ordering::SeqCst);
    assert_eq!(dead.replay(DeadFilter::ids([id])).await.unwrap(), 1);
    assert_eq!(within(handle).await.unwrap(), 1);
    assert_eq!(dead.payload(id).await.unwrap(), None);
}

/// A task that always fails.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Text(String);

impl DurableTask for Text {
    const NAME: &'static str = "text";
    type Output = u64;
}

impl Run<App> for Text {
    async fn run(self, _cx: TaskContext<App>) -> Result<u64, TaskError> {
        Err(TaskError::fatal("no text is ever right"))
    }
}

async fn start_texts(client: &DurableClient) -> DurableExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Text>();
    crate::harness::start_as(builder, async |_, _| Ok(0)).await
}

async fn a_large_payload_of_a_dead_letter_is_read(store: TestStore) {
    let client = store.client().await;
    let _executor = start_texts(&client).await;
    let dead = client.dead_letters();
    // With the quotes and the envelope, the last payload has the largest size that a store accepts.
    for len in [600, 60_000, (1 << 20) - 3] {
        let text = "x".repeat(len);
        let handle = client.spawn(Text(text.clone())).await.unwrap();
        reaches(&handle, Status::Dead).await;
        let payload = dead.payload(handle.id()).await.unwrap();
        assert!(payload == Some(format!("\"{text}\"").into_bytes()), "{len}");
        let task = dead.task::<Text>(handle.id()).await.unwrap();
        assert!(task == Some(Text(text)), "{len}");
    }
}

/// Stores something other than a [`Text`] under its name.
#[derive(Debug, Serialize, Deserialize)]
struct NoText(Vec<u64>);

impl DurableTask for NoText {
    const NAME: &'static str = "text";
    type Output = u64;
}

async fn a_task_that_no_run_can_decode_still_has_its_payload(store: TestStore) {
    let client = store.client().await;
    let _executor = start_texts(&client).await;
    let handle = client.spawn(NoText(vec![1, 2])).await.unwrap();
    let id = handle.id();
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
    let dead = client.dead_letters();
    assert_eq!(dead.payload(id).await.unwrap(), Some(b"[1,2]".to_vec()));
    let error = dead.task::<Text>(id).await.unwrap_err();
    assert!(error.is_decode() && !error.is_damaged(), "{error}");
    assert_eq!(error.task_id(), Some(id));
    let task = dead.task::<NoText>(id).await.unwrap();
    assert!(task.is_some_and(|task| task.0 == [1, 2]));
}

/// Its payload could also be decoded as a [`Number`].
#[derive(Debug, Serialize, Deserialize)]
struct OtherNumber(u64);

impl DurableTask for OtherNumber {
    const NAME: &'static str = "other";
    type Output = u64;
}

async fn a_dead_letter_of_another_type_is_not_decoded(store: TestStore) {
    let client = store.client().await;
    let _executor = mortal(&client).await;
    let handle = spawn(&client, 7).await;
    reaches(&handle, Status::Dead).await;
    let dead = client.dead_letters();
    let error = dead.task::<OtherNumber>(handle.id()).await.unwrap_err();
    assert!(error.is_decode(), "{error}");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let expected = "its name is \"number\", not \"other\"";
    assert_eq!(source.as_deref(), Some(expected));
}

/// Asserts that the payload of a dead letter is damaged, and that it is listed nevertheless.
#[cfg(any(feature = "redis", feature = "sqlite"))]
async fn assert_damaged(client: &DurableClient, id: throng::durable::TaskId) {
    let dead = client.dead_letters();
    let error = dead.payload(id).await.unwrap_err();
    assert!(error.is_damaged() && !error.is_corrupt(), "{error}");
    assert!(error.to_string().contains("is damaged: its "), "{error}");
    assert!(dead.task::<Text>(id).await.unwrap_err().is_damaged());
    let dead_letters = dead.list(DeadFilter::all(), 9).await.unwrap();
    assert_eq!(dead_letters.len(), 1);
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn a_lost_payload_is_reported_by_sqlite() {
    let store = TestStore::file();
    let client = store.client().await;
    let _executor = start_texts(&client).await;
    let handle = client.spawn(Text("x".repeat(2000))).await.unwrap();
    reaches(&handle, Status::Dead).await;
    let TestStore::File(folder) = &store else {
        unreachable!("it is in a file")
    };
    let database = rusqlite::Connection::open(folder.path().join("tasks.db")).unwrap();
    assert_eq!(database.execute("DELETE FROM throng_payload", []), Ok(1));
    assert_damaged(&client, handle.id()).await;
}

#[tokio::test]
#[cfg(feature = "redis")]
async fn a_lost_payload_is_reported_by_redis() {
    needs_redis!();
    let store = TestStore::server();
    let client = store.client().await;
    let _executor = start_texts(&client).await;
    let handle = client.spawn(Text("x".repeat(2000))).await.unwrap();
    reaches(&handle, Status::Dead).await;
    let TestStore::Server(server, namespace, _) = &store else {
        unreachable!("it is on a server")
    };
    server.ask(&["DEL", &format!("throng:{{{namespace}:0}}:payloads")]);
    assert_damaged(&client, handle.id()).await;
}

#[tokio::test]
async fn dead_letters_are_replayed_without_the_clock() {
    let (_clock, client) = timed();
    let (_executor, healed) = mortal(&client).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Dead).await;
    healed.store(true, Ordering::SeqCst);
    client
        .dead_letters()
        .replay(DeadFilter::all())
        .await
        .unwrap();
    assert_eq!(within(handle).await.unwrap(), 1);
}
