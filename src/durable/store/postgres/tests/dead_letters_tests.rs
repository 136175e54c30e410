//! Requests for many dead letters.

use super::needs_postgres;
use super::scene::*;
use crate::durable::store::suite::{task, with_key};
use crate::durable::store::{Backend, DeadReason, Verdict, Verdicts};
use crate::durable::{DeadFilter, Key};

/// The number of dead letters.
const LETTERS: u64 = 200;

/// Stores dead letters with keys. The last two have the same key.
async fn store_dead_letters(caller: &Caller) {
    let key = |number: u64| Key::new(number.min(LETTERS - 2).to_string());
    for number in 0..LETTERS {
        let request = caller.new_enqueue([with_key(key(number), task(number))]);
        caller.store.enqueue(request).await.unwrap();
        let claim = caller.claim(1).await;
        let dead = Verdict::Dead {
            reason: DeadReason::Fatal,
            error: String::from("no"),
            took: None,
        };
        let verdicts = vec![Verdicts {
            epoch: claim.epoch,
            tasks: vec![(claim.tasks[0].id, dead)],
        }];
        caller.turn(verdicts, 0).await;
    }
}

#[tokio::test]
async fn many_dead_letters_are_replayed_and_deleted_in_parts() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    store_dead_letters(&caller).await;
    let replayed = caller.store.replay_dead_letters(DeadFilter::name("job"));
    assert_eq!(replayed.await.unwrap(), LETTERS - 1);
    let largest =
        "SELECT max(count) FROM (SELECT count(*) FROM $S.ready GROUP BY xmin::text) AS it";
    assert!(
        scene.number(largest) <= 64,
        "a transaction replays too many"
    );
    let counts = caller.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.dead), (LETTERS - 1, 1));
    // They wait in the order of their ids.
    let claim = caller.claim(LETTERS as usize).await;
    let ids: Vec<_> = claim.tasks.iter().map(|it| it.id).collect();
    assert!(ids.is_sorted());
    let other = caller.store.delete_dead_letters(DeadFilter::name("other"));
    assert_eq!(other.await.unwrap(), 0);
    let deleted = caller.store.delete_dead_letters(DeadFilter::all());
    assert_eq!(deleted.await.unwrap(), 1);
    assert_eq!(caller.store.counts().await.unwrap().dead, 0);
}
