//! Observers of a store in Redis: what they may do, and what they leave.

use super::overview_tests::report;
use super::workers_tests::carded;
use super::*;
use crate::durable::store::Store;
use crate::durable::store::suite::look;

async fn observe(url: &str) -> Store {
    RedisStore::observe(url).await.unwrap()
}

/// Stores tasks of most statuses, a card and statistics.
async fn fill(url: &str) -> Worker {
    let worker = Worker::new(open(url).await).await;
    worker.enqueue((1..5).map(task)).await;
    let claim = worker.claim(2).await;
    worker.turn(dead(&claim, DeadReason::Fatal, "e"), 1).await;
    worker.store.open_session_with(carded("q")).await.unwrap();
    worker.store.record_stats(report(1, 1)).await.unwrap();
    worker
}

#[tokio::test]
async fn a_namespace_without_a_store_stays_empty() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    let error = builder.namespace("mali").observe().await.unwrap_err();
    assert!(error.is_invalid() && !error.is_unknown(), "{error}");
    for expected in ["(mali)", "no store in this namespace", "`open`"] {
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(server.contents(""), []);
}

#[tokio::test]
async fn an_observer_must_know_the_number_of_partitions() {
    needs_redis!();
    let server = Server::start();
    let mut builder = RedisStore::builder(&server.url());
    drop(builder.partitions(3).open().await.unwrap());
    let error = RedisStore::observe(&server.url()).await.unwrap_err();
    assert!(error.is_unfit(), "{error}");
    assert!(error.to_string().contains("`partitions(3)`"), "{error}");
    builder.observe().await.unwrap();
}

#[tokio::test]
async fn a_store_of_another_layout_is_not_observed() {
    needs_redis!();
    let server = Server::start();
    drop(open(&server.url()).await);
    let layout = |number| server.ask(&["HSET", "throng:{default:0}:meta", "layout", number]);
    layout("99");
    let error = RedisStore::observe(&server.url()).await.unwrap_err();
    assert!(error.is_newer_layout(), "{error}");
    layout("1");
    let error = RedisStore::observe(&server.url()).await.unwrap_err();
    assert!(error.is_older_layout(), "{error}");
}

/// The permissions in the documentation of observers.
fn documented() -> Vec<&'static str> {
    let source = include_str!("../../redis.rs");
    let (_, after) = source.split_once("/// ACL SETUSER viewer").unwrap();
    let (command, _) = after.split_once("/// ```").unwrap();
    let words = command.split_whitespace();
    words.filter(|word| *word != "///").collect()
}

#[tokio::test]
async fn an_observer_needs_no_permission_to_write() {
    needs_redis!();
    let server = Server::start();
    let worker = fill(&server.url()).await;
    server.ask(&[&["ACL", "SETUSER", "viewer", "reset"], &documented()[..]].concat());
    let url = format!("redis://viewer:password@127.0.0.1:{}/", server.port());
    let error = RedisStore::open(&url).await.unwrap_err();
    assert!(error.is_denied(), "{error}");
    let before = server.contents("");
    let observer = observe(&url).await;
    look(&observer).await;
    assert_eq!(observer.0.probe().await.unwrap(), Durability::Memory);
    assert!(server.contents("") == before);
    drop(worker);
}

/// Redis 6.2 has no `EVAL_RO`.
#[tokio::test]
async fn a_server_that_cannot_refuse_writes_is_observed() {
    needs_redis!();
    let server = Server::start();
    let worker = fill(&server.url()).await;
    let rights = ["on", ">password", "~*", "+@all", "-eval_ro", "-evalsha_ro"];
    server.ask(&[&["ACL", "SETUSER", "viewer", "reset"], &rights[..]].concat());
    let before = server.contents("");
    let url = format!("redis://viewer:password@127.0.0.1:{}/", server.port());
    look(&observe(&url).await).await;
    assert!(server.contents("") == before);
    drop(worker);
}

#[tokio::test]
async fn a_replica_is_observed() {
    needs_redis!();
    let (primary, replica) = (Server::start(), Server::start());
    let worker = fill(&primary.url()).await;
    replica.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let info = || format!("{:?}", replica.ask(&["INFO", "replication"]));
    while !info().contains("master_link_status:up") {
        sleep(Duration::from_millis(2)).await;
    }
    let observer = observe(&replica.url()).await;
    look(&observer).await;
    assert_eq!(observer.0.counts().await.unwrap().dead, 2);
    let server = observer.0.diagnose().await.unwrap().server;
    assert!(
        server.iter().any(|it| it.id == "redis.replica"),
        "{server:?}"
    );
    drop(worker);
}

#[tokio::test]
async fn nobody_notices_an_observer() {
    needs_redis!();
    let server = Server::start();
    let worker = fill(&server.url()).await;
    let channels = || format!("{:?}", server.ask(&["PUBSUB", "CHANNELS"]));
    let before = channels();
    let observer = observe(&server.url()).await;
    look(&observer).await;
    assert_eq!(channels(), before);
    assert_eq!(observer.0.health(), crate::durable::Health::Well);
    drop(worker);
}

/// Returns the number of connections so far.
fn connections(server: &ServerConnection) -> redis::Value {
    server.ask(&[
        "EVAL",
        "return redis.call('INFO', 'stats'):match('total_connections_received:%d+')",
        "0",
    ])
}

#[tokio::test]
async fn an_observer_keeps_its_connection() {
    needs_redis!();
    let server = Server::start();
    let worker = fill(&server.url()).await;
    let watch = ServerConnection::to(&server);
    let observer = observe(&server.url()).await;
    let before = connections(&watch);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        observer.0.counts().await.unwrap();
        assert_eq!(connections(&watch), before);
        sleep(Duration::from_millis(20)).await;
    }
    drop(worker);
}
