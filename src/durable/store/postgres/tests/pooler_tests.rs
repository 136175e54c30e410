//! A store behind a pooler in transaction mode, whose notifications come from the server itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use tokio_postgres::error::SqlState;

use super::pooler::{POOL_SIZE, Pooler, is_pooler_installed};
use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::store::postgres::PostgresStoreBuilder;
use crate::durable::store::postgres::connection::BEGIN;
use crate::durable::store::postgres::error::remedy;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, Event, TaskState};

/// Ends the calling test if there is no server or no pooler. The test above this one fails then.
macro_rules! needs_pooler {
    () => {
        needs_postgres!();
        if !is_pooler_installed() {
            return;
        }
    };
}

#[test]
fn pgbouncer_is_installed() {
    assert!(
        is_pooler_installed(),
        "install PgBouncer to run the tests of the store behind a pooler: on Debian, `apt-get install pgbouncer`"
    );
}

/// Returns a builder of the store behind the pooler.
fn builder(scene: &PostgresScene) -> PostgresStoreBuilder {
    let mut builder = scene.builder_at(&Pooler::shared().url());
    builder.listen_url(Server::shared().url());
    builder
}

async fn open(scene: &PostgresScene) -> Caller {
    Caller::of(builder(scene).open().await.unwrap()).await
}

#[tokio::test]
async fn tasks_are_stored_and_run_and_others_are_notified() {
    needs_pooler!();
    let scene = PostgresScene::new();
    let (producer, worker) = (open(&scene).await, open(&scene).await);
    let mut events = worker.store.events();
    assert!(worker.turn(Vec::new(), 1).await.claim.is_none());
    producer.store(1).await.unwrap();
    until(&mut events, &Event::Wake(None)).await;
    let claim = worker.claim(1).await;
    let mut ends = producer.store.events();
    let seen = producer.store.status(vec![id(1)]).await.unwrap();
    assert!(seen[0] == TaskState::Running, "{seen:?}");
    worker.turn(done(&claim), 0).await;
    until(&mut ends, &Event::MaybeEnded(vec![id(1)])).await;
    worker.store.close().await.unwrap();
}

#[tokio::test]
async fn an_observer_needs_no_notifications() {
    needs_pooler!();
    let scene = PostgresScene::new();
    open(&scene).await.store(1).await.unwrap();
    let observer = builder(&scene).observe().await.unwrap();
    assert_eq!(observer.0.counts().await.unwrap().waiting, 1);
    assert!(observer.0.diagnose().await.unwrap().partitions.len() == 1);
}

/// There are more writers than connections to the server, so transactions of one store use several of them.
#[tokio::test]
async fn stores_share_the_connections_of_the_pooler() {
    needs_pooler!();
    let scene = PostgresScene::new();
    let opened = join_all((0..2 * POOL_SIZE).map(|_| open(&scene))).await;
    let callers: Vec<_> = opened.into_iter().map(Arc::new).collect();
    let stored = callers.iter().enumerate().map(|(n, caller)| async move {
        for number in 0..20 {
            let number = 20 * n as u64 + number;
            let request = caller.new_enqueue([task(number)]);
            let store = || caller.store.enqueue(Arc::clone(&request));
            settled(store).await.unwrap();
        }
    });
    join_all(stored).await;
    let run = callers.iter().map(|caller| async move {
        let mut run = Vec::new();
        while let Some(claim) = caller.turn(Vec::new(), 3).await.claim {
            caller.turn(done(&claim), 0).await;
            run.extend(claim.tasks.iter().map(|task| task.id));
        }
        run
    });
    let run = join_all(run).await.concat();
    assert_eq!(run.len(), 40 * POOL_SIZE);
    assert_eq!(run.iter().collect::<BTreeSet<_>>().len(), run.len());
}

/// Other programs get the same connections.
#[tokio::test]
async fn nothing_outlives_a_transaction() {
    needs_pooler!();
    let scene = PostgresScene::new();
    let caller = open(&scene).await;
    caller.store(1).await.unwrap();
    let claim = caller.claim(1).await;
    caller.turn(done(&claim), 1).await;
    caller.store.status(vec![id(1)]).await.unwrap();
    // While a transaction is open, no other one has its connection.
    let others: Vec<_> = (0..POOL_SIZE)
        .map(|_| ServerConnection::to_url(Pooler::shared().url()))
        .collect();
    for other in &others {
        other.ask("BEGIN");
        let state = other.ask(
            "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
                 current_setting('enable_seqscan'), current_setting('jit'),
                 (SELECT count(*) FROM pg_prepared_statements)::text,
                 (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())::text",
        );
        assert_eq!(state.concat(), ["0", "0", "on", "on", "0", "0"]);
    }
    for other in &others {
        other.ask("COMMIT");
    }
}

/// A store that is not told of the pooler finds the prepared statements of others, or not its own.
#[test]
fn an_error_about_a_prepared_statement_names_the_setting() {
    for code in ["26000", "42P05"] {
        let remedy = remedy(&SqlState::from_code(code)).unwrap();
        assert!(remedy.contains("`listen_url`"), "{remedy}");
    }
}

/// The transactions have the settings of the store, and the level that it needs.
#[tokio::test]
async fn each_transaction_is_set_up() {
    needs_pooler!();
    let scene = PostgresScene::new();
    let mut builder = builder(&scene);
    let server = builder.answer_timeout(3 * SOON).server().unwrap();
    let connection = server.connect(None).await.unwrap();
    connection.begin(BEGIN).await.unwrap();
    let settings = "SELECT current_setting('lock_timeout'), current_setting('enable_seqscan'),
        current_setting('transaction_isolation')";
    let row = connection.row(settings, &[]).await.unwrap().unwrap();
    let settings: [String; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(settings, ["900ms", "off", "read committed"]);
    assert!(connection.roll_back(DEADLINE).await);
}

#[tokio::test]
async fn an_address_for_notifications_that_is_none_is_invalid() {
    let mut builder = PostgresStoreBuilder::new("postgres://localhost/app");
    let error = refused(builder.listen_url("localhost:hunter2")).await;
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("listen_url"), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}
