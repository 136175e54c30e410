//! Tasks that panic, and stores that are dropped, after a COMMIT was sent: each request takes effect once.

use std::sync::Arc;
use std::time::Duration;

use super::held_commits::*;
use super::needs_postgres;
use super::scene::*;
use crate::durable::failpoint::panic_at;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::postgres::enqueue;
use crate::durable::store::postgres::error::Fault;
use crate::durable::store::postgres::transaction::Transaction;
use crate::durable::store::suite::task;
use crate::durable::store::{Backend, Enqueue, Enqueued};

/// Stores tasks, and makes the writer panic once it has sent the COMMIT.
async fn store_and_panic(tx: &mut Transaction, request: &Enqueue) -> Result<Enqueued, Fault> {
    panic_at("postgres.commit-sent");
    enqueue::enqueue(tx, request).await
}

/// Makes the writer panic just before it answers this request and the others of its transaction.
async fn panic_before_the_answer(_: &mut Transaction) -> Result<(), Fault> {
    panic_at("postgres.after-commit");
    Ok(())
}

/// Opens a store in which a wait for a lock takes long before it fails.
async fn open_patiently(scene: &PostgresScene) -> Caller {
    let mut builder = scene.builder();
    builder.answer_timeout(Duration::from_secs(30));
    Caller::of(builder.open().await.unwrap()).await
}

fn assert_unknown(answer: Result<impl Sized, Failure>) {
    let failure = answer.err().expect("nobody knows what has become of it");
    let ends = (Cause::Unavailable, Effect::Unknown);
    assert_eq!((failure.cause, failure.effect), ends);
}

/// The copy of the request is sent while the COMMIT is not answered.
#[tokio::test]
async fn a_request_whose_writer_panics_during_its_commit_takes_effect_once() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = open_patiently(&scene).await;
    let program = hold_commits(&scene, MARKED);
    let request = caller.new_enqueue([marked(1)]);
    let lost = caller
        .store
        .write(Arc::clone(&request), |tx, it: &Arc<Enqueue>| {
            Box::pin(store_and_panic(tx, it))
        });
    assert_unknown(lost.await);
    let copy = caller.store.enqueue(request);
    until_blocked(&scene, 2).await;
    program.ask("ROLLBACK");
    copy.await.unwrap();
    caller.store(2).await.unwrap();
    let counts = caller.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (2, 2));
}

#[tokio::test]
async fn requests_whose_writer_panics_after_their_commit_take_effect_once() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = open_patiently(&scene).await;
    let store = &caller.store;
    let mut requests = Vec::new();
    for number in 0..3 {
        requests.push(first_enqueue(new_session(&caller).await, task(number)));
    }
    // The requests are sent while another one waits, so they share a transaction.
    let lock = scene.lock("task");
    let busy = store.enqueue(caller.new_enqueue([task(3)]));
    scene.blocked().await;
    let lost: Vec<_> = requests
        .iter()
        .map(|request| store.enqueue(Arc::clone(request)))
        .collect();
    let last = store.write((), |tx, ()| Box::pin(panic_before_the_answer(tx)));
    lock.ask("ROLLBACK");
    busy.await.unwrap();
    for lost in lost {
        assert_unknown(lost.await);
    }
    assert_unknown(last.await);
    assert_eq!(scene.number("SELECT count(*) FROM $S.task"), 4);
    for request in requests {
        store.enqueue(request).await.unwrap();
    }
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (4, 4));
    assert_eq!(scene.number("SELECT count(*) FROM $S.task"), 4);
}

/// Another process sends the request again, as the same one does if it opens the store anew.
#[tokio::test]
async fn a_request_whose_store_is_dropped_during_its_commit_takes_effect_once() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = open_patiently(&scene).await;
    let program = hold_commits(&scene, MARKED);
    let request = caller.new_enqueue([marked(1)]);
    let lost = caller
        .store
        .write(Arc::clone(&request), |tx, it: &Arc<Enqueue>| {
            Box::pin(enqueue::enqueue(tx, it))
        });
    until_blocked(&scene, 1).await;
    drop(caller);
    assert_unknown(lost.await);
    program.ask("ROLLBACK");
    let other = open_patiently(&scene).await;
    other.store.enqueue(request).await.unwrap();
    let counts = other.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (1, 1));
}
