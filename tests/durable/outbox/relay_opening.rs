//! The errors with which a relay is not opened, and the rights that it needs.

use throng::durable::{
    DurableClient, DurableError, MemoryStore, OutboxRelay, PostgresStore, SpawnOptions,
    SqliteStore, Status,
};

use super::super::database::{Statement, connect_to};
use super::AppDatabase;
use crate::harness::{Number, in_time};
use crate::postgres_server::is_installed;

fn client() -> DurableClient {
    DurableClient::open(MemoryStore::new())
}

async fn sqlite_error(database: &AppDatabase) -> DurableError {
    let opened = OutboxRelay::sqlite(&client(), database.path()).await;
    opened.expect_err("it cannot be opened")
}

async fn postgres_error(url: &str) -> DurableError {
    let opened = OutboxRelay::postgres(&client(), url).await;
    opened.expect_err("it cannot be opened")
}

#[tokio::test]
async fn a_file_without_an_outbox_is_refused() {
    let database = AppDatabase::bare_file();
    let error = sqlite_error(&database).await;
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("`Outbox::CREATE`"), "{error}");
    std::fs::remove_file(database.path()).expect("it is removed");
    let error = sqlite_error(&database).await;
    assert!(error.is_invalid(), "{error}");
    assert!(!database.path().exists());
    std::fs::write(database.path(), "no database".repeat(100)).expect("a file");
    let error = sqlite_error(&database).await;
    assert!(error.is_corrupt(), "{error}");
}

/// The relay finds rows by the numbers that SQLite gives them, which not every table has.
#[tokio::test]
async fn a_file_whose_outbox_has_other_columns_is_refused() {
    for create in [
        "CREATE TABLE throng_outbox (id BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE throng_outbox (id BLOB PRIMARY KEY)",
    ] {
        let database = AppDatabase::bare_file();
        database.run(&[Statement::Sql(create)]).await;
        let error = sqlite_error(&database).await;
        assert!(error.is_unfit(), "{error}");
        assert!(error.to_string().contains("`Outbox::CREATE`"), "{error}");
    }
}

#[tokio::test]
async fn a_postgresql_outbox_with_other_columns_is_refused() {
    if !is_installed() {
        return;
    }
    for create in [
        "CREATE SCHEMA throng; CREATE TABLE throng.outbox (id bytea PRIMARY KEY)",
        "CREATE SCHEMA throng; CREATE TABLE throng.outbox (id bytea PRIMARY KEY, body text)",
    ] {
        let database = AppDatabase::bare_shared().await;
        database.run(&[Statement::Sql(create)]).await;
        let error = postgres_error(&database.url()).await;
        assert!(error.is_unfit(), "{error}");
        let text = error.to_string();
        assert!(text.contains("`Outbox::CREATE_POSTGRES`"), "{error}");
    }
}

#[tokio::test]
async fn a_file_with_a_store_is_refused() {
    let database = AppDatabase::file().await;
    drop(SqliteStore::open(database.path()).await.expect("a store"));
    let error = sqlite_error(&database).await;
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("contains a store"), "{error}");
}

#[tokio::test]
async fn a_client_that_observes_its_store_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    drop(SqliteStore::open(&path).await.expect("a store"));
    let observer = SqliteStore::observe(&path).await.expect("an observer");
    let database = AppDatabase::file().await;
    let client = DurableClient::open(observer);
    let error = OutboxRelay::sqlite(&client, database.path()).await;
    let error = error.expect_err("it cannot be opened");
    assert!(error.is_read_only(), "{error}");
}

#[tokio::test]
async fn a_postgresql_database_without_an_outbox_is_refused() {
    if !is_installed() {
        return;
    }
    let database = AppDatabase::bare_shared().await;
    for create in ["", "CREATE SCHEMA throng"] {
        let db = connect_to(&database.url()).await;
        db.batch_execute(create).await.expect("it is created");
        let error = postgres_error(&database.url()).await;
        assert!(error.is_unfit(), "{error}");
        let text = error.to_string();
        assert!(text.contains("`Outbox::CREATE_POSTGRES`"), "{error}");
    }
    let error = postgres_error("postgres://nobody:secret@").await;
    assert!(error.is_invalid(), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_postgresql_schema_with_a_store_is_refused() {
    if !is_installed() {
        return;
    }
    let database = AppDatabase::bare_shared().await;
    let store = PostgresStore::open(&database.url()).await;
    drop(store.expect("a store"));
    let error = postgres_error(&database.url()).await;
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("contains a store"), "{error}");
}

#[tokio::test]
async fn a_standby_is_refused() {
    if !is_installed() {
        return;
    }
    let database = AppDatabase::server().await;
    let AppDatabase::Server(server) = &database else {
        unreachable!("it has a server")
    };
    server.crash();
    server.make_standby();
    server.restart();
    let error = postgres_error(&database.url()).await;
    assert!(error.is_read_only(), "{error}");
    server.crash();
    let error = postgres_error(&database.url()).await;
    assert!(!error.is_read_only() && !error.is_unfit(), "{error}");
}

/// A program can do all of this in a task of its runtime.
#[tokio::test]
async fn a_relay_is_thread_safe_and_so_are_its_futures() {
    fn is_thread_safe<T: Send + Sync + Unpin>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}

    let (client, database) = (client(), AppDatabase::file().await);
    is_send(&OutboxRelay::postgres(&client, "no address"));
    let opening = OutboxRelay::sqlite(&client, database.path());
    is_send(&opening);
    let relay = opening.await.expect("it can be opened");
    is_thread_safe(&relay);
    let row = relay.outbox(Number(1), SpawnOptions::new());
    is_send(&relay.committed(row.expect("it is a row")));
    is_send(&relay.close());
}

/// The user of the transactions may only add rows, and that of the relay may only move them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_in_postgresql_needs_only_its_own_rights() {
    if !is_installed() {
        return;
    }
    let database = AppDatabase::shared().await;
    let AppDatabase::Shared(name) = &database else {
        unreachable!("it is on the shared server")
    };
    let owner = connect_to(&database.url()).await;
    let [adds, moves] = ["a", "m"].map(|prefix| format!("{prefix}_{name}"));
    for user in [&adds, &moves] {
        let create = format!("CREATE USER {user}; GRANT USAGE ON SCHEMA throng TO {user}");
        owner.batch_execute(&create).await.expect("it is created");
    }
    let grant = format!("GRANT INSERT ON throng.outbox TO {adds}");
    owner.batch_execute(&grant).await.expect("it is granted");
    for right in ["SELECT", "UPDATE", "DELETE"] {
        let error = postgres_error(&database.url_of(&moves)).await;
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains("`DELETE`"), "{error}");
        let grant = format!("GRANT {right} ON throng.outbox TO {moves}");
        owner.batch_execute(&grant).await.expect("it is granted");
    }
    let error = postgres_error(&database.url_of(&adds)).await;
    assert!(error.is_denied(), "{error}");

    let client = client();
    let relay = OutboxRelay::postgres(&client, &database.url_of(&moves)).await;
    let relay = relay.expect("it can be opened");
    let mut db = connect_to(&database.url_of(&adds)).await;
    let tx = db.transaction().await.expect("it begins");
    let row = relay.spawn_in(&tx, Number(1)).await;
    tx.commit().await.expect("it is committed");
    in_time(async {
        let row = row.expect("it is inserted");
        let handle = relay.committed(row).await.expect("it is moved");
        assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
    })
    .await;
}
