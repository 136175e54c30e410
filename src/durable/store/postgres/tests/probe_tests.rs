//! The durability of a server's writes, which depends on its settings and on those of the user.

use super::needs_postgres;
use super::scene::*;
use super::server::Server;
use crate::durable::Durability;
use crate::durable::store::Backend;

#[tokio::test]
async fn a_server_that_does_not_wait_for_its_disk_loses_nothing_when_a_process_dies() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let found = caller.store.probe().await.unwrap();
    assert_eq!(found, Durability::Process);
}

#[tokio::test]
async fn a_server_with_the_default_settings_survives_a_power_failure() {
    needs_postgres!();
    let settings = ["fsync=on", "full_page_writes=on"];
    let server = Server::start_with(&settings);
    let open = async |options: &str| {
        let url = format!("{} options='{options}'", server.url());
        let store = crate::durable::PostgresStore::open(&url).await.unwrap();
        store.probe().await.unwrap()
    };
    assert_eq!(open("").await, Durability::Synced);
    let local = "-c synchronous_commit=local";
    assert_eq!(open(local).await, Durability::Synced);
    let asynchronous = "-c synchronous_commit=off";
    assert_eq!(open(asynchronous).await, Durability::Buffered);
}

#[tokio::test]
async fn a_slow_asynchronous_server_may_lose_more_than_two_seconds_of_writes() {
    needs_postgres!();
    let server = Server::start_with(&["synchronous_commit=off", "wal_writer_delay=5s"]);
    let store = crate::durable::PostgresStore::open(&server.url()).await;
    let found = store.unwrap().probe().await.unwrap();
    assert_eq!(found, Durability::Unknown);
}
