//! Nodes of a cluster: the node at which a store is opened, and requests while its cluster slot moves.

use redis::Value;

use super::cluster::{Cluster, PRIMARIES, text};
use super::health_tests::failing;
use super::*;
use crate::durable::DurableClient;
use crate::durable::store::Store;
use crate::durable::store::redis::keys;

const BASE: &str = "throng:{default:0}:";

fn slot(cluster: &Cluster) -> u64 {
    cluster.slot(BASE)
}

/// Returns the node that owns the slot of a store with the default name, and another node.
fn owner_and_other(cluster: &Cluster) -> (usize, usize) {
    let owner = cluster.owner(BASE);
    (owner, (owner + 1) % PRIMARIES)
}

/// Returns the values of the store's keys, on whichever node they are.
fn content(cluster: &Cluster) -> Vec<Vec<String>> {
    let read = |node: &Server, key: &str| {
        let kind = text(node.try_ask(&["TYPE", key]).unwrap_or(Value::Nil));
        let answer = match &*kind {
            "hash" => node.try_ask(&["HGETALL", key]),
            "list" => node.try_ask(&["LRANGE", key, "0", "-1"]),
            "set" => node.try_ask(&["SMEMBERS", key]),
            "zset" => node.try_ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            _ => None,
        };
        format!("{answer:?}")
    };
    let contents = (0..PRIMARIES).map(|node| {
        let keys = keys::ALL.iter().map(|name| keys::key(BASE, name));
        keys.map(|key| read(cluster.node(node), &key)).collect()
    });
    contents.collect()
}

/// Fills the missing keys of a store, except for the one that never exists, with rows that have no meaning for years.
fn fill(node: &Server) {
    let (nothing, row, never) = ("~".repeat(16), "0".repeat(80), "99999999999999");
    for name in &keys::ALL[1..] {
        let key = keys::key(BASE, name);
        if node.ask(&["EXISTS", &key]) == Value::Int(1) {
            continue;
        }
        match *name {
            "DUE" | "LEASE" | "EXPIRY" | "DIED" | "AWAITING" | "IDLE" => {
                node.ask(&["ZADD", &key, never, &nothing])
            }
            "QUARANTINED" => node.ask(&["SADD", &key, &nothing]),
            "READY" => node.ask(&["RPUSH", &key, &row]),
            _ => node.ask(&["HSET", &key, &nothing, &row]),
        };
    }
}

#[tokio::test]
async fn a_store_is_opened_at_the_node_that_owns_its_slot() {
    needs_redis!();
    let cluster = Cluster::start();
    let (owner, other) = owner_and_other(&cluster);
    let worker = Worker::new(open(&cluster.url(owner)).await).await;
    worker.enqueue([task(1)]).await;
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
    let error = RedisStore::open(&cluster.url(other)).await.unwrap_err();
    assert!(error.is_unfit() && !error.is_unknown(), "{error}");
    let address = format!("127.0.0.1:{}", cluster.node(owner).port());
    assert!(error.to_string().contains(&address), "{error}");
    // A cluster node has one database.
    let error = RedisStore::open(&format!("{}1", cluster.url(owner)))
        .await
        .unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("database 0"),
        "{error}"
    );
    // With this many partitions, each node lacks some.
    for node in 0..3 {
        let mut builder = RedisStore::builder(&cluster.url(node));
        let error = builder.partitions(64).open().await.unwrap_err();
        assert!(error.is_unfit(), "{error}");
    }
}

/// The server refuses a request, which has no effect. On a slow machine, it may not answer in time.
async fn is_refused<T: std::fmt::Debug>(send: impl AsyncFn() -> Result<T, Failure>) {
    let end = Instant::now() + DEADLINE;
    loop {
        match send().await {
            Err(failure) if !failure.by_store => assert!(Instant::now() < end, "{failure}"),
            answer => return assert_fails(answer, &Cause::Unavailable, Effect::None),
        }
    }
}

/// Sends all requests that change something, and some that do not. None of them has an effect.
async fn assert_all_wait(worker: &Worker, claim: &Claim) {
    let store = &worker.store;
    tokio::join!(
        is_refused(async || store.enqueue(worker.new_enqueue([task(7)])).await),
        is_refused(async || store.turn(worker.new_turn(Vec::new(), 9)).await),
        is_refused(async || store.turn(worker.new_turn(done(claim), 9)).await),
        is_refused(async || store.renew(vec![claim.epoch]).await),
        is_refused(async || store.status(vec![id(1)]).await),
        is_refused(async || store.cancel(vec![id(1), id(2)]).await),
        is_refused(async || store.dead_letters(DeadFilter::all(), 9).await),
        is_refused(async || store.dead_letter_payload(id(1)).await),
        is_refused(async || store.replay_dead_letters(DeadFilter::ids([id(1)])).await),
        is_refused(async || store.delete_dead_letters(DeadFilter::ids([id(1)])).await),
        is_refused(async || store.maintain(10).await),
        is_refused(async || store.counts().await),
        is_refused(async || store.open_session(None).await),
        is_refused(async || store.close_session(worker.session).await),
    );
}

/// All keys of the store exist, so that the node could begin to run a script.
#[tokio::test]
async fn a_slot_that_moves_stops_no_script_half_way() {
    needs_redis!();
    let cluster = Cluster::start();
    let (from, to) = owner_and_other(&cluster);
    let worker = Worker::new(open_hurried(&cluster.url(from)).await).await;
    worker.enqueue([task(1), task(2)]).await;
    let claim = worker.claim(1).await;
    fill(cluster.node(from));
    let before = content(&cluster);
    cluster.begin_move(slot(&cluster), from, to);
    assert_all_wait(&worker, &claim).await;
    assert_eq!(content(&cluster), before);
    cluster.move_keys(slot(&cluster), from, to, 10);
    let halves = content(&cluster);
    assert_all_wait(&worker, &claim).await;
    assert_eq!(content(&cluster), halves);
    cluster.move_keys(slot(&cluster), from, to, 100);
    cluster.end_move(slot(&cluster), to);
    // From here on, the old node names the new one.
    let failure = settled(|| worker.store.counts()).await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Unfit(_)), "{failure}");
    let address = format!("127.0.0.1:{}", cluster.node(to).port());
    assert!(failure.to_string().contains(&address), "{failure}");
    let client = DurableClient::open(Store(Arc::clone(&worker.store) as Arc<dyn Backend>));
    let error = client.counts().await.unwrap_err();
    assert!(error.is_unfit(), "{error}");
    assert!(failing(&client).contains(&address), "{}", failing(&client));
    let there = Worker::new(open(&cluster.url(to)).await).await;
    assert_eq!(there.turn(done(&claim), 0).await.refused, []);
    assert_eq!(there.claim(1).await.tasks[0].id, id(2));
    let counts = there.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done, counts.claimed), (2, 1, 2));
}
