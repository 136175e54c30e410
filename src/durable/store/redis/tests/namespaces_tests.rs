//! The list of the namespaces of a server.

use redis::Value;

use super::*;

async fn namespaces(server: &Server) -> Vec<String> {
    let listed = RedisStore::builder(&server.url()).namespaces().await;
    listed.unwrap()
}

async fn open_in(server: &Server, namespace: &str) -> RedisStore {
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace(namespace).open().await.unwrap()
}

#[tokio::test]
async fn namespaces_with_a_store_are_listed() {
    needs_redis!();
    let server = Server::start();
    assert_eq!(namespaces(&server).await, [""; 0]);
    assert_eq!(server.contents(""), []);
    for namespace in ["mail", "default", "mail", "images"] {
        drop(open_in(&server, namespace).await);
    }
    assert_eq!(namespaces(&server).await, ["default", "images", "mail"]);
    // The keys of a store are deleted.
    server.ask(&["DEL", "throng:{mail:0}:meta"]);
    assert_eq!(namespaces(&server).await, ["default", "images"]);
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace("mali").observe().await.unwrap_err();
    assert_eq!(namespaces(&server).await, ["default", "images"]);
}

/// The set is only a directory, so a store opens without it, and the next client writes it again.
#[tokio::test]
async fn a_store_opens_if_its_namespace_cannot_be_recorded() {
    needs_redis!();
    let server = Server::start();
    server.ask(&["SET", "throng:namespaces", "a text"]);
    drop(open_in(&server, "mail").await);
    let listed = RedisStore::builder(&server.url()).namespaces().await;
    assert!(listed.is_err());
    server.ask(&["DEL", "throng:namespaces"]);
    assert_eq!(namespaces(&server).await, [""; 0]);
    drop(open_in(&server, "mail").await);
    assert_eq!(namespaces(&server).await, ["mail"]);
}

/// In a cluster, the node that has the set may be down. No other node serves its slot then.
#[tokio::test]
async fn a_store_opens_at_once_if_nobody_has_the_list_of_namespaces() {
    needs_redis!();
    let server = Server::with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
    ]);
    let Value::Int(slot) = server.ask(&["CLUSTER", "KEYSLOT", "throng:namespaces"]) else {
        panic!("a slot is a number");
    };
    let slots = (0..16_384)
        .filter(|it| *it != slot)
        .map(|it| it.to_string());
    let slots: Vec<_> = slots.collect();
    let slots = slots.iter().map(|slot| &**slot);
    let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
    server.ask(&command);
    let mut builder = RedisStore::builder(&server.url());
    // The store waits until the node is ready.
    let opened = builder.answer_timeout(Duration::from_secs(600)).open();
    timeout(DEADLINE, opened).await.expect("it opens").unwrap();
}

#[tokio::test]
async fn an_address_without_a_server_has_no_namespaces() {
    let mut builder = RedisStore::builder("nonsense");
    assert!(builder.namespaces().await.unwrap_err().is_invalid());
    builder.namespace("a".repeat(1_000));
    assert!(builder.namespaces().await.unwrap_err().is_invalid());
}
