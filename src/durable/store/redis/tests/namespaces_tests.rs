//! The list of the namespaces of a server.

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

#[tokio::test]
async fn an_address_without_a_server_has_no_namespaces() {
    let mut builder = RedisStore::builder("nonsense");
    assert!(builder.namespaces().await.unwrap_err().is_invalid());
    builder.namespace("a".repeat(1_000));
    assert!(builder.namespaces().await.unwrap_err().is_invalid());
}
