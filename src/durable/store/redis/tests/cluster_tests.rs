//! Nodes of a cluster: the node at which a store is opened, and requests while its cluster slot moves.

use redis::Value;

use super::health_tests::failing;
use super::*;
use crate::durable::DurableClient;
use crate::durable::store::Store;
use crate::durable::store::redis::keys;

/// Three servers, each of which has a third of the slots.
struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

const SLOTS: u64 = 16_384;
const BASE: &str = "throng:{default:0}:";

impl Cluster {
    async fn start() -> Self {
        let nodes: Vec<_> = (0..3)
            .map(|_| Server::with(&["--cluster-enabled", "yes", "--appendonly", "no"]))
            .collect();
        for (node, first) in nodes.iter().zip(0..) {
            let slots = (first * SLOTS / 3..(first + 1) * SLOTS / 3).map(|slot| slot.to_string());
            let slots: Vec<_> = slots.collect();
            let slots = slots.iter().map(|slot| &**slot);
            let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
            node.ask(&command);
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(first + 1).to_string()]);
        }
        for node in &nodes[1..] {
            nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
        }
        let ids = nodes
            .iter()
            .map(|node| text(node.ask(&["CLUSTER", "MYID"])));
        let ids = ids.collect();
        let cluster = Self { nodes, ids };
        cluster.until_agreed().await;
        cluster
    }

    /// Waits until each node knows the owners of all slots.
    async fn until_agreed(&self) {
        let agreed = async {
            for node in &self.nodes {
                while !text(node.ask(&["CLUSTER", "INFO"])).contains("cluster_state:ok")
                    || !is_list_of(&node.ask(&["CLUSTER", "SLOTS"]), self.nodes.len())
                {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        };
        timeout(2 * DEADLINE, agreed).await.expect("they agree");
    }

    /// Returns the node that owns the slot of a store with the default name, and another node.
    fn owner_and_other(&self) -> (usize, usize) {
        let slot: u64 = self.slot().parse().unwrap();
        let owner = (0..3).find(|nth| slot < (nth + 1) * SLOTS / 3).unwrap() as usize;
        (owner, (owner + 1) % 3)
    }

    fn slot(&self) -> String {
        match self.nodes[0].ask(&["CLUSTER", "KEYSLOT", BASE]) {
            Value::Int(slot) => slot.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn url(&self, node: usize) -> String {
        format!("redis://127.0.0.1:{}/", self.nodes[node].port())
    }

    /// Begins to move the slot.
    fn begin(&self, from: usize, to: usize) {
        let slot = self.slot();
        self.nodes[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.nodes[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves some keys, or all remaining ones.
    fn move_keys(&self, from: usize, to: usize, most: usize) {
        let (slot, most) = (self.slot(), most.to_string());
        let Value::Array(keys) = self.nodes[from].ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &most])
        else {
            panic!("keys are a list");
        };
        let port = self.nodes[to].port().to_string();
        for key in keys.into_iter().map(text) {
            self.nodes[from].ask(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        }
    }

    /// Completes the move of the slot.
    fn end(&self, to: usize) {
        let others = (0..3).filter(|&node| node != to);
        for node in [to].into_iter().chain(others) {
            let slot = self.slot();
            self.nodes[node].ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]);
        }
    }

    /// Returns the values of the store's keys, on whichever node they are.
    fn content(&self) -> Vec<Vec<String>> {
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
        let contents = self.nodes.iter().map(|node| {
            let keys = keys::ALL.iter().map(|name| keys::key(BASE, name));
            keys.map(|key| read(node, &key)).collect()
        });
        contents.collect()
    }

    /// Fills the missing keys of a store, except for the one that never exists, with rows that have no meaning
    /// for years.
    fn fill(&self, node: usize) {
        let (nothing, row, never) = ("~".repeat(16), "0".repeat(80), "99999999999999");
        for name in &keys::ALL[1..] {
            let key = keys::key(BASE, name);
            if self.nodes[node].ask(&["EXISTS", &key]) == Value::Int(1) {
                continue;
            }
            match *name {
                "DUE" | "LEASE" | "EXPIRY" | "DIED" | "AWAITING" | "IDLE" => {
                    self.nodes[node].ask(&["ZADD", &key, never, &nothing])
                }
                "QUARANTINED" => self.nodes[node].ask(&["SADD", &key, &nothing]),
                "READY" => self.nodes[node].ask(&["RPUSH", &key, &row]),
                _ => self.nodes[node].ask(&["HSET", &key, &nothing, &row]),
            };
        }
    }
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        other => format!("{other:?}"),
    }
}

fn is_list_of(value: &Value, len: usize) -> bool {
    matches!(value, Value::Array(list) if list.len() == len)
}

#[tokio::test]
async fn a_store_is_opened_at_the_node_that_owns_its_slot() {
    needs_redis!();
    let cluster = Cluster::start().await;
    let (owner, other) = cluster.owner_and_other();
    let worker = Worker::new(open(&cluster.url(owner)).await).await;
    worker.enqueue([task(1)]).await;
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
    let error = RedisStore::open(&cluster.url(other)).await.unwrap_err();
    assert!(error.is_unfit() && !error.is_unknown(), "{error}");
    let address = format!("127.0.0.1:{}", cluster.nodes[owner].port());
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
    let cluster = Cluster::start().await;
    let (from, to) = cluster.owner_and_other();
    let worker = Worker::new(open_hurried(&cluster.url(from)).await).await;
    worker.enqueue([task(1), task(2)]).await;
    let claim = worker.claim(1).await;
    cluster.fill(from);
    let before = cluster.content();
    cluster.begin(from, to);
    assert_all_wait(&worker, &claim).await;
    assert_eq!(cluster.content(), before);
    cluster.move_keys(from, to, 10);
    let halves = cluster.content();
    assert_all_wait(&worker, &claim).await;
    assert_eq!(cluster.content(), halves);
    cluster.move_keys(from, to, 100);
    cluster.end(to);
    // From here on, the old node names the new one.
    let failure = settled(|| worker.store.counts()).await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Unfit(_)), "{failure}");
    let address = format!("127.0.0.1:{}", cluster.nodes[to].port());
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
