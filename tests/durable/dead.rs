//! Dead letters: listed, replayed, deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throng::durable::{DeadFilter, DurableClient, DurableExecutor, Status, TaskError};

use crate::places::{TestStore, reaches, spawn, spawn_as, start, timed};
use crate::support::within;

on_all_stores! {
    the_newest_dead_letters_are_listed_first,
    dead_letters_are_found_by_name_and_by_id,
    a_replayed_task_runs_again_as_if_it_never_had,
    what_is_buried_is_gone,
    a_dead_letter_keeps_its_id,
    a_dead_letter_cannot_be_cancelled,
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

async fn the_newest_dead_letters_are_listed_first(place: TestStore) {
    let client = place.client().await;
    let _executor = mortal(&client).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let handle = spawn(&client, number).await;
        ids.push(handle.id());
        within(handle).await.unwrap_err();
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    ids.reverse();
    for limit in [0, 1, 3, 5, 100] {
        let letters = client.dead_letters().list(DeadFilter::all(), limit).await;
        let listed: Vec<_> = letters.unwrap().iter().map(|letter| letter.id).collect();
        assert_eq!(listed, ids[..limit.min(5)]);
    }
}

async fn dead_letters_are_found_by_name_and_by_id(place: TestStore) {
    let client = place.client().await;
    let _executor = mortal(&client).await;
    let (first, second) = (spawn(&client, 1).await, spawn(&client, 2).await);
    let (one, two) = (first.id(), second.id());
    within(first).await.unwrap_err();
    within(second).await.unwrap_err();
    let unknown = crate::places::id(9);
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
        let letters = client.dead_letters().list(filter.clone(), 9).await.unwrap();
        assert_eq!(letters.len(), found, "{filter:?}");
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

async fn a_replayed_task_runs_again_as_if_it_never_had(place: TestStore) {
    let (client, other) = (place.client().await, place.client().await);
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

async fn what_is_buried_is_gone(place: TestStore) {
    let client = place.client().await;
    let _executor = mortal(&client).await;
    let mut handle = spawn(&client, 1).await;
    within(&mut handle).await.unwrap_err();
    let deleted = client.dead_letters().delete(DeadFilter::all()).await;
    assert_eq!(deleted.unwrap(), 1);
    assert_eq!(handle.status().await.unwrap(), Status::Absent);
    assert!(within(handle).await.unwrap_err().is_expired());
}

async fn a_dead_letter_keeps_its_id(place: TestStore) {
    let client = place.client().await;
    let (_executor, healed) = mortal(&client).await;
    let options = throng::durable::SpawnOptions::new().id(crate::places::id(1));
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

async fn a_dead_letter_cannot_be_cancelled(place: TestStore) {
    let client = place.client().await;
    let _executor = mortal(&client).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Dead).await;
    assert!(!handle.cancel().await.unwrap());
    assert!(within(handle).await.unwrap_err().is_dead());
}

#[tokio::test]
async fn letters_are_replayed_without_the_clock() {
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
