//! Connections that break, and servers that are restarted: requests go on, and nothing is lost.

use tokio::time::Instant;

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::postgres::PostgresStore;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, Event, TaskState};

#[tokio::test]
async fn a_request_after_a_cut_succeeds() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    for number in 0..20 {
        caller.store.counts().await.unwrap();
        let backends = scene.backends();
        assert_eq!(backends.len(), 3, "a writer, a listener and a reader");
        for backend in backends {
            scene.cut(&backend);
        }
        caller.store(number).await.unwrap();
        assert_eq!(caller.store.counts().await.unwrap().waiting, number + 1);
        let mut events = 0;
        while scene.backends().len() < 3 {
            events += 1;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            assert!(events < 4_000, "the listener does not come back");
        }
    }
}

/// Runs a request that waits for a lock. Cuts its connection meanwhile.
async fn cut_within<T>(scene: &PostgresScene, request: impl Future<Output = T>) -> T {
    let other = ServerConnection::to(Server::shared().url());
    let lock = format!(
        "BEGIN; LOCK TABLE {}.task IN ACCESS EXCLUSIVE MODE",
        scene.schema
    );
    other.ask(&lock);
    let cut = async {
        let backend = scene.blocked().await;
        scene.cut(&backend);
        other.ask("ROLLBACK");
    };
    tokio::join!(request, cut).0
}

#[tokio::test]
async fn a_write_whose_connection_breaks_runs_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    cut_within(&scene, caller.store(1)).await.unwrap();
    assert_eq!(caller.claim(2).await.tasks.len(), 1);
}

#[tokio::test]
async fn a_read_whose_connection_breaks_runs_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    caller.store(1).await.unwrap();
    let status = caller.store.status(vec![id(1)]);
    let seen = cut_within(&scene, status).await.unwrap();
    assert!(seen[0] == TaskState::Waiting, "{seen:?}");
}

#[tokio::test]
async fn a_listener_that_was_cut_hears_again() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (worker, producer) = (scene.open().await, scene.open().await);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    for backend in scene.backends() {
        scene.cut(&backend);
    }
    until(&mut events, &Event::Ready).await;
    for number in 1..4 {
        assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
        producer.store(number).await.unwrap();
        until(&mut events, &Event::Wake(None)).await;
        let claim = worker.claim(1).await;
        worker.turn(done(&claim), 0).await;
    }
}

#[tokio::test]
async fn a_server_that_crashes_and_comes_back_has_lost_nothing() {
    needs_postgres!();
    let server = Server::start();
    let open = async || Caller::of(PostgresStore::open(&server.url()).await.unwrap()).await;
    let (worker, producer) = (open().await, open().await);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    for number in 1..=3 {
        producer.store(number).await.unwrap();
    }
    let claim = worker.claim(1).await;
    // This session is idle, and so in a table that a crash empties.
    let idle = open().await;
    let mut idle_events = idle.store.events();
    assert_eq!(idle.claim(2).await.tasks.len(), 2);
    assert!(idle.turn(Vec::new(), 1).await.claim.is_none());
    server.crash();
    let failure = producer.store(4).await.unwrap_err();
    assert_eq!(
        (&failure.cause, failure.effect),
        (&Cause::Unavailable, Effect::None),
        "{failure}"
    );
    producer.store.counts().await.unwrap_err();
    server.restart();
    until(&mut events, &Event::Ready).await;
    let request = producer.new_enqueue([task(5)]);
    let stored = settled(|| producer.store.enqueue(request.clone())).await;
    stored.unwrap();
    assert!(worker.turn(done(&claim), 0).await.refused.is_empty());
    until(&mut idle_events, &Event::Ready).await;
    let claim = idle.claim(3).await;
    assert_eq!(claim.tasks[0].id, id(5));
    let counts = producer.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done, counts.running), (4, 1, 3));
}

/// No worker makes a turn: opening the store for a command is enough.
#[tokio::test]
async fn a_session_that_is_opened_takes_back_the_claims_of_a_process_that_is_gone() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (worker, other) = (scene.open().await, scene.open().await);
    worker.store(1).await.unwrap();
    worker.claim(1).await;
    let running = other.store.status(vec![id(1)]).await.unwrap();
    assert_eq!(running, [TaskState::Running]);
    // Its lease has expired, a worker has noticed that, and it has been silent for long.
    scene.ask("UPDATE $S.claim SET until = 0, suspect = 1; UPDATE $S.session SET seen = 0");
    scene.open().await;
    let listens = other.store.status(vec![id(1)]).await.unwrap();
    assert_eq!(listens, [TaskState::Running]);
    drop(worker);
    let end = Instant::now() + DEADLINE;
    // The server notices after a moment that the process does not listen any more.
    while other.store.status(vec![id(1)]).await.unwrap() == running {
        assert!(Instant::now() < end, "the claim is not taken back");
        scene.open().await;
    }
}
