//! Nodes of a cluster: the node at which a store is opened, and requests while its cluster slot moves.

use redis::Value;

use super::cluster::{Cluster, PRIMARIES, text};
use super::proxy::Trick;
use super::*;
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
async fn a_store_is_opened_at_any_node() {
    needs_redis!();
    let cluster = Cluster::start();
    let (owner, other) = owner_and_other(&cluster);
    let worker = Worker::new(open(&cluster.url(owner)).await).await;
    worker.enqueue([task(1)]).await;
    let elsewhere = Worker::new(open(&cluster.url(other)).await).await;
    assert_eq!(elsewhere.claim(9).await.tasks.len(), 1);
    let observed = RedisStore::observe(&cluster.url(other)).await.unwrap();
    assert_eq!(observed.0.counts().await.unwrap().claimed, 1);
    // A cluster node has one database. Valkey 9 can have more, and says that this one does not exist.
    let error = RedisStore::open(&format!("{}1", cluster.url(owner)))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(error.is_invalid(), "{text}");
    assert!(
        text.contains("database 0") || text.contains("no database of this number"),
        "{text}"
    );
    // The namespaces are listed, wherever the list is and they are.
    for namespace in ["mail", "images", "letters"] {
        let mut builder = RedisStore::builder(&cluster.url(0));
        builder.namespace(namespace).open().await.unwrap();
    }
    for node in 0..PRIMARIES {
        let listed = RedisStore::builder(&cluster.url(node)).namespaces().await;
        assert_eq!(listed.unwrap(), ["default", "images", "letters", "mail"]);
    }
    // All partitions of such a namespace would be in one slot, or the keys of one partition in several.
    for namespace in ["{}", "}", "a}b"] {
        let mut builder = RedisStore::builder(&cluster.url(0));
        let error = builder.namespace(namespace).open().await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("brace"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_store_on_a_cluster_is_opened_if_one_of_several_nodes_answers() {
    needs_redis!();
    let (cluster, single) = (Cluster::start(), Server::start());
    let urls = ["redis://127.0.0.1:1/", &cluster.url(1)];
    let worker = Worker::new(RedisStore::cluster(urls).open().await.unwrap()).await;
    worker.enqueue([task(1)]).await;
    let single = format!("redis://127.0.0.1:{}/", single.port());
    let error = RedisStore::cluster([&*single]).open().await.unwrap_err();
    assert!(
        error.is_unfit() && error.to_string().contains("no cluster"),
        "{error}"
    );
    let error = RedisStore::cluster([]).open().await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

/// A store does not go on with one node: its messages would not be those of the processes that know the others.
#[tokio::test]
async fn a_user_who_may_not_ask_for_the_nodes_is_told_so() {
    needs_redis!();
    let cluster = Cluster::start();
    for node in 0..PRIMARIES {
        let user = [
            "ACL", "SETUSER", "one", "on", ">secret", "~*", "&*", "+@all", "-cluster",
        ];
        cluster.node(node).ask(&user);
        let url = cluster.url(node).replace("//", "//one:secret@");
        let error = RedisStore::open(&url).await.unwrap_err();
        assert!(
            error.is_denied() && error.to_string().contains("cluster|slots"),
            "{error}"
        );
    }
}

/// A store that took the node for a server without a cluster would send messages that nobody receives.
#[tokio::test]
async fn a_node_that_does_not_say_whether_it_belongs_to_a_cluster_is_asked_again() {
    needs_redis!();
    let cluster = Cluster::start();
    let proxy = Proxy::to(cluster.node(cluster.owner(BASE)).port()).await;
    proxy.play_on("HELLO", 0, Trick::Lose);
    let store = RedisStore::open(&proxy.url()).await.unwrap();
    assert!(store.inner.nodes.is_cluster());
}

/// Returns the numbers of connections for requests and for messages.
fn connections(node: &Server) -> (usize, usize) {
    let count = |kind| {
        text(node.ask(&["CLIENT", "LIST", "TYPE", kind]))
            .lines()
            .count()
    };
    (count("normal"), count("pubsub"))
}

/// With 16 partitions, each node has some.
#[tokio::test]
async fn tasks_of_all_nodes_run_and_end() {
    needs_redis!();
    const TASKS: u64 = 200;
    let cluster = Cluster::start();
    let open = async || {
        let mut builder = RedisStore::builder(&cluster.url(0));
        Worker::new(builder.partitions(16).open().await.unwrap()).await
    };
    let (worker, other) = (open().await, open().await);
    let mut events = worker.store.events();
    other.enqueue((0..TASKS).map(task)).await;
    for node in 0..PRIMARIES {
        let Value::Int(keys) = cluster.node(node).ask(&["DBSIZE"]) else {
            panic!("a number");
        };
        assert!(keys > 20, "{node}: {keys}");
        // For requests and for messages, of two processes, and the one that asks. Those to the nodes that were given end soon.
        let few = async {
            while connections(cluster.node(node)) != (3, 2) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let found = timeout(DEADLINE, few).await;
        assert!(found.is_ok(), "{:?}", connections(cluster.node(node)));
    }
    let mut claimed = 0;
    while let Some(claim) = worker.turn(Vec::new(), MAX_BATCH_TASKS).await.claim {
        claimed += claim.tasks.len() as u64;
        assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
    }
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((claimed, counts.done), (TASKS, TASKS));
    // A message wakes an idle worker from each node.
    while events.try_recv().is_ok() {}
    for number in 0..20 {
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
        other.enqueue([task(TASKS + number)]).await;
        until(&mut events, &Event::Wake(None)).await;
        let claim = worker.claim(1).await;
        worker.turn(done(&claim), 0).await;
    }
}

#[tokio::test]
async fn a_store_opens_at_once_if_the_node_with_the_list_of_namespaces_is_down() {
    needs_redis!();
    let mut cluster = Cluster::start();
    let lists = cluster.owner(keys::NAMESPACES);
    let names = (0..).map(|number| format!("store-{number}"));
    let mut names = names.filter(|name| cluster.owner(&keys::base(name, 0)) != lists);
    let name = names.next().expect("there are other nodes");
    let owner = cluster.owner(&keys::base(&name, 0));
    cluster.node_mut(lists).kill();
    let mut builder = RedisStore::builder(&cluster.url(owner));
    // A request to a node that is down waits for so long.
    let opened = builder
        .namespace(name)
        .answer_timeout(Duration::from_secs(600))
        .open();
    timeout(DEADLINE, opened).await.expect("it opens").unwrap();
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
    let settled_counts = settled(|| worker.store.counts()).await.unwrap();
    assert_eq!((settled_counts.stored, settled_counts.claimed), (2, 1));
    let there = Worker::new(open(&cluster.url(to)).await).await;
    assert_eq!(there.turn(done(&claim), 0).await.refused, []);
    assert_eq!(there.claim(1).await.tasks[0].id, id(2));
    let counts = there.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done, counts.claimed), (2, 1, 2));
}
