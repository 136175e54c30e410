//! Detection of workers that are gone.

use super::super::time::Time;
use super::*;
use crate::durable::clock::Clock;

const MINUTE: Duration = Duration::from_secs(60);

async fn open_as(url: &str, clock: &Clock) -> Arc<RedisStore> {
    let builder = RedisStore::builder(url);
    let opened = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
    Arc::new(opened.unwrap())
}

/// The declared sets, 8 bytes each.
fn sets(server: &Server) -> redis::Value {
    server.ask(&["HGET", "throng:{default:0}:routes", "sets"])
}

#[tokio::test]
async fn a_killed_worker_counts_as_gone_after_three_minutes() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let other = open_as(&server.url(), &clock).await;
    let worker = Worker::of(&open_as(&server.url(), &clock).await).await;
    worker.enqueue([task(1), task(2)]).await;
    let unserved = async || other.counts().await.unwrap().unserved;
    // The worker is subscribed, so it counts as alive however long it is silent.
    clock.advance(10 * MINUTE);
    assert_eq!(unserved().await, 0);
    worker.turn(Vec::new(), 0).await;
    let channel = format!("throng:{{default:0}}:client:{}", worker.store.client_id());
    drop(worker);
    let start = Instant::now();
    while server.ask(&["PUBSUB", "NUMSUB", &channel]) != none_of(&channel) {
        assert!(start.elapsed() < DEADLINE, "its connections stay");
        tokio::task::yield_now().await;
    }
    clock.advance(3 * MINUTE - Duration::from_millis(1));
    assert_eq!(unserved().await, 0);
    other.maintain(100).await.unwrap();
    assert_ne!(sets(&server), redis::Value::BulkString(Vec::new()));
    clock.advance(Duration::from_millis(1));
    assert_eq!(unserved().await, 2);
    other.maintain(100).await.unwrap();
    assert_eq!(sets(&server), redis::Value::BulkString(Vec::new()));
    assert_eq!(unserved().await, 2);
}

fn none_of(channel: &str) -> redis::Value {
    let channel = redis::Value::BulkString(channel.into());
    redis::Value::Array(vec![channel, redis::Value::Int(0)])
}

/// The process receives no messages, so only its requests show that it is alive.
#[tokio::test]
async fn a_worker_without_messages_is_alive_while_it_sends_requests() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let rights = ["on", ">password", "~throng:*", "resetchannels", "+@all"];
    server.ask(&[&["ACL", "SETUSER", "worker", "reset"], &rights[..]].concat());
    let url = format!("redis://worker:password@127.0.0.1:{}/", server.port());
    let other = open_as(&server.url(), &clock).await;
    let mute = open_as(&url, &clock).await;
    let worker = Worker::of(&mute).await;
    // A turn of a session that was removed fails.
    for _ in 0..10 {
        clock.advance(MINUTE - Duration::from_secs(1));
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
        while other.maintain(100).await.unwrap() {}
    }
    // While all its permits are taken, the worker only renews its claims.
    worker.enqueue([task(1)]).await;
    let claim = worker.claim(1).await;
    for _ in 0..100 {
        clock.advance(LEASE / 2);
        let beaten = mute.renew(vec![claim.epoch]).await.unwrap();
        assert!(beaten.lost.is_empty(), "{beaten:?}");
        while other.maintain(100).await.unwrap() {}
    }
    assert_eq!(worker.turn(done(&claim), 1).await.refused, []);
}
