//! Stores after many workers have crashed, a clock was set back, or a database was restored.

use std::time::Duration;

use super::needs_postgres;
use super::scene::*;
use crate::durable::store::suite::task;
use crate::durable::store::{Backend, Event, RenewAnswer};

/// The number of claims of dead workers, each of one task.
const CLAIMS: i64 = 2000;

/// Has the server count the statements that change a table. See [`statements`].
fn count_statements(scene: &PostgresScene, change: &str) {
    scene.ask(&format!(
        "CREATE SEQUENCE IF NOT EXISTS $S.statements START 1;
         CREATE OR REPLACE FUNCTION $S.count() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM nextval('$S.statements'); RETURN NULL; END $$;
         CREATE TRIGGER count AFTER {change} FOR STATEMENT EXECUTE FUNCTION $S.count()"
    ));
}

/// Returns the number of statements that were counted.
fn statements(scene: &PostgresScene) -> i64 {
    scene.number("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM $S.statements")
}

/// Lets a session, which need not exist, claim all waiting tasks, with a claim for each.
fn claim_each(scene: &PostgresScene, session: &str, until: i64, suspect: u8) {
    scene.ask(&format!(
        "WITH taken AS (DELETE FROM $S.ready RETURNING id)
         INSERT INTO $S.claim (epoch, session, until, lease, suspect, delivered, claimed_at, held)
         SELECT row_number() OVER (ORDER BY id), {session}, {until}, 30000, {suspect}, true, 1, ARRAY[id]
         FROM taken;
         UPDATE $S.total SET running = waiting, waiting = 0"
    ));
}

/// Lets a worker make turns until nothing is left to take back. Each turn takes back a part.
async fn take_back_all(scene: &PostgresScene, worker: &Caller) {
    count_statements(scene, "UPDATE ON $S.task");
    count_statements(scene, "DELETE ON $S.claim");
    let (mut left, mut turns) = (CLAIMS, 0);
    while left > 0 {
        let turned = worker.turn(Vec::new(), 0).await;
        turns += 1;
        let now_left = scene.number("SELECT count(*) FROM $S.claim");
        assert!(left - now_left <= 64, "{} at once", left - now_left);
        assert!(now_left < left, "a turn takes nothing back");
        left = now_left;
        if left > 0 {
            assert_eq!(turned.next, Some(Duration::ZERO), "{left} are left");
        }
    }
    assert!(
        statements(scene) <= 2 * turns,
        "{} statements",
        statements(scene)
    );
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (CLAIMS as u64, 0));
    assert_eq!(counts.crashed, CLAIMS as u64);
}

async fn scene_of_tasks() -> (PostgresScene, Caller) {
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    let request = worker.new_enqueue((0..CLAIMS as u64).map(task));
    worker.store.enqueue(request).await.unwrap();
    (scene, worker)
}

#[tokio::test]
async fn thousands_of_claims_of_closed_sessions_are_taken_back_in_parts() {
    needs_postgres!();
    let (scene, worker) = scene_of_tasks().await;
    // Their leases are not over.
    claim_each(&scene, "-1", i64::MAX / 2, 0);
    take_back_all(&scene, &worker).await;
    // The last claim was taken back last, so its task comes first.
    let claim = worker.claim(3).await;
    assert_eq!(claim.tasks[0].id, task(CLAIMS as u64 - 1).id);
}

#[tokio::test]
async fn thousands_of_late_claims_are_taken_back_in_parts() {
    needs_postgres!();
    let (scene, worker) = scene_of_tasks().await;
    scene.ask(
        "INSERT INTO $S.session (id, endpoint, layout, process, types, opened, seen)
         SELECT -1, 1, layout, 1, '{7}', 0, 0 FROM $S.meta",
    );
    claim_each(&scene, "-1", 0, 1);
    take_back_all(&scene, &worker).await;
}

#[tokio::test]
async fn a_turn_with_verdicts_takes_late_claims_back() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (worker, other) = (scene.open().await, scene.open().await);
    worker.store(1).await.unwrap();
    worker.store(2).await.unwrap();
    let late = other.claim(1).await;
    let claim = worker.claim(1).await;
    scene.ask(&format!(
        "UPDATE $S.claim SET until = 0, suspect = 1 WHERE epoch = {}",
        late.epoch
    ));
    let turned = worker.turn(done(&claim), 1).await;
    let again = turned.claim.expect("the task was given back");
    assert_eq!(again.tasks[0].id, late.tasks[0].id);
}

