//! Requests that run while the transaction before theirs is committed, on the other connection of the store.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::join;
use tokio::time::{Instant, timeout};

use super::held_commits::*;
use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::TaskId;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, Claim, Enqueue, SessionId, Turn, Verdict, Verdicts};

#[tokio::test]
async fn requests_run_while_a_transaction_is_committed() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let other_session = new_session(&caller).await;
    open_second_connection(&caller).await;
    let program = hold_commits(&scene, MARKED);
    let held = caller.new_enqueue([marked(1)]);
    let held = caller.store.enqueue(held);
    let meanwhile = async {
        until_blocked(&scene, 1).await;
        let request = first_enqueue(other_session, task(2));
        let stored = caller.store.enqueue(request);
        // The server would end the wait of one COMMIT for the other after a third of the answer timeout.
        let stored = timeout(SOON, stored).await;
        program.ask("ROLLBACK");
        stored
    };
    let (held, stored) = join!(held, meanwhile);
    held.unwrap();
    stored.expect("it waits for the other COMMIT").unwrap();
    // The row of the first connection and that of the second one.
    assert_eq!(scene.number("SELECT count(*) FROM $S.total"), 2);
}

/// A process that is stopped in a transaction keeps the second connection from the store. Requests share it meanwhile.
#[tokio::test]
async fn a_second_connection_that_cannot_be_set_up_delays_nobody() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let mut builder = scene.builder();
    // The server limits other waits for a lock to a third of this.
    let store = builder.answer_timeout(Duration::from_secs(30)).open().await;
    let caller = Caller::of(store.unwrap()).await;
    let program = ServerConnection::to(Server::shared().url());
    let lock = caller.store.shared.store_lock;
    program.ask(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock_shared({lock})"
    ));
    let (mut number, mut longest) = (0, Duration::ZERO);
    let end = Instant::now() + 3 * SOON;
    while Instant::now() < end {
        let began = Instant::now();
        for stored in join_all((0..MANY).map(|nth| caller.store(number + nth))).await {
            stored.unwrap();
        }
        number += MANY;
        longest = longest.max(began.elapsed());
    }
    program.ask("ROLLBACK");
    assert!(
        longest < Duration::from_secs(8),
        "requests have waited for {longest:?}"
    );
}

/// The task seems to wait until the claim of it is committed.
#[tokio::test]
async fn a_turn_beside_a_claim_of_the_last_task_makes_a_pause() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let other_session = new_session(&caller).await;
    open_second_connection(&caller).await;
    caller.store(1).await.unwrap();
    let program = hold_commits(&scene, "claim");
    let first = caller.store.turn(caller.new_turn(Vec::new(), 1));
    let other = async {
        until_blocked(&scene, 1).await;
        let turn = Turn {
            session: other_session,
            number: 1,
            ..Turn::clone(&caller.new_turn(Vec::new(), 1))
        };
        let turned = caller.store.turn(Arc::new(turn)).await;
        program.ask("ROLLBACK");
        turned.unwrap()
    };
    let (first, other) = join!(first, other);
    assert_eq!(first.unwrap().claim.unwrap().tasks.len(), 1);
    assert!(other.claim.is_none() && !other.more);
    assert!(other.next.unwrap() <= SOON, "{:?}", other.next);
}

#[tokio::test]
async fn a_request_waits_while_another_one_of_its_process_has_the_store() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (caller, other_session) = open_patient(&scene).await;
    let program = hold_commits(&scene, "paused");
    let held = caller.store.set_paused("other".into(), true);
    let store = async {
        let request = first_enqueue(other_session, task(1));
        caller.store.enqueue(request).await
    };
    waits_for_commit(&scene, program, held, store).await;
}

#[tokio::test]
async fn a_request_that_needs_the_store_waits_for_another_one_of_its_process() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (caller, _) = open_patient(&scene).await;
    let program = hold_commits(&scene, MARKED);
    let held = caller.store.enqueue(caller.new_enqueue([marked(1)]));
    let pause = async { caller.store.set_paused("other".into(), true).await };
    waits_for_commit(&scene, program, held, pause).await;
}

