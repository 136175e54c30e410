//! Stores without an outbox, and the drivers that the crate supports.

use std::time::Duration;

use serde_json::Value;
use throng::durable::{
    DurableClient, MemoryStore, Outbox, PostgresStore, SpawnOptions, SqliteStore, Status,
};

use super::database::{Database, connect_to};
use crate::harness::{Number, TestStore, in_time, start};
use crate::postgres_server::{Server, is_installed};

#[tokio::test]
async fn a_store_without_an_outbox_refuses_rows() {
    let client = DurableClient::open(MemoryStore::new());
    let error = client.outbox(Number(1), SpawnOptions::new()).unwrap_err();
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("outbox"), "{error}");
}

#[tokio::test]
async fn a_store_in_redis_refuses_rows() {
    needs_redis!();
    let client = TestStore::server().client().await;
    let error = client.outbox(Number(1), SpawnOptions::new()).unwrap_err();
    assert!(error.is_unfit(), "{error}");
}

#[tokio::test]
async fn an_observer_refuses_rows() {
    let database = Database::file().await;
    drop(database.client().await);
    let store = SqliteStore::observe(database.path()).await;
    let client = DurableClient::open(store.expect("it can be observed"));
    let error = client.outbox(Number(1), SpawnOptions::new()).unwrap_err();
    assert!(error.is_read_only(), "{error}");
}

