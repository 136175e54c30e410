//! Which sessions are woken, and what becomes of those that receive no notifications.

use std::time::Duration;

use super::proxy::CommitProxy;
use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::failure::Cause;
use crate::durable::store::postgres::notices;
use crate::durable::store::suite::task;
use crate::durable::store::{Backend, Event};

/// Adds the idle sessions of processes that were killed, which claim all that an idle session claims.
fn add_dead_sessions(scene: &PostgresScene) {
    scene.ask(
        "INSERT INTO $S.session (id, endpoint, layout, process, types, queue, opened, seen)
         SELECT 1000 + nth, nth, layout, process, types, queue, opened, seen
         FROM $S.session, generate_series(1, 20) AS dead (nth)
         WHERE id = (SELECT max(id) FROM $S.session);
         INSERT INTO $S.park (session, endpoint, kinds)
         SELECT 1000 + nth, nth, kinds FROM $S.park, generate_series(1, 20) AS dead (nth)",
    );
}

#[tokio::test]
async fn a_wake_up_reaches_a_session_that_is_alive() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (producer, worker) = (scene.open().await, scene.open().await);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
    add_dead_sessions(&scene);
    producer.store(1).await.unwrap();
    until(&mut events, &Event::Wake(None)).await;
    let left = scene.number("SELECT count(*) FROM $S.park");
    assert_eq!(left, 20, "a session is woken, and no other one");
    // An earlier task wakes any session, whatever it claims.
    let claim = worker.claim(1).await;
    assert!(worker.turn(done(&claim), 1).await.claim.is_none());
    let mut delayed = task(2);
    delayed.delay = Duration::from_secs(3600);
    let request = producer.new_enqueue([delayed]);
    producer.store.enqueue(request).await.unwrap();
    until(&mut events, &Event::Wake(None)).await;
    // So does a type that is resumed.
    producer.store.set_paused("job".into(), true).await.unwrap();
    producer.store(3).await.unwrap();
    assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
    producer
        .store
        .set_paused("job".into(), false)
        .await
        .unwrap();
    until(&mut events, &Event::Wake(None)).await;
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 20);
}

/// The session works, so it must not be chosen for another wake-up.
#[tokio::test]
async fn a_turn_after_one_that_was_rolled_back_leaves_the_idle_sessions() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open_hurried().await;
    assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
    let other = ServerConnection::to(Server::shared());
    other.ask(&format!(
        "BEGIN; LOCK TABLE {}.ready IN ACCESS EXCLUSIVE MODE",
        scene.schema
    ));
    let request = worker.new_turn(Vec::new(), 0);
    let failure = worker.store.turn(request.clone()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Busy);
    other.ask("ROLLBACK");
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 1);
    worker.store.turn(request).await.unwrap();
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 0);
}

/// A late notification wakes a session that has become idle again.
#[tokio::test]
async fn a_session_that_is_woken_late_leaves_the_idle_sessions() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let worker = scene.open().await;
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
    scene.ask(&format!(
        "SELECT pg_notify('throng_{:x}', 'w{}')",
        worker.store.endpoint(),
        worker.session
    ));
    until(&mut events, &Event::Wake(None)).await;
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 1);
    worker.turn(Vec::new(), 0).await;
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 0);
}

/// A pooler in transaction mode accepts `LISTEN`, and passes on no notifications.
#[tokio::test]
async fn a_process_that_receives_no_notifications_polls() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let producer = scene.open().await;
    let proxy = CommitProxy::to(Server::shared());
    proxy.swallow_listen(true);
    let deaf = Caller::of(scene.builder_at(&proxy.url()).open().await.unwrap()).await;
    let mut events = deaf.store.events();
    let turned = deaf.turn(Vec::new(), 1).await;
    assert!(turned.claim.is_none());
    assert!(turned.next.unwrap() <= Duration::from_secs(1));
    // Nobody relies on it: it does not seem to wait for a wake-up, nor to live because it listens.
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 0);
    let listens = format!(
        "SELECT count(*) FROM $S.listener WHERE endpoint = {}",
        deaf.store.endpoint()
    );
    assert_eq!(scene.number(&listens), 0);
    producer.store(1).await.unwrap();
    deaf.claim(1).await;
    // It listens as soon as it can.
    proxy.swallow_listen(false);
    until(&mut events, &Event::Ready).await;
    assert_eq!(scene.number(&listens), 1);
    assert!(deaf.turn(Vec::new(), 1).await.claim.is_none());
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 1);
}

/// The statement that wakes sessions computes who listens only if it finds an idle session.
#[tokio::test]
async fn a_wake_up_without_idle_sessions_does_not_read_the_locks() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let producer = scene.open().await;
    producer.store(1).await.unwrap();
    let kind = task(1).kind().number();
    let explain = || {
        let sql = notices::WAKE.replace("throng.", "$S.");
        let sql = sql
            .replace("$1", &format!("'{{{kind}}}'"))
            .replace("$2", "1");
        let plan = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}");
        scene.ask(&plan).concat()
    };
    let is_read = |plan: &[String]| {
        let of_locks = plan.iter().find(|line| line.contains("pg_lock_status"));
        !of_locks
            .expect("the plan reads the locks")
            .contains("never executed")
    };
    let plan = explain();
    assert!(!is_read(&plan), "{plan:#?}");
    scene.ask(&format!(
        "INSERT INTO $S.park (session, endpoint, kinds) VALUES (1, 1, '{{{kind}}}')"
    ));
    let plan = explain();
    assert!(is_read(&plan), "{plan:#?}");
    // Its process does not listen.
    assert_eq!(scene.number("SELECT count(*) FROM $S.park"), 1);
}
