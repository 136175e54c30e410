//! Stores on a cluster whose tasks count as stored only when replicas have them.

use rustix::process::Signal;

use super::*;
use crate::durable::SpawnOptions;

/// Opens a store as soon as each node knows its replica.
pub(super) async fn replicated_store_of(cluster: &Cluster) -> RedisStore {
    let urls: Vec<_> = (0..PRIMARIES).map(|node| cluster.url(node)).collect();
    let mut builder = RedisStore::cluster(urls.iter().map(|url| &**url));
    builder.partitions(PARTITIONS).wait_for_replicas(1);
    let end = Instant::now() + PATIENT;
    loop {
        match builder.open().await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_when_a_replica_of_its_node_has_it() {
    needs_redis!();
    let cluster = Cluster::with_replicas();
    let store = replicated_store_of(&cluster).await;
    let [first, second, third] =
        [0, 1, 2].map(|node| id_in(&store, partitions_of(&cluster, node)[0]));
    // A client stores one batch after another, so a client of its own stores the tasks of the other nodes.
    let others = DurableClient::open(replicated_store_of(&cluster).await);
    let client = DurableClient::open(store);
    let with_id = |id| SpawnOptions::new().id(id);
    let (node, replica) = (cluster.node(0), cluster.node(PRIMARIES));
    replica.signal(Signal::STOP);
    let waits = tokio::spawn(async move { client.spawn_with(Job(1), with_id(first)).await });
    for id in [second, third] {
        let stored = timeout(PATIENT, others.spawn_with(Job(1), with_id(id))).await;
        stored.unwrap().unwrap();
    }
    // The server waits for its replica.
    let is_blocked = || text(node.ask(&["CLIENT", "LIST"])).contains("flags=b");
    eventually("a request waits", is_blocked).await;
    assert!(!waits.is_finished());
    replica.signal(Signal::CONT);
    let stored = timeout(PATIENT, waits).await.unwrap();
    stored.unwrap().unwrap();
}

/// The partitions of a batch do not wait for one whose replica does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_stored_on_all_nodes_at_the_same_time() {
    needs_redis!();
    let cluster = Cluster::with_replicas();
    let store = replicated_store_of(&cluster).await;
    let ids: Vec<_> = (0..PARTITIONS).map(|it| id_in(&store, it)).collect();
    let tasks = ids.iter().map(|&id| (Job(1), SpawnOptions::new().id(id)));
    let tasks: Vec<_> = tasks.collect();
    let client = DurableClient::open(store);
    let slow = cluster.owner(&base(0));
    let replica = cluster.node(PRIMARIES + slow);
    replica.signal(Signal::STOP);
    let waits = tokio::spawn(async move { client.spawn_all_with(tasks).await });
    for partition in 0..PARTITIONS {
        let node = cluster.owner(&base(partition));
        let alive = format!("{}alive", base(partition));
        let is_stored = || cluster.node(node).ask(&["HLEN", &alive]) == Value::Int(1);
        if node != slow {
            eventually("the task of another node is stored", is_stored).await;
        }
    }
    assert!(!waits.is_finished());
    replica.signal(Signal::CONT);
    let stored = timeout(PATIENT, waits).await.unwrap();
    assert_eq!(stored.unwrap().unwrap().len(), PARTITIONS);
}
