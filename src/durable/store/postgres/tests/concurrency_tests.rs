//! Transactions of several processes at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::Key;
use crate::durable::store::suite::{id, task, with_key};
use crate::durable::store::{Backend, TaskState};

/// The number of processes.
const PROCESSES: usize = 4;

async fn open_all(scene: &PostgresScene) -> Vec<Caller> {
    let mut callers = Vec::new();
    for _ in 0..PROCESSES {
        callers.push(scene.open().await);
    }
    callers
}

/// Waits until this many connections of the store wait for locks.
async fn until_blocked(scene: &PostgresScene, connections: i64) {
    let end = Instant::now() + DEADLINE;
    let blocked = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = '$S' AND wait_event_type = 'Lock'";
    while scene.number(blocked) < connections {
        assert!(Instant::now() < end, "they do not wait");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Opens a transaction of another program that locks some rows.
fn lock_rows(scene: &PostgresScene, rows: &str) -> ServerConnection {
    let other = ServerConnection::to(Server::shared());
    other.ask("BEGIN");
    other.ask(&format!("SELECT 1 FROM {}.{rows} FOR UPDATE", scene.schema));
    other
}

#[tokio::test]
async fn workers_that_claim_at_the_same_time_share_no_task() {
    needs_postgres!();
    const TASKS: u64 = 400;
    let scene = PostgresScene::new();
    let workers = open_all(&scene).await;
    let request = workers[0].new_enqueue((0..TASKS).map(task));
    workers[0].store.enqueue(request).await.unwrap();
    let claims = join_all(workers.iter().map(async |worker| {
        let mut claimed = Vec::new();
        while let Some(claim) = worker.turn(Vec::new(), 3).await.claim {
            claimed.extend(claim.tasks.iter().map(|task| task.id));
        }
        claimed
    }));
    let claimed = claims.await.concat();
    assert_eq!(claimed.len() as u64, TASKS);
    assert_eq!(
        claimed.into_iter().collect::<BTreeSet<_>>().len() as u64,
        TASKS
    );
}

#[tokio::test]
async fn workers_that_take_claims_back_at_the_same_time_do_so_once() {
    needs_postgres!();
    const TASKS: u64 = 600;
    let scene = PostgresScene::new();
    let workers = open_all(&scene).await;
    let request = workers[0].new_enqueue((0..TASKS).map(task));
    workers[0].store.enqueue(request).await.unwrap();
    scene.ask(
        "WITH taken AS (DELETE FROM $S.ready RETURNING id)
         INSERT INTO $S.claim (epoch, session, until, lease, suspect, delivered, claimed_at, held)
         SELECT row_number() OVER (), -1, 0, 30000, 1, true, 1, ARRAY[id] FROM taken;
         INSERT INTO $S.session (id, endpoint, layout, process, types, opened, seen)
         SELECT -1, 1, layout, 1, '{7}', 0, 0 FROM $S.meta;
         UPDATE $S.total SET running = waiting, waiting = 0",
    );
    join_all(workers.iter().map(async |worker| {
        while scene.number("SELECT count(*) FROM $S.claim") > 0 {
            worker.turn(Vec::new(), 0).await;
        }
    }))
    .await;
    let counts = workers[0].store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.crashed), (TASKS, TASKS));
    assert_eq!(scene.number("SELECT count(*) FROM $S.ready") as u64, TASKS);
}

/// The verdict waits for the transaction that takes the claim back, and then finds that the claim is gone.
#[tokio::test]
async fn a_verdict_on_a_claim_that_is_being_taken_back_is_refused() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (worker, other) = (scene.open().await, scene.open().await);
    worker.store(1).await.unwrap();
    let claim = worker.claim(1).await;
    worker.turn(Vec::new(), 0).await;
    // A claim that is less suspect is changed by the turn before the verdict, and the turn waits there.
    scene.ask("UPDATE $S.claim SET until = 0, suspect = 2");
    let program = lock_rows(&scene, "task");
    let taken_back = other.turn(Vec::new(), 0);
    let verdict = async {
        until_blocked(&scene, 1).await;
        worker.turn(done(&claim), 0).await
    };
    let unlock = async {
        until_blocked(&scene, 2).await;
        program.ask("ROLLBACK");
    };
    let (_, turned, ()) = tokio::join!(taken_back, verdict, unlock);
    assert_eq!(turned.refused, [id(1)]);
    let status = other.store.status(vec![id(1)]).await.unwrap();
    assert_eq!(status, [TaskState::Waiting]);
    assert_eq!(worker.claim(2).await.tasks.len(), 1);
}

#[tokio::test]
async fn one_of_many_processes_gets_a_key() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let callers = open_all(&scene).await;
    for round in 0..25 {
        let conflicts = join_all(callers.iter().zip(0..).map(async |(caller, number)| {
            let key = Key::new(round.to_string());
            let task = task(round * 100 + number);
            let request = caller.new_enqueue([with_key(key, task)]);
            caller.store.enqueue(request).await.unwrap().conflicts.len()
        }));
        let conflicts = conflicts.await.into_iter().sum::<usize>();
        assert_eq!(conflicts, PROCESSES - 1, "round {round}");
    }
}

#[tokio::test]
async fn a_request_that_needs_the_store_waits_for_those_that_share_it() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (sharing, other) = (scene.open().await, scene.open().await);
    let row = format!("session WHERE id = {}", sharing.session);
    let program = lock_rows(&scene, &row);
    let stored = sharing.store(1);
    let paused = async {
        until_blocked(&scene, 1).await;
        other.store.set_paused("job".into(), true).await
    };
    let unlock = async {
        until_blocked(&scene, 2).await;
        program.ask("ROLLBACK");
    };
    let (stored, paused, ()) = tokio::join!(stored, paused, unlock);
    stored.unwrap();
    paused.unwrap();
}

/// A late copy of a request finds that the first one was answered.
#[tokio::test]
async fn a_copy_of_a_request_waits_for_the_first_one() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (worker, other) = (scene.open().await, scene.open().await);
    worker.store(1).await.unwrap();
    worker.store(2).await.unwrap();
    let request = worker.new_turn(Vec::new(), 1);
    // Both copies begin while the table of claims is locked.
    let program = ServerConnection::to(Server::shared());
    program.ask(&format!(
        "BEGIN; LOCK TABLE {}.claim IN ACCESS EXCLUSIVE MODE",
        scene.schema
    ));
    let first = worker.store.turn(request.clone());
    let second = async {
        until_blocked(&scene, 1).await;
        other.store.turn(request.clone()).await
    };
    let unlock = async {
        until_blocked(&scene, 2).await;
        program.ask("ROLLBACK");
    };
    let (first, second, ()) = tokio::join!(first, second, unlock);
    let (first, second) = (
        first.unwrap().claim.unwrap(),
        second.unwrap().claim.unwrap(),
    );
    assert_eq!((first.epoch, first.tasks.len()), (second.epoch, 1));
    assert_eq!(worker.store.counts().await.unwrap().running, 1);
}