#[tokio::test]
async fn a_row_does_not_show_the_task() {
    let client = Database::file().await.client().await;
    let row = client
        .outbox(Number(9_876_543_210), SpawnOptions::new())
        .unwrap();
    let shown = format!("{row:?}");
    assert!(shown.contains(&row.id().to_string()), "{shown}");
    assert!(!shown.contains("9876543210"), "{shown}");
    // The body is for the store, and contains the task as the user has encoded it.
    assert!(
        row.body()
            .ends_with(&serde_json::to_vec(&Value::from(9_876_543_210_u64)).unwrap())
    );
    assert_eq!(row.insert(), Outbox::INSERT_SQLITE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_in_a_transaction_of_rusqlite() {
    let database = Database::file().await;
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let mut db = database.open();

    let (first, second, undone) = {
        let mut tx = db.transaction().expect("it begins");
        let first = client.spawn_in(&tx, Number(1)).expect("it is inserted");
        let savepoint = tx.savepoint().expect("it begins");
        let undone = client
            .spawn_in(&savepoint, Number(2))
            .expect("it is inserted");
        drop(savepoint);
        let options = SpawnOptions::new();
        let second = client.spawn_in_with(&*tx, Number(3), options);
        tx.commit().expect("it is committed");
        (first, second.expect("it is inserted"), undone)
    };
    in_time(async {
        assert_eq!(client.committed(first).await.expect("it succeeds"), 1);
        assert_eq!(client.committed(second).await.expect("it succeeds"), 3);
    })
    .await;
    let undone = client.status(undone.id()).await.expect("an answer");
    assert_eq!(undone, Status::Absent);
}

#[tokio::test]
async fn a_missing_outbox_in_sqlite_is_named() {
    let database = Database::file().await;
    let client = database.client().await;
    let db = database.open();
    db.execute_batch("DROP TABLE throng_outbox")
        .expect("it is dropped");
    let error = client.spawn_in(&db, Number(1)).unwrap_err();
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("`Outbox::CREATE`"), "{error}");
    // Other requests work without the table.
    let row = client.outbox(Number(1), SpawnOptions::new()).unwrap();
    let handle = client.committed(row);
    in_time(async {
        assert_eq!(handle.status().await.expect("an answer"), Status::Absent);
        assert!(!handle.cancel().await.expect("an answer"));
        assert!(handle.await.is_err_and(|error| error.is_expired()));
    })
    .await;
}

/// A running engine finds an outbox that is created later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_in_sqlite_can_be_created_later() {
    let database = Database::file().await;
    let db = database.open();
    db.execute_batch("DROP TABLE throng_outbox")
        .expect("it is dropped");
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let row = client.outbox(Number(5), SpawnOptions::new()).unwrap();
    db.execute_batch(Outbox::CREATE).expect("it is created");
    let params = (row.id_bytes(), row.body());
    db.execute(row.insert(), params).expect("it is inserted");
    let handle = client.attach::<Number>(row.id());
    in_time(async { assert_eq!(handle.await.expect("it succeeds"), 5) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_in_a_transaction_of_tokio_postgres() {
    if !is_installed() {
        return;
    }
    let database = Database::server().await;
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let mut db = database.connect().await;
    let mut tx = db.transaction().await.expect("it begins");
    let first = client
        .spawn_in(&tx, Number(1))
        .await
        .expect("it is inserted");
    let savepoint = tx.transaction().await.expect("it begins");
    let undone = client.spawn_in(&savepoint, Number(2)).await;
    savepoint.rollback().await.expect("it is undone");
    tx.commit().await.expect("it is committed");
    let undone = client.status(undone.expect("it is inserted").id()).await;
    assert_eq!(undone.expect("an answer"), Status::Absent);
    in_time(async { assert_eq!(client.committed(first).await.expect("it succeeds"), 1) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_outbox_in_postgresql_is_named() {
    if !is_installed() {
        return;
    }
    let database = Database::server().await;
    let client = database.client().await;
    let mut db = database.connect().await;
    db.batch_execute("DROP TABLE outbox")
        .await
        .expect("it is dropped");
    let tx = db.transaction().await.expect("it begins");
    let error = client.spawn_in(&tx, Number(1)).await.unwrap_err();
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("no outbox"), "{error}");
}

/// A user that adds rows needs only `INSERT`, and `USAGE` on the schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_in_postgresql_needs_only_the_right_to_insert() {
    if !is_installed() {
        return;
    }
    let database = Database::server().await;
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let Database::Server(schema) = &database else {
        unreachable!("it is a server")
    };
    let user = format!("u{schema}");
    let owner = database.connect().await;
    let grants = format!(
        "CREATE USER {user}; GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT INSERT ON {schema}.outbox TO {user}"
    );
    owner
        .batch_execute(&grants)
        .await
        .expect("they are granted");
    let row = client.outbox(Number(4), SpawnOptions::new()).unwrap();
    let db = connect_to(&Server::shared().url_of(&user)).await;
    let read = format!("SELECT * FROM {schema}.outbox");
    assert!(db.batch_execute(&read).await.is_err());
    let (id, body) = (row.id_bytes(), row.body());
    let inserted = db.execute(row.insert(), &[&id, &body]).await;
    assert_eq!(inserted.expect("it is inserted"), 1);
    in_time(async { assert_eq!(client.committed(row).await.expect("it succeeds"), 4) }).await;
    // Only a superuser may have the default schema here, so it is not tested otherwise.
    let default = PostgresStore::open(&Server::shared().url()).await.unwrap();
    let row = DurableClient::open(default).outbox(Number(1), SpawnOptions::new());
    assert_eq!(row.unwrap().insert(), Outbox::INSERT_POSTGRES);
}

/// To the database, a broken connection is the same as the death of an engine that moves tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_in_postgresql_is_moved_twice_if_connections_break() {
    const TASKS: u64 = 3_000;
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let open = async || DurableClient::open(PostgresStore::open(&server.url()).await.unwrap());
    let client = open().await;
    let db = connect_to(&server.url()).await;
    db.batch_execute("BEGIN").await.expect("it begins");
    let insert = db
        .prepare(Outbox::INSERT_POSTGRES)
        .await
        .expect("it is valid");
    let mut last = None;
    for number in 0..TASKS {
        let row = client.outbox(Number(number), SpawnOptions::new()).unwrap();
        let inserted = db.execute(&insert, &[&row.id_bytes(), &row.body()]).await;
        assert_eq!(inserted.expect("it is inserted"), 1);
        last = Some(row);
    }
    db.batch_execute("COMMIT").await.expect("it is committed");
    drop(client.committed(last.expect("there are rows")));
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";
    let count = "SELECT count(*) FROM throng.outbox";
    for kill in 0..30 {
        db.batch_execute(others).await.expect("they end");
        // The pauses differ in length, so that connections break at different steps of a drain.
        tokio::time::sleep(Duration::from_millis(kill)).await;
    }
    in_time(async {
        while db
            .query_one(count, &[])
            .await
            .expect("a number")
            .get::<_, i64>(0)
            > 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let counts = open().await.counts().await.expect("an answer");
    assert_eq!((counts.stored, counts.waiting), (TASKS, TASKS));
}
