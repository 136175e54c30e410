//! Health of a client whose store answers but fails requests.

#[cfg(any(feature = "redis", feature = "sqlite"))]
use std::time::SystemTime;

#[cfg(any(feature = "redis", feature = "sqlite"))]
use throng::durable::{DurableClient, Health};

#[cfg(any(feature = "redis", feature = "sqlite"))]
use crate::harness::{Number, until};

/// Requests have been failing since `before` at the earliest and say `error`; so does the health.
#[cfg(any(feature = "redis", feature = "sqlite"))]
async fn fails(client: &DurableClient, before: SystemTime, error: &str) {
    for count in 1..=3 {
        client.spawn(Number(1)).await.unwrap_err();
        let Health::Failing {
            since,
            error: found,
            failures,
            ..
        } = client.health()
        else {
            panic!("{:?}", client.health());
        };
        assert!(since >= before, "{since:?} {before:?}");
        assert!(found.contains(error), "{found}");
        assert!(failures >= count, "{failures} {found}");
    }
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
async fn is_well(client: &DurableClient) {
    _ = client.spawn(Number(1)).await.unwrap();
    until("it is well", || client.health() == Health::Well).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_that_was_moved_is_named_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (
        folder.path().join("tasks.db"),
        folder.path().join("away.db"),
    );
    let store = throng::durable::SqliteStore::open(&path).await.unwrap();
    let client = DurableClient::open(store);
    is_well(&client).await;
    let before = SystemTime::now();
    std::fs::rename(&path, &away).unwrap();
    fails(&client, before, "removed or replaced").await;
    std::fs::rename(&away, &path).unwrap();
    is_well(&client).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_right_that_was_withdrawn_is_named_until_it_is_back() {
    needs_redis!();
    let server = crate::redis_server::Server::start();
    server.ask(&[
        "ACL", "SETUSER", "web", "reset", "on", ">secret", "~*", "&*", "+@all",
    ]);
    let url = format!("redis://web:secret@127.0.0.1:{}", server.port());
    let store = throng::durable::RedisStore::open(&url).await.unwrap();
    let client = DurableClient::open(store);
    is_well(&client).await;
    let before = SystemTime::now();
    server.ask(&["ACL", "SETUSER", "web", "-evalsha"]);
    fails(&client, before, "evalsha").await;
    server.ask(&["ACL", "SETUSER", "web", "+evalsha"]);
    is_well(&client).await;
}

/// A server that is not there is not said to fail.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_server_that_is_gone_is_unreachable_and_then_well() {
    needs_redis!();
    let mut server = crate::redis_server::Server::start();
    let mut builder =
        throng::durable::RedisStore::builder(&format!("redis://127.0.0.1:{}", server.port()));
    builder.answer_timeout(std::time::Duration::from_secs(2));
    let client = DurableClient::open(builder.open().await.unwrap());
    is_well(&client).await;
    server.kill();
    client.counts().await.unwrap_err();
    until("it is unreachable", || {
        matches!(client.health(), Health::Unreachable(_))
    })
    .await;
    server.run();
    until("it is well", || client.health() == Health::Well).await;
}
