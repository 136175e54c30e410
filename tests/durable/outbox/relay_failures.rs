//! Stores and databases that fail, are full or are locked while a relay moves rows.

use std::time::Duration;

use rustix::process::Signal;
use throng::durable::{DurableClient, OutboxRelay, OutboxRow, RedisStore, SpawnOptions};
use tokio::time::timeout;

use super::super::database::{add, connect_to};
use super::{AppDatabase, TestStore, maker, row, until_moved};
use crate::harness::{Number, in_time};
use crate::postgres_server::is_installed;
use crate::redis_server::Server as Redis;

on_app_databases! {
    rows_stay_while_the_store_is_full,
    rows_stay_while_the_store_is_down,
    a_relay_finds_an_outbox_that_was_created_again,
}

pub(super) async fn client_of(redis: &Redis) -> DurableClient {
    let mut builder = RedisStore::builder(&redis.url());
    builder.answer_timeout(Duration::from_secs(1));
    DurableClient::open(builder.open().await.expect("the server can be reached"))
}

/// The row is not moved in this time.
pub(super) async fn assert_not_moved(relay: &OutboxRelay, row: &OutboxRow<Number>) {
    let moved = timeout(Duration::from_millis(500), relay.committed(row.clone())).await;
    assert!(moved.is_err(), "its row has left the outbox");
}

async fn rows_stay_while_the_store_is_full(database: AppDatabase) {
    let redis = Redis::start();
    let client = client_of(&redis).await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    database.run(&[add(&row)]).await;
    assert_not_moved(&relay, &row).await;
    relay.close().await;
    assert_eq!(database.rows().await, 1);
    let relay = database.relay(&client).await;
    assert_not_moved(&relay, &row).await;
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    relay.committed(row).await.expect("it is moved");
    assert_eq!(database.rows().await, 0);
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn rows_stay_while_the_store_is_down(database: AppDatabase) {
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let client = client_of(&redis).await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    redis.kill();
    database.run(&[add(&row)]).await;
    assert_not_moved(&relay, &row).await;
    assert_eq!(database.rows().await, 1);
    redis.run();
    relay.committed(row).await.expect("it is moved");
    assert_eq!(database.rows().await, 0);
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn a_relay_finds_an_outbox_that_was_created_again(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let [first, second] = [1, 2].map(|number| row(&relay, number, SpawnOptions::new()));
    database.run(&[add(&first)]).await;
    relay.committed(first).await.expect("it is moved");
    database.drop_outbox().await;
    // It cannot say that a row has left a table that does not exist.
    assert_not_moved(&relay, &second).await;
    database.create_outbox().await;
    database.run(&[add(&second)]).await;
    relay.committed(second).await.expect("it is moved");
    assert_eq!(client.counts().await.expect("an answer").stored, 2);
}

/// The user of the file does not wait for a store that does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_can_be_written_while_the_store_hangs() {
    needs_redis!();
    let redis = Redis::start();
    let client = client_of(&redis).await;
    let database = AppDatabase::file().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    redis.signal(Signal::STOP);
    database.run(&[add(&row)]).await;
    let db = database.open();
    db.busy_timeout(Duration::ZERO).expect("a timeout");
    for order in 0..20 {
        assert_not_moved_yet(&relay, &row).await;
        db.execute("INSERT INTO orders VALUES (?1)", [order])
            .expect("the file is not locked");
    }
    redis.signal(Signal::CONT);
    in_time(async { drop(relay.committed(row).await.expect("it is moved")) }).await;
}

async fn assert_not_moved_yet(relay: &OutboxRelay, row: &OutboxRow<Number>) {
    let moved = timeout(Duration::from_millis(30), relay.committed(row.clone())).await;
    assert!(moved.is_err(), "its row has left the outbox");
}

/// The relay waits for five seconds, and then tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_outlives_the_lock_of_a_file() {
    needs_redis!();
    let database = AppDatabase::file().await;
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let db = database.open();
    db.execute_batch("BEGIN IMMEDIATE").expect("it begins");
    let moved = timeout(Duration::from_secs(6), relay.committed(row.clone())).await;
    assert!(moved.is_err(), "its row has left the outbox");
    db.execute_batch("COMMIT").expect("it is committed");
    in_time(async { drop(relay.committed(row).await.expect("it is moved")) }).await;
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

/// The relay finds the file that was put in the place of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_finds_a_file_that_was_replaced() {
    needs_redis!();
    let (database, other) = (AppDatabase::file().await, AppDatabase::file().await);
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    other.run(&[add(&row)]).await;
    std::fs::rename(other.path(), database.path()).expect("it is replaced");
    in_time(until_moved(&database)).await;
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_connects_again_if_postgresql_was_restarted() {
    needs_redis!();
    if !is_installed() {
        return;
    }
    let database = AppDatabase::server().await;
    let AppDatabase::Server(server) = &database else {
        unreachable!("it has a server")
    };
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    for number in 0..3 {
        let row = row(&relay, number, SpawnOptions::new());
        database.run(&[add(&row)]).await;
        in_time(async { drop(relay.committed(row.clone()).await.expect("it is moved")) }).await;
        server.crash();
        assert_not_moved(&relay, &row).await;
        server.restart();
    }
    assert_eq!(client.counts().await.expect("an answer").stored, 3);
}

/// Another relay may have taken it, or a user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_in_postgresql_does_not_block_others() {
    needs_redis!();
    if !is_installed() {
        return;
    }
    let database = AppDatabase::shared().await;
    let store = TestStore::server();
    let client = store.client().await;
    let (_other, maker) = maker(&client).await;
    let [locked, free] = [1, 2].map(|number| row(&maker, number, SpawnOptions::new()));
    database.run(&[add(&locked), add(&free)]).await;
    let mut db = connect_to(&database.url()).await;
    let tx = db.transaction().await.expect("it begins");
    let lock = "SELECT FROM throng.outbox WHERE id = $1 FOR UPDATE";
    let found = tx.execute(lock, &[&locked.id_bytes()]).await;
    assert_eq!(found.expect("it is locked"), 1);
    in_time(async {
        let relay = database.relay(&client).await;
        relay.committed(free).await.expect("it is moved");
        assert_not_moved(&relay, &locked).await;
        tx.rollback().await.expect("it is rolled back");
        relay.committed(locked).await.expect("it is moved");
    })
    .await;
    assert_eq!(client.counts().await.expect("an answer").stored, 2);
}