/// The claim is renewed while the turn that ends it is committed.
#[tokio::test]
async fn a_request_waits_for_rows_that_another_one_of_its_process_has_locked() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (caller, _) = open_patient(&scene).await;
    caller.store(1).await.unwrap();
    caller.store(2).await.unwrap();
    let claim = caller.claim(1).await;
    let program = hold_commits(&scene, "claim");
    let held = caller.store.turn(caller.new_turn(done(&claim), 1));
    let renew = async { caller.store.renew(vec![claim.epoch]).await };
    waits_for_commit(&scene, program, held, renew).await;
}

/// The copy runs on the other connection while the first one is committed.
#[tokio::test]
async fn a_copy_of_a_request_that_is_being_committed_finds_its_claim() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    open_second_connection(&caller).await;
    caller.store(1).await.unwrap();
    caller.store(2).await.unwrap();
    let program = hold_commits(&scene, "claim");
    let request = caller.new_turn(Vec::new(), 1);
    let first = caller.store.turn(Arc::clone(&request));
    let copy = async {
        until_blocked(&scene, 1).await;
        caller.store.turn(Arc::clone(&request)).await
    };
    let unlock = async {
        until_blocked(&scene, 2).await;
        program.ask("ROLLBACK");
    };
    let (first, copy, ()) = join!(first, copy, unlock);
    let (first, copy) = (first.unwrap().claim.unwrap(), copy.unwrap().claim.unwrap());
    assert_eq!((first.epoch, first.tasks.len()), (copy.epoch, 1));
    assert_eq!(first.tasks[0].id, copy.tasks[0].id);
    assert_eq!(scene.number("SELECT count(*) FROM $S.claim"), 1);
}

/// The requests run again, those of the other connection meanwhile.
#[tokio::test]
async fn a_request_whose_commit_is_refused_runs_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    open_second_connection(&caller).await;
    scene.ask("CREATE SEQUENCE $S.commits");
    on_commit(
        &scene,
        MARKED,
        "IF nextval('$S.commits') < 3 THEN
             RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END IF",
    );
    let request = caller.new_enqueue([marked(1)]);
    caller.store.enqueue(request).await.unwrap();
    assert_eq!(scene.number("SELECT last_value FROM $S.commits"), 3);
    assert_eq!(
        scene.number("SELECT count(*) FROM $S.task WHERE name = 'marked'"),
        1
    );
}

/// The server answers a COMMIT as if it had succeeded although a statement before it has failed.
#[tokio::test]
async fn a_transaction_whose_last_statement_fails_is_not_acknowledged() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open_hurried().await;
    let program = scene.lock("total");
    let request = caller.new_enqueue([task(1)]);
    let failure = caller
        .store
        .enqueue(Arc::clone(&request))
        .await
        .unwrap_err();
    assert_eq!((failure.cause, failure.effect), (Cause::Busy, Effect::None));
    program.ask("ROLLBACK");
    assert_eq!(scene.number("SELECT count(*) FROM $S.task"), 0);
    caller.store.enqueue(request).await.unwrap();
    assert_eq!(caller.store.counts().await.unwrap().waiting, 1);
}

/// A turn of a session that has ended sends other statements before it is known that there is no such session. One of them fails later, and
/// then the server rolls everything back.
#[tokio::test]
async fn a_refused_turn_does_not_hide_that_its_transaction_has_failed() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (caller, other) = (scene.open_hurried().await, scene.open().await);
    for (caller, number) in [(&caller, 1), (&other, 2)] {
        caller.store(number).await.unwrap();
    }
    let (claim, locked) = (caller.claim(1).await, other.claim(1).await);
    scene.ask("UPDATE $S.claim SET until = until + 1000000");
    let program = ServerConnection::to(Server::shared().url());
    program.ask(&format!(
        "BEGIN; SELECT 1 FROM {0}.claim WHERE epoch = {1} FOR UPDATE;
         LOCK TABLE {0}.ready IN ACCESS EXCLUSIVE MODE",
        scene.schema, locked.epoch
    ));
    // The two requests are sent while another one waits, so they share a transaction.
    let busy = caller.store(3);
    let together = async {
        until_blocked(&scene, 1).await;
        let turn = Turn {
            session: 1 << 40,
            ..Turn::clone(&caller.new_turn(verdicts_on(&locked), 0))
        };
        let renewed = caller.store.renew(vec![claim.epoch]);
        join!(renewed, caller.store.turn(Arc::new(turn)))
    };
    let (_, (renewed, turned)) = join!(busy, together);
    program.ask("ROLLBACK");
    assert!(turned.is_err());
    renewed.unwrap();
    let until = format!("SELECT until FROM $S.claim WHERE epoch = {}", claim.epoch);
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let left = scene.number(&until) - scene.number(now);
    assert!(left < 100_000, "the renewal was rolled back: {left} ms");
}

