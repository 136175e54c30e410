//! Maintenance: workers share its passes, and it removes what dead processes have left.

use std::time::Duration;

use super::needs_postgres;
use super::scene::*;
use crate::durable::Retention;
use crate::durable::store::Backend;
use crate::durable::store::postgres::silent_sessions::WATCHES_PER_PASS;
use crate::durable::store::suite::task;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns `true` if a pass of maintenance was not skipped.
async fn passes(scene: &PostgresScene, caller: &Caller) -> bool {
    scene.ask("UPDATE $S.meta SET aged_at = 7");
    assert!(!caller.store.maintain_every(HOUR, 100).await.unwrap());
    scene.number("SELECT aged_at FROM $S.meta") != 7
}

#[tokio::test]
async fn a_pass_soon_after_another_is_skipped() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (one, two) = (scene.open().await, scene.open().await);
    assert!(passes(&scene, &one).await);
    assert!(!passes(&scene, &one).await);
    assert!(!passes(&scene, &two).await);
    scene.ask("UPDATE $S.meta SET passed = passed - 3600000");
    assert!(passes(&scene, &two).await);
    // The clock was ahead.
    scene.ask("UPDATE $S.meta SET passed = passed + 7200000");
    assert!(passes(&scene, &two).await);
    scene.ask("UPDATE $S.meta SET aged_at = 7");
    assert!(!two.store.maintain(100).await.unwrap());
    assert_ne!(scene.number("SELECT aged_at FROM $S.meta"), 7);
}

#[tokio::test]
async fn another_worker_continues_an_unfinished_pass() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let callers = [scene.open().await, scene.open().await];
    let retention = Retention::default().kept_most(0);
    callers[0].store.set_retention(retention).await.unwrap();
    for number in 0..4 {
        callers[0].store(number).await.unwrap();
    }
    let claim = callers[0].claim(4).await;
    callers[0].turn(done(&claim), 0).await;
    let mut passes = 0;
    while callers[passes % 2]
        .store
        .maintain_every(HOUR, 1)
        .await
        .unwrap()
    {
        passes += 1;
    }
    assert_eq!(passes, 3);
    assert_eq!(callers[0].store.counts().await.unwrap().kept, 0);
}

/// Stores the session of a process that does not run.
fn add_session(scene: &PostgresScene, id: u32, types: &str, silent_for: Duration) {
    let silent_for = silent_for.as_millis();
    scene.ask(&format!(
        "INSERT INTO $S.session (id, endpoint, layout, process, types, opened, seen)
         SELECT {id}, {id}, layout, 1, {types}, 0,
             extract(epoch FROM clock_timestamp()) * 1000 - {silent_for}
         FROM $S.meta"
    ));
}

#[tokio::test]
async fn silent_sessions_are_removed() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (one, two) = (scene.open().await, scene.open().await);
    // Their processes live, and have been silent for long.
    scene.ask("UPDATE $S.session SET id = id + 100, seen = 0");
    add_session(&scene, 1, "'{7}'", 2 * HOUR);
    add_session(&scene, 2, "'{7}'", Duration::from_secs(170));
    add_session(&scene, 3, "NULL", 23 * HOUR);
    add_session(&scene, 4, "NULL", 25 * HOUR);
    add_session(&scene, 5, "'{7}'", 2 * HOUR);
    scene.ask(
        "INSERT INTO $S.claim (epoch, session, until, lease, claimed_at, held)
         VALUES (1, 5, 1, 1, 1, '{}')",
    );
    scene.ask("INSERT INTO $S.park (session, endpoint, kinds) VALUES (1, 1, '{7}'), (2, 2, '{7}')");
    one.store.maintain(9).await.unwrap();
    let left = scene.ask("SELECT id FROM $S.session WHERE id < 100 ORDER BY id");
    assert_eq!(left.concat(), ["2", "3", "5"]);
    let parked = scene.ask("SELECT session FROM $S.park ORDER BY session");
    assert_eq!(parked.concat(), ["2"]);
    let alive = scene.number("SELECT count(*) FROM $S.session WHERE id > 100");
    assert_eq!(alive, 2);
    drop(two);
}

#[tokio::test]
async fn the_counts_of_processes_without_sessions_are_added_up() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let one = scene.open().await;
    one.store(1).await.unwrap();
    scene.ask(
        "INSERT INTO $S.total SELECT number, waiting, 2, -1, 5, 1, stored, 1, 2, 3, 4, 5, 6, 7, 8, 9
         FROM $S.total, generate_series(1, 3) AS of_gone (number)",
    );
    let before = one.store.counts().await.unwrap();
    for _ in 0..2 {
        one.store.maintain(9).await.unwrap();
        let rows = scene.number("SELECT count(*) FROM $S.total");
        assert_eq!(rows, 2);
        assert_eq!(one.store.counts().await.unwrap(), before);
    }
    assert_eq!(
        (before.stored, before.delayed, before.cancelled),
        (4, 6, 27)
    );
}

#[tokio::test]
async fn those_who_await_ended_tasks_are_forgotten() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let one = scene.open().await;
    one.store(1).await.unwrap();
    let ids = vec![task(1).id, task(2).id];
    one.store.status(ids).await.unwrap();
    scene.ask(&format!(
        "INSERT INTO $S.watch (id, endpoint) VALUES ('{}', 1)",
        task(2).id
    ));
    one.store.maintain(9).await.unwrap();
    let watched = scene.ask("SELECT id FROM $S.watch");
    assert_eq!(watched.concat(), [task(1).id.to_string()]);
}

/// A pass reads a part of those who await tasks, and the next one goes on.
#[tokio::test]
async fn those_who_await_tasks_are_checked_in_parts() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let one = scene.open().await;
    one.store(1).await.unwrap();
    one.store.status(vec![task(1).id]).await.unwrap();
    let rows = 2 * WATCHES_PER_PASS + 10;
    scene.ask(&format!(
        "INSERT INTO $S.watch (id, endpoint)
         SELECT gen_random_uuid(), number FROM generate_series(1, {rows}) AS number"
    ));
    for left in [WATCHES_PER_PASS + 12, 12, 1, 1, 1] {
        one.store.maintain(9).await.unwrap();
        let watched = scene.number("SELECT count(*) FROM $S.watch");
        assert_eq!(watched, left);
    }
    // A pass that has reached the end begins anew.
    scene.ask("INSERT INTO $S.watch (id, endpoint) SELECT id, 7 FROM $S.watch");
    scene.ask("UPDATE $S.task SET state = 4, at = 1");
    one.store.maintain(9).await.unwrap();
    one.store.maintain(9).await.unwrap();
    assert_eq!(scene.number("SELECT count(*) FROM $S.watch"), 0);
}
