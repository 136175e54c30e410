//! Claims that begin behind the last task that the session has claimed.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::needs_postgres;
use super::scene::*;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::postgres::error::Fault;
use crate::durable::store::postgres::transaction::Transaction;
use crate::durable::store::postgres::turn;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, Claim, Turn, Verdict, Verdicts};

/// Stores tasks of which the last one then gets a place before all others, as if its transaction had been committed after the others.
async fn store_with_late(scene: &PostgresScene, caller: &Caller, tasks: u64) {
    let place = scene.number("SELECT nextval('$S.back')");
    let all = caller.new_enqueue((0..tasks).map(task));
    caller.store.enqueue(all).await.unwrap();
    scene.ask(&format!(
        "CREATE TABLE $S.late AS SELECT max(place) AS last, {place} AS place FROM $S.ready"
    ));
}

/// Has the transaction of the last task be committed.
fn commit_late(scene: &PostgresScene) {
    scene.ask(
        "UPDATE $S.task SET place = late.place FROM $S.late WHERE task.place = late.last;
         UPDATE $S.ready SET place = late.place FROM $S.late WHERE ready.place = late.last",
    );
}

#[tokio::test]
async fn a_task_before_the_mark_is_claimed_when_no_other_is_left() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    store_with_late(&scene, &caller, 3).await;
    assert_eq!(caller.claim(1).await.tasks[0].id, id(0));
    commit_late(&scene);
    let turned = caller.turn(Vec::new(), 1).await;
    // Nothing is left behind the mark.
    assert!(turned.more);
    let mut both = turned.claim.unwrap().tasks;
    both.extend(caller.claim(2).await.tasks);
    let both: BTreeSet<_> = both.iter().map(|it| it.id).collect();
    assert_eq!(both, BTreeSet::from([id(1), id(2)]));
}

#[tokio::test]
async fn a_claim_that_gets_too_few_tasks_behind_the_mark_begins_anew() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    store_with_late(&scene, &caller, 4).await;
    caller.claim(1).await;
    commit_late(&scene);
    let tasks = caller.claim(3).await.tasks;
    let ids: Vec<_> = tasks.iter().map(|it| it.id).collect();
    assert_eq!(ids, [id(3), id(1), id(2)]);
}

/// Returns the verdicts that the tasks of a claim are given back.
fn released(claim: &Claim) -> Vec<Verdicts> {
    let tasks = claim.tasks.iter();
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.map(|task| (task.id, Verdict::Release)).collect(),
    }]
}

#[tokio::test]
async fn tasks_that_were_given_back_come_first_in_spite_of_the_mark() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let callers = [scene.open().await, scene.open().await];
    for number in 0..4 {
        callers[0].store(number).await.unwrap();
    }
    let given = callers[1].claim(1).await;
    assert_eq!(callers[0].claim(1).await.tasks[0].id, id(1));
    callers[1].turn(released(&given), 0).await;
    assert_eq!(callers[0].claim(1).await.tasks[0].id, id(0));
}

#[tokio::test]
async fn tasks_of_a_claim_that_was_rolled_back_are_claimed_next() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let all = caller.new_enqueue((0..6).map(task));
    caller.store.enqueue(all).await.unwrap();
    let program = scene.lock("total");
    let request = caller.new_turn(Vec::new(), 1);
    let failure = caller.store.turn(request).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Busy);
    program.ask("ROLLBACK");
    assert_eq!(caller.claim(1).await.tasks[0].id, id(0));
}

/// A turn looks for its tasks before it is known that it is refused.
#[tokio::test]
async fn tasks_that_a_refused_turn_has_found_are_claimed_next() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let all = caller.new_enqueue((0..3).map(task));
    caller.store.enqueue(all).await.unwrap();
    let late = caller.new_turn(Vec::new(), 1);
    assert_eq!(caller.claim(1).await.tasks[0].id, id(0));
    let failure = caller.store.turn(late).await.unwrap_err();
    assert_eq!(failure.cause, Cause::NoSession);
    assert_eq!(caller.claim(1).await.tasks[0].id, id(1));
}

/// There are always enough tasks behind the mark, so a lack of tasks never makes the session look before the mark.
#[tokio::test]
async fn a_task_before_the_mark_is_claimed_although_others_keep_coming() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    store_with_late(&scene, &caller, 3).await;
    assert_eq!(caller.claim(1).await.tasks[0].id, id(0));
    commit_late(&scene);
    let end = Instant::now() + DEADLINE;
    for number in 3.. {
        caller.store(number).await.unwrap();
        let claim = caller.claim(1).await;
        if claim.tasks[0].id == id(2) {
            return;
        }
        assert!(Instant::now() < end, "it is passed over for ever");
        caller.turn(done(&claim), 0).await;
    }
}

async fn turn_and_panic(tx: &mut Transaction, request: &Turn) -> Result<(), Fault> {
    turn::turn(tx, request).await?;
    panic!("provoked by the test")
}

#[tokio::test]
async fn tasks_of_a_claim_that_was_undone_by_a_panic_are_claimed_next() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let all = caller.new_enqueue((0..4).map(task));
    caller.store.enqueue(all).await.unwrap();
    let request = caller.new_turn(Vec::new(), 2);
    let claim = caller.store.write(request, |tx, it: &Arc<Turn>| {
        Box::pin(turn_and_panic(tx, it))
    });
    assert_eq!(claim.await.unwrap_err().effect, Effect::Unknown);
    for number in 0..4 {
        assert_eq!(caller.claim(1).await.tasks[0].id, id(number));
    }
    assert!(!caller.turn(Vec::new(), 1).await.more);
}