fn verdicts_on(claim: &Claim) -> Vec<Verdicts> {
    let released = |id| (id, Verdict::Release);
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: claim.tasks.iter().map(|it| released(it.id)).collect(),
    }]
}

#[tokio::test]
async fn requests_do_not_fail_if_the_server_allows_no_more_connections() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("");
    // A writer, a listener and a reader.
    scene.ask(&format!(
        "ALTER ROLE {user} CONNECTION LIMIT 3; CREATE SCHEMA $S AUTHORIZATION {user}"
    ));
    let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
    caller.store.counts().await.unwrap();
    let mut number = 0;
    for _ in 0..5 {
        let stored = join_all((0..MANY).map(|nth| caller.store(number + nth))).await;
        number += MANY;
        for stored in stored {
            stored.unwrap();
        }
    }
    assert_eq!(caller.store.counts().await.unwrap().stored, number);
    assert_eq!(scene.backends().len(), 3);
    // Later, the store uses another one.
    scene.ask(&format!("ALTER ROLE {user} CONNECTION LIMIT 4"));
    open_second_connection(&caller).await;
}

/// Lets a session, whose last request has a number, store three tasks, and run up to four. Returns these.
async fn run_once(caller: &Caller, session: SessionId, number: u64, first: u64) -> Vec<TaskId> {
    let batch: Vec<_> = (first..first + 3).map(task).collect();
    let request = Enqueue {
        session,
        number: number + 1,
        batch: Arc::new(batch.into()),
    };
    caller.store.enqueue(Arc::new(request)).await.unwrap();
    let turn = |number, verdicts, want| {
        let turn = Turn::clone(&caller.new_turn(verdicts, want));
        let turn = Turn {
            session,
            number,
            ..turn
        };
        caller.store.turn(Arc::new(turn))
    };
    let claimed = turn(number + 2, Vec::new(), 4).await.unwrap().claim;
    let Some(claim) = claimed else {
        return Vec::new();
    };
    let renewed = caller.store.renew(vec![claim.epoch]).await.unwrap();
    assert!(renewed.lost.is_empty());
    let turned = turn(number + 3, done(&claim), 0).await.unwrap();
    assert_eq!(turned.refused, []);
    claim.tasks.iter().map(|it| it.id).collect()
}

/// Sessions of one store store, claim and end tasks at the same time, on both connections.
#[tokio::test]
async fn many_sessions_of_a_store_neither_lose_nor_repeat_tasks() {
    needs_postgres!();
    const ROUNDS: u64 = 15;
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    open_second_connection(&caller).await;
    let before = caller.store.counts().await.unwrap();
    let sessions = join_all((0..8).map(|_| new_session(&caller))).await;
    let run = sessions.iter().zip(0..).map(async |(&session, nth)| {
        let mut ran = Vec::new();
        for round in 0..ROUNDS {
            let first = 100 * nth + 3 * round;
            ran.extend(run_once(&caller, session, 3 * round, first).await);
        }
        ran
    });
    let mut ran = join_all(run).await.concat();
    let number = ran.len();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), number, "a task has run twice");
    let counts = caller.store.counts().await.unwrap();
    let stored = 8 * 3 * ROUNDS;
    assert_eq!(counts.stored - before.stored, stored);
    assert_eq!(counts.done - before.done, number as u64);
    assert_eq!(counts.waiting, stored - number as u64);
    assert_eq!((counts.running, counts.lost, counts.crashed), (0, 0, 0));
    assert!(ran.contains(&id(0)));
}