#[tokio::test]
async fn a_turn_that_leaves_claims_of_dead_workers_wakes_another_session() {
    needs_postgres!();
    let (scene, worker) = scene_of_tasks().await;
    claim_each(&scene, "-1", i64::MAX / 2, 0);
    let idle = scene.open().await;
    // Opening the session has taken some back, so there are tasks to claim.
    idle.claim(CLAIMS as usize).await;
    let mut events = idle.store.events();
    let parked = scene.number(&format!(
        "WITH parked AS (
             INSERT INTO $S.park (session, endpoint, kinds) VALUES ({}, {}, '{{}}') RETURNING 1
         ) SELECT count(*) FROM parked",
        idle.session,
        idle.store.endpoint()
    ));
    assert_eq!(parked, 1);
    worker.turn(Vec::new(), 0).await;
    until(&mut events, &Event::Wake(None)).await;
}

#[tokio::test]
async fn many_claims_are_renewed_by_few_statements() {
    needs_postgres!();
    let (scene, worker) = scene_of_tasks().await;
    claim_each(&scene, &worker.session.to_string(), 0, 0);
    // Another claim of the session was not received.
    scene.ask("UPDATE $S.claim SET suspect = 1 WHERE epoch = 1");
    count_statements(&scene, "UPDATE ON $S.claim");
    let mut claims: Vec<_> = (2..=CLAIMS as u64).collect();
    assert_eq!(
        worker.store.renew(claims.clone()).await.unwrap(),
        RenewAnswer::default()
    );
    assert_eq!(statements(&scene), 2);
    let suspects = scene.ask("SELECT epoch, suspect FROM $S.claim WHERE until = 0");
    assert_eq!(suspects, [["1", "2"]]);
    // Two claims are gone, and two tasks are to be cancelled.
    scene.ask(
        "DELETE FROM $S.claim WHERE epoch IN (9, 5);
         UPDATE $S.claim SET cancels = true WHERE epoch IN (7, 3);
         UPDATE $S.task SET cancel = true
         WHERE id IN (SELECT held[1] FROM $S.claim WHERE cancels)",
    );
    claims.reverse();
    let renewed = worker.store.renew(claims).await.unwrap();
    assert_eq!(renewed.lost, [9, 5]);
    assert_eq!(renewed.cancelled, [task(6).id, task(2).id]);
}

/// Claims that are taken back together are given back as if each were taken back alone.
#[tokio::test]
async fn the_last_of_several_claims_comes_first() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    let request = worker.new_enqueue((0..6).map(task));
    worker.store.enqueue(request).await.unwrap();
    for _ in 0..2 {
        worker.claim(3).await;
    }
    scene.ask("UPDATE $S.claim SET session = -1");
    let claim = worker.claim(6).await;
    let ids: Vec<_> = claim.tasks.iter().map(|it| it.id).collect();
    assert_eq!(ids, [3, 4, 5, 0, 1, 2].map(|number| task(number).id));
}

#[tokio::test]
async fn leases_from_before_the_clock_was_set_back_are_shortened() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    worker.store(1).await.unwrap();
    worker.claim(1).await;
    let left =
        "SELECT until - (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM $S.claim";
    scene.ask("UPDATE $S.claim SET until = until + 3600000");
    worker.store.maintain(9).await.unwrap();
    let left = scene.number(left);
    assert!((20_000..=30_000).contains(&left), "{left} ms");
}

#[tokio::test]
async fn a_session_that_was_seen_in_the_future_is_seen_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    worker.store(1).await.unwrap();
    let claim = worker.claim(1).await;
    let ahead = "SELECT seen - opened FROM $S.session";
    for renews in [false, true] {
        scene.ask("UPDATE $S.session SET seen = opened + 3600000");
        match renews {
            true => drop(worker.renew(&claim).await),
            false => worker.store(2).await.unwrap(),
        }
        let ahead = scene.number(ahead);
        assert!(ahead < 3_000_000, "{renews}: {ahead} ms");
    }
}

/// The clock is behind, as after a restore on another machine.
#[tokio::test]
async fn an_epoch_is_above_all_that_are_stored() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    let request = worker.new_enqueue((0..3).map(task));
    worker.store.enqueue(request).await.unwrap();
    let (claimed, reported) = (9_000_000_000_000_000_u64, 9_100_000_000_000_000_u64);
    worker.claim(1).await;
    scene.ask(&format!("UPDATE $S.claim SET epoch = {claimed}"));
    let worker = scene.open().await;
    assert!(worker.claim(1).await.epoch > claimed);
    scene.ask(&format!(
        "INSERT INTO $S.progress (id, epoch, number, bytes)
         SELECT id, {reported}, 1, '' FROM $S.task LIMIT 1;
         SELECT setval('$S.epoch', 1)"
    ));
    let worker = scene.open().await;
    assert!(worker.claim(1).await.epoch > reported);
}
