//! The health of a store, and the report on its server.

use super::*;
use crate::durable::{DurableClient, FindingLevel, Health};

/// Waits for a health of the store.
async fn until_health(store: &RedisStore, is_so: impl Fn(&Health) -> bool) {
    let come = async {
        while !is_so(&store.health()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let health = || store.health();
    timeout(2 * DEADLINE, come)
        .await
        .unwrap_or_else(|_| panic!("it stays {:?}", health()));
}

/// The idle connection detects the end of the server. Without it, only the next ping would.
#[tokio::test]
async fn a_store_reports_whether_its_server_is_reachable() {
    needs_redis!();
    let mut server = Server::start();
    let mut builder = RedisStore::builder(&format!("redis://127.0.0.1:{}/", server.port()));
    builder.timeouts.ping_interval = Duration::from_secs(3600);
    let store = builder.open().await.unwrap();
    until_health(&store, |health| *health == Health::Well).await;
    server.kill();
    until_health(&store, |health| matches!(health, Health::Unreachable(_))).await;
    server.run();
    until_health(&store, |health| *health == Health::Well).await;
}

/// The connections stay open, and nothing arrives.
#[tokio::test]
async fn a_stopped_server_is_detected() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = open_hurried(&proxy.url()).await;
    until_health(&store, |health| *health == Health::Well).await;
    proxy.mute();
    let answer = store.counts().await;
    assert_eq!(answer.expect_err("nothing comes").cause, Cause::Unavailable);
    // The connection was closed. A new one is opened when the server answers again.
    settled(|| store.counts()).await.unwrap();
    until_health(&store, |health| *health == Health::Well).await;
}

/// Returns the health of a client whose store fails.
#[track_caller]
pub(super) fn failing(client: &DurableClient) -> String {
    match client.health() {
        Health::Failing { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

async fn until_well(client: &DurableClient) {
    client.counts().await.unwrap();
    let well = async {
        while client.health() != Health::Well {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, well).await.expect("it is well");
}

/// The server can be reached, but scripts fail.
#[tokio::test]
async fn a_server_on_which_scripts_fail_is_failing() {
    needs_redis!();
    let server = Server::start();
    let rights = ["reset", "on", ">secret", "~*", "&*", "+@all"];
    server.ask(&[&["ACL", "SETUSER", "web"], &rights[..]].concat());
    let store = open(&format!("redis://web:secret@127.0.0.1:{}", server.port())).await;
    let client = DurableClient::open(store);
    until_well(&client).await;
    // A permission that a script needs.
    server.ask(&["ACL", "SETUSER", "web", "-hlen"]);
    let error = client.counts().await.unwrap_err();
    assert!(error.is_denied(), "{error}");
    assert!(
        failing(&client).contains("permissions"),
        "{}",
        failing(&client)
    );
    server.ask(&["ACL", "SETUSER", "web", "+hlen"]);
    until_well(&client).await;
    // A key of another type, at which a script fails.
    server.ask(&["SET", "throng:{default:0}:alive", "text"]);
    let error = client.counts().await.unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    assert!(
        failing(&client).contains("WRONGTYPE"),
        "{}",
        failing(&client)
    );
    server.ask(&["DEL", "throng:{default:0}:alive"]);
    until_well(&client).await;
}

#[tokio::test]
async fn a_store_without_messages_is_mute() {
    needs_redis!();
    let server = Server::start();
    for rights in ["-subscribe", "-publish"] {
        server.ask(&[
            "ACL", "SETUSER", "web", "reset", "on", ">secret", "~*", "&*", "+@all", rights,
        ]);
        let store = open(&format!("redis://web:secret@127.0.0.1:{}", server.port())).await;
        assert_eq!(store.health(), Health::Mute, "{rights}");
        assert!(!store.report().await.unwrap().is_subscribed);
        server.ask(&["ACL", "SETUSER", "web", "+@all"]);
        until_health(&store, |health| *health == Health::Well).await;
        assert!(store.report().await.unwrap().is_subscribed);
    }
}

#[tokio::test]
async fn a_report_describes_the_server() {
    needs_redis!();
    let server = Server::with(&["--appendonly", "yes", "--maxmemory-policy", "volatile-lru"]);
    let store = open(&server.url()).await;
    until_health(&store, |health| *health == Health::Well).await;
    let report = store.report().await.unwrap();
    assert_eq!(report.durability, Durability::Buffered);
    assert_eq!(report.is_primary, Some(true));
    assert_eq!(report.append_only, Some(true));
    assert_eq!(report.append_fsync.as_deref(), Some("everysec"));
    assert_eq!(report.eviction.as_deref(), Some("volatile-lru"));
    assert!(
        report.version.is_some() && report.is_subscribed,
        "{report:?}"
    );
    let text = report.to_string();
    assert!(
        text.contains("Buffered") && text.contains("volatile-lru"),
        "{text}"
    );
    let found = findings(&store).await;
    assert_eq!(found, [("redis.durability", FindingLevel::Info)]);
}

async fn findings(store: &RedisStore) -> Vec<(&'static str, FindingLevel)> {
    let diagnoses = store.diagnose().await.unwrap();
    let findings = diagnoses.server.iter();
    findings.map(|it| (it.id, it.level)).collect()
}

#[tokio::test]
async fn a_report_says_what_is_wrong_with_the_server() {
    needs_redis!();
    let server = Server::start();
    let store = open(&server.url()).await;
    until_health(&store, |health| *health == Health::Well).await;
    let in_memory = ("redis.durability", FindingLevel::Warn);
    assert_eq!(findings(&store).await, [in_memory]);
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let evicts = ("redis.eviction", FindingLevel::Error);
    assert_eq!(findings(&store).await, [in_memory, evicts]);
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    server.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    assert_eq!(findings(&store).await, []);
    server.ask(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    assert_eq!(
        findings(&store).await,
        [("redis.durability", FindingLevel::Info)]
    );
    server.ask(&[
        "ACL",
        "SETUSER",
        "default",
        "-info",
        "-config",
        "-publish",
        "-subscribe",
    ]);
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    until_health(&store, |health| *health == Health::Mute).await;
    assert_eq!(
        findings(&store).await,
        [
            ("redis.settings", FindingLevel::Info),
            ("redis.messages", FindingLevel::Warn)
        ]
    );
}

/// Redis can wait until a write is on its disk since 7.2.
#[tokio::test]
async fn a_store_that_waits_for_the_disk_refuses_a_server_that_cannot() {
    needs_redis!();
    let server = Server::with(&["--appendonly", "yes"]);
    let url = server.url();
    let mut builder = RedisStore::builder(&url);
    builder.wait_for_disk(true);
    let can_say = server.try_ask(&["WAITAOF", "0", "0", "1"]).is_some();
    match builder.open().await {
        Ok(store) => {
            assert!(can_say);
            assert_eq!(store.probe().await.unwrap(), Durability::Synced);
            let worker = Worker::new(store).await;
            worker.enqueue([task(1)]).await;
            assert_eq!(worker.claim(1).await.tasks.len(), 1);
        }
        Err(error) => assert!(!can_say && error.is_unfit(), "{error}"),
    }
    server.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    let store = builder.open().await.expect("now it is always so");
    assert_eq!(store.probe().await.unwrap(), Durability::Synced);
    Worker::new(store).await.enqueue([task(2)]).await;
    server.ask(&["CONFIG", "SET", "appendonly", "no"]);
    let error = builder.open().await.expect_err("nothing is written");
    assert!(
        error.is_unfit() && error.to_string().contains("appendonly"),
        "{error}"
    );
}
