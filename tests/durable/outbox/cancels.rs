//! Tasks that are cancelled while they are in the outbox, or after they have joined another task.

use std::time::Duration;

use throng::durable::{Key, SpawnOptions, Status};

use super::database::{Database, add};
use super::{maker, row, until_moved};
use crate::harness::{Number, id, spawn_as, start};
use crate::support::within;

on_stores_with_outbox! {
    a_task_in_the_outbox_can_be_cancelled,
    a_cancelled_task_replaces_no_other_one,
    the_task_that_was_joined_is_cancelled,
    a_task_whose_id_has_expired_can_be_cancelled,
}

async fn a_task_in_the_outbox_can_be_cancelled(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let row = row(&maker, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let handle = client.attach::<Number>(row.id());
    assert!(handle.cancel().await.expect("an answer"));
    assert_eq!(database.rows().await, 0);
    assert!(handle.await.is_err_and(|error| error.is_cancelled()));
}

async fn a_cancelled_task_replaces_no_other_one(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let with_key = || SpawnOptions::new().key(Key::new("k").replace());
    let holder = spawn_as(&client, 1, with_key()).await;
    let row = row(&maker, 2, with_key());
    database.run(&[add(&row)]).await;
    let handle = client.attach::<Number>(row.id());
    assert!(handle.cancel().await.expect("an answer"));
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(holder.await.expect("it succeeds"), 1);
    assert!(handle.await.is_err_and(|error| error.is_cancelled()));
}

async fn the_task_that_was_joined_is_cancelled(database: Database) {
    let client = database.client().await;
    let with_key = || SpawnOptions::new().key(Key::new("k"));
    let holder = spawn_as(&client, 1, with_key()).await;
    let row = row(&client, 2, with_key());
    database.run(&[add(&row)]).await;
    let handle = client.committed(row);
    until_moved(&database).await;
    assert!(handle.cancel().await.expect("an answer"));
    assert!(holder.await.is_err_and(|error| error.is_cancelled()));
    assert!(!handle.cancel().await.expect("an answer"));
}

async fn a_task_whose_id_has_expired_can_be_cancelled(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let options = || SpawnOptions::new().id(id(9));
    let expired = options().retention(Duration::from_millis(1));
    let first = spawn_as(&client, 1, expired).await;
    assert!(first.cancel().await.expect("an answer"));
    while first.status().await.expect("an answer") != Status::Absent {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    database.run(&[add(&row(&maker, 2, options()))]).await;
    assert_eq!(first.status().await.expect("an answer"), Status::Waiting);
    assert!(first.cancel().await.expect("an answer"));
    assert_eq!(database.rows().await, 0);
}

/// A request that waits for a process that moves the task finds it in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_moved_meanwhile_can_be_signalled_in_postgres() {
    if !crate::postgres_server::is_installed() {
        return;
    }
    let database = Database::server().await;
    let (_other, maker) = maker().await;
    let (mover, signaller) = (database.client().await, database.client().await);
    // Both are connected.
    for client in [&mover, &signaller] {
        assert_eq!(client.counts().await.expect("an answer").stored, 0);
    }
    let row = row(&maker, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let db = database.connect().await;
    db.batch_execute("BEGIN; LOCK TABLE task IN SHARE MODE")
        .await
        .expect("it is locked");
    // The mover has removed the row, and waits before it stores the task.
    let moved = mover.committed(row.clone());
    within(wait_for_blocked(&database, 1)).await;
    let id = row.id();
    let sent = tokio::spawn(async move { signaller.signal(id, "paid", &35_u64).await });
    within(wait_for_blocked(&database, 2)).await;
    db.batch_execute("COMMIT").await.expect("it is unlocked");
    assert!(sent.await.expect("no panic").expect("it has not ended"));
    assert_eq!(moved.status().await.expect("an answer"), Status::Waiting);
}

/// Waits until this number of requests to the outbox or the tasks of a schema wait for others.
async fn wait_for_blocked(database: &Database, count: i64) {
    let db = database.connect().await;
    let blocked = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%' || current_schema || '%'";
    while db
        .query_one(blocked, &[])
        .await
        .expect("a number")
        .get::<_, i64>(0)
        < count
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
