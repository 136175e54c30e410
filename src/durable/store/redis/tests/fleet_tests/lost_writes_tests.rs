//! Nodes of a cluster that have lost acknowledged writes.

use rustix::process::Signal;

use super::lost_nodes_tests::id_in_partition;
use super::*;
use crate::durable::{Losses, SpawnOptions};

/// The number of tasks that are stored in a partition.
const TASKS: u64 = 20;

/// Keeps a replica from receiving anything from its primary. It still takes over.
async fn cut_off(cluster: &Cluster, primary: usize) {
    let replica = cluster.node(PRIMARIES + primary);
    // The primary requires no password, and refuses one.
    replica.ask(&["CONFIG", "SET", "masterauth", "wrong"]);
    replica.ask(&["CLIENT", "KILL", "TYPE", "master"]);
    let info = || text(replica.ask(&["INFO", "replication"]));
    eventually("the replica is cut off", || {
        info().contains("master_link_status:down")
    })
    .await;
}

async fn spawn_in(client: &DurableClient, partition: usize) -> Vec<DurableHandle<u64>> {
    let mut handles = Vec::new();
    for number in 0..TASKS {
        let options = SpawnOptions::new().id(id_in_partition(partition));
        let spawned = client.spawn_with(Job(number), options);
        handles.push(spawned.await.expect("the store answers"));
    }
    handles
}

async fn executor_of(cluster: &Cluster) -> DurableExecutor {
    let mut builder = DurableExecutor::builder::<Runs>(client_of(cluster).await);
    builder.register::<Job>();
    builder.start(Arc::<Runs>::default()).await.unwrap()
}

/// The process that has stored the tasks stores them again, although it only waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lacks_tasks_gets_them_from_their_producer() {
    needs_redis!();
    let mut cluster = Cluster::with_replicas();
    let client = client_of(&cluster).await;
    let partition = partitions_of(&cluster, 0)[0];
    cut_off(&cluster, 0).await;
    let handles = spawn_in(&client, partition).await;
    let slot = cluster.slot(&base(partition));
    cluster.node_mut(0).kill();
    eventually("a replica has taken over", || {
        cluster.owner_except(slot, Some(0)) == PRIMARIES
    })
    .await;
    eventually("the tasks are stored again", || {
        client.losses().healed == TASKS
    })
    .await;
    let _executor = executor_of(&cluster).await;
    for (number, handle) in (0..).zip(handles) {
        assert_eq!(ended(handle).await, number + 1);
    }
    assert_eq!(client.losses().lost, 0);
}

/// The tasks of a node that was emptied are gone, and their handles say so. The node is used as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_empty_is_used_again() {
    needs_redis!();
    let mut cluster = Cluster::start();
    let client = client_of(&cluster).await;
    let [emptied, other] = [0, 1].map(|node| partitions_of(&cluster, node)[0]);
    let gone = spawn_in(&client, emptied).await;
    let kept = spawn_in(&client, other).await;
    cluster.node_mut(0).kill();
    cluster.node_mut(0).run();
    let end = Instant::now() + PATIENT;
    let next = loop {
        let options = SpawnOptions::new().id(id_in_partition(emptied));
        match client.spawn_with(Job(7), options).await {
            Ok(handle) => break handle,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    let _executor = executor_of(&cluster).await;
    assert_eq!(ended(next).await, 8);
    for (number, handle) in (0..).zip(kept) {
        assert_eq!(ended(handle).await, number + 1);
    }
    for handle in gone {
        let end = timeout(PATIENT, handle).await.expect("the handle ends");
        let error = end.expect_err("its task is gone");
        assert!(error.is_rewound(), "{error}");
    }
    let Losses { healed, lost, .. } = client.losses();
    assert_eq!((healed, lost), (0, TASKS));
}

/// A hanging node answers a request after a replica has taken over for it. The replica lacks what the request has stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_replaced_node_does_not_count() {
    needs_redis!();
    let cluster = Cluster::with_replicas();
    let urls = [0, 1].map(|node| cluster.url(node));
    let mut builder = RedisStore::cluster(urls.iter().map(|url| &**url));
    builder.partitions(PARTITIONS).answer_timeout(PATIENT);
    let store = builder.open().await.unwrap();
    let inner = Arc::clone(&store.inner);
    let client = DurableClient::open(store);
    let partition = partitions_of(&cluster, 0)[0];
    let slot = cluster.slot(&base(partition));
    // The client has a session from now on.
    spawn_in(&client, partition).await;
    cluster.node(0).signal(Signal::STOP);
    let options = SpawnOptions::new().id(id_in_partition(partition));
    let spawned = tokio::spawn({
        let client = client.clone();
        async move { client.spawn_with(Job(100), options).await }
    });
    eventually("a replica has taken over", || {
        cluster.owner_except(slot, Some(0)) == PRIMARIES
    })
    .await;
    // The client learns of it from another node, whose messages stop.
    let port = cluster.node(PRIMARIES).port();
    eventually("the client knows the new owner", || {
        cluster.node(1).ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let owner = inner.nodes.owner(partition);
        owner.address.as_ref().is_some_and(|it| it.port == port)
    })
    .await;
    cluster.node(0).signal(Signal::CONT);
    let handle = timeout(PATIENT, spawned).await.unwrap().unwrap().unwrap();
    let _executor = executor_of(&cluster).await;
    assert_eq!(ended(handle).await, 101);
}

/// A partition moves to another node, loses tasks there, and comes back on a connection that has been open all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_returns_is_searched_again() {
    needs_redis!();
    let cluster = Cluster::start();
    let client = client_of(&cluster).await;
    let partition = partitions_of(&cluster, 0)[0];
    let slot = cluster.slot(&base(partition));
    spawn_in(&client, partition).await;
    cluster.move_slot(slot, 0, 1);
    spawn_in(&client, partition).await;
    // The node forgets all requests, as if it had lost them.
    let sessions = format!("{}sessions", base(partition));
    cluster.node(1).ask(&["DEL", &sessions]);
    cluster.move_slot(slot, 1, 0);
    eventually("the requests are sent again", || {
        client.losses().healed == 2 * TASKS
    })
    .await;
    check_invariants(&cluster);
}
