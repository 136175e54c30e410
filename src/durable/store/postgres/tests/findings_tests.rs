//! The findings about a server and its tables.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::scene::*;
use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::store::postgres::{findings, migrate};
use crate::durable::store::{Backend, Store};
use crate::durable::{Finding, Health, PostgresStore};

/// The settings of a server about which there is nothing to say.
const HEALTHY: [&str; 2] = ["fsync=on", "full_page_writes=on"];

/// Returns the findings about a server.
async fn found(store: &Store) -> Vec<Finding> {
    store.0.diagnose().await.unwrap().server
}

async fn observed(server: &Server) -> Vec<&'static str> {
    let store = PostgresStore::observe(&server.url()).await.unwrap();
    found(&store).await.iter().map(|it| it.id).collect()
}

#[tokio::test]
async fn each_fault_of_a_database_is_found() {
    needs_postgres!();
    let server = Server::start_with(&HEALTHY);
    let connection = ServerConnection::to(&server);
    let store = PostgresStore::open(&server.url()).await.unwrap();
    assert_eq!(found(&store.into()).await, []);
    for (id, cause, end) in [
        (
            "postgres.durability",
            "ALTER ROLE throng SET synchronous_commit = off",
            "ALTER ROLE throng RESET synchronous_commit",
        ),
        (
            "postgres.read_only",
            "ALTER ROLE throng SET default_transaction_read_only = on",
            "ALTER ROLE throng RESET default_transaction_read_only",
        ),
        (
            "postgres.autovacuum",
            "ALTER TABLE throng.task SET (autovacuum_enabled = false)",
            "ALTER TABLE throng.task RESET (autovacuum_enabled)",
        ),
        (
            "postgres.tables",
            "ALTER TABLE throng.error RENAME TO errors",
            "ALTER TABLE throng.errors RENAME TO error",
        ),
    ] {
        connection.ask(cause);
        assert_eq!(observed(&server).await, [id]);
        connection.ask(end);
    }
    assert_eq!(observed(&server).await, [""; 0]);
}

#[tokio::test]
async fn each_fault_of_the_settings_is_found() {
    needs_postgres!();
    let server = Server::start_with(&[
        "fsync=off",
        "autovacuum=off",
        "max_connections=10",
        "superuser_reserved_connections=8",
    ]);
    let store = PostgresStore::open(&server.url()).await.unwrap();
    let ids: Vec<_> = found(&store.into()).await.iter().map(|it| it.id).collect();
    let expected = [
        "postgres.durability",
        "postgres.autovacuum",
        "postgres.connections",
    ];
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn a_standby_is_found() {
    needs_postgres!();
    let server = Server::start_with(&HEALTHY);
    drop(PostgresStore::open(&server.url()).await.unwrap());
    server.crash();
    server.make_standby();
    server.restart();
    assert_eq!(observed(&server).await, ["postgres.standby"]);
}

/// The store does not wait for a minute, so this checks only that the transaction and its age are read.
#[tokio::test]
async fn the_oldest_transaction_is_read() {
    needs_postgres!();
    let server = Server::start_with(&HEALTHY);
    let store = PostgresStore::open(&server.url()).await.unwrap();
    let url = format!("{} application_name=report", server.url());
    let reader = ServerConnection::to_url(url);
    reader.ask("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let process = reader.number("SELECT pg_backend_pid()");
    let oldest = store.read((), |view, ()| Box::pin(findings::oldest_transaction(view)));
    let oldest = oldest.await.unwrap().unwrap();
    assert_eq!(oldest.process.map(i64::from), Some(process));
    assert_eq!(oldest.name, "report");
}

#[tokio::test]
async fn missing_rights_are_found() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let user = scene.new_user(
        "GRANT USAGE ON SCHEMA $S TO user_of_$S;
         GRANT SELECT ON ALL TABLES IN SCHEMA $S TO user_of_$S",
    );
    let observer = scene.builder_of(&user).observe().await.unwrap();
    let ids = async |observer: &Store| -> BTreeSet<_> {
        found(observer).await.iter().map(|it| it.id).collect()
    };
    let refused = ids(&observer).await;
    assert!(refused.contains("postgres.permissions"), "{refused:?}");
    assert!(refused.contains("postgres.settings"), "{refused:?}");
    scene.ask(&format!(
        "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $S TO {user};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA $S TO {user};
         GRANT pg_read_all_stats TO {user}"
    ));
    let granted = ids(&observer).await;
    assert!(!granted.contains("postgres.permissions"), "{granted:?}");
    assert!(!granted.contains("postgres.settings"), "{granted:?}");
    for (cause, end) in [
        (
            "REVOKE UPDATE ON $S.step FROM",
            "GRANT UPDATE ON $S.step TO",
        ),
        (
            "REVOKE SELECT ON SEQUENCE $S.epoch FROM",
            "GRANT SELECT ON SEQUENCE $S.epoch TO",
        ),
    ] {
        scene.ask(&format!("{cause} {user}"));
        assert!(
            ids(&observer).await.contains("postgres.permissions"),
            "{cause}"
        );
        scene.ask(&format!("{end} {user}"));
    }
    drop(caller);
}

/// The list of tables is read from the statements that create them.
#[tokio::test]
async fn all_tables_are_examined() {
    needs_postgres!();
    let scene = PostgresScene::new();
    drop(scene.open().await);
    let created = scene.ask(
        "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
         WHERE nspname = '$S' AND relkind IN ('r', 'v', 'S')",
    );
    let created: BTreeSet<_> = created.concat().into_iter().collect();
    let examined: BTreeSet<_> = migrate::relations().map(String::from).collect();
    assert_eq!(examined, created);
}

/// The server refuses the connection for notifications, and goes on serving the others.
#[tokio::test]
async fn a_store_that_receives_no_notifications_is_mute() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let user = scene.new_user("CREATE SCHEMA $S AUTHORIZATION user_of_$S");
    let caller = Caller::of(scene.builder_of(&user).open().await.unwrap()).await;
    assert_eq!(caller.store.health(), Health::Well);
    scene.ask(&format!("ALTER ROLE {user} NOLOGIN"));
    // The second connection is that for notifications.
    scene.cut(&scene.backends()[1]);
    let end = Instant::now() + DEADLINE;
    while caller.store.health() != Health::Mute {
        assert!(Instant::now() < end, "{:?}", caller.store.health());
        sleep(Duration::from_millis(10)).await;
    }
    caller.store(1).await.unwrap();
    scene.ask(&format!("ALTER ROLE {user} LOGIN"));
    while caller.store.health() != Health::Well {
        assert!(Instant::now() < end, "{:?}", caller.store.health());
        sleep(Duration::from_millis(10)).await;
    }
}
