//! Requests that concern several nodes, one of which cannot do its part.

use futures::future::join_all;

use super::lost_nodes_tests::{id_in_partition, keep_busy};
use super::replicas_tests::replicated_store_of;
use super::*;
use crate::durable::SpawnOptions;
use crate::durable::resend::STORE_TIMEOUT;

/// Returns a task for each partition.
fn tasks_in(partitions: &[usize]) -> Vec<(Job, SpawnOptions)> {
    let new = |&it| (Job(1), SpawnOptions::new().id(id_in_partition(it)));
    partitions.iter().map(new).collect()
}

/// Many tasks go with each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_spawn_gets_the_outcome_of_its_own_node() {
    needs_redis!();
    let mut cluster = Cluster::with_replicas();
    let client = DurableClient::open(replicated_store_of(&cluster).await);
    let slow = partitions_of(&cluster, 0);
    cluster.node_mut(PRIMARIES).kill();
    let partitions: Vec<_> = (0..PARTITIONS).cycle().take(64).collect();
    let spawned = tasks_in(&partitions).into_iter();
    let spawned = spawned.map(|(job, options)| client.spawn_with(job, options));
    let outcomes = timeout(PATIENT, join_all(spawned)).await.unwrap();
    for (partition, outcome) in partitions.into_iter().zip(outcomes) {
        match outcome.err() {
            None => assert!(!slow.contains(&partition), "no replica has it"),
            Some(error) => {
                let is_slow = slow.contains(&partition);
                assert!(is_slow && error.is_unknown(), "{partition}: {error}");
            }
        }
    }
}

/// A single full server refuses tasks at once, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_node_refuses_its_tasks_at_once() {
    needs_redis!();
    let cluster = Cluster::start();
    let client = client_of(&cluster).await;
    let all: Vec<_> = (0..PARTITIONS).collect();
    client.spawn_all_with(tasks_in(&all)).await.unwrap();
    cluster.node(0).ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let began = Instant::now();
    let error = client.spawn_all_with(tasks_in(&all)).await.unwrap_err();
    // The other nodes have stored theirs.
    assert!(error.is_full() && error.is_unknown(), "{error}");
    let full = partitions_of(&cluster, 0);
    let error = client.spawn_all_with(tasks_in(&full)).await.unwrap_err();
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    let elapsed = began.elapsed();
    assert!(elapsed < STORE_TIMEOUT / 2, "{elapsed:?}");
}

/// A node with many partitions runs a long script of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_tasks_is_requested_in_all_partitions_at_the_same_time() {
    needs_redis!();
    const MANY: usize = 64;
    let cluster = Cluster::start();
    let mut builder = RedisStore::builder(&cluster.url(1));
    let worker = Worker::new(builder.partitions(MANY).open().await.unwrap()).await;
    let ids: Vec<_> = (0..MANY).map(|it| id_in(&worker.store, it)).collect();
    let tasks = ids.iter().map(|&id| NewTask { id, ..task(1) });
    worker.enqueue(tasks).await;
    let state = |partition| match cluster.owner(&base(partition)) {
        0 => TaskState::Running,
        _ => TaskState::Waiting,
    };
    let expected: Vec<_> = (0..MANY).map(state).collect();
    let busy = expected.iter().filter(|it| **it == TaskState::Running);
    // The request to each partition of the node pauses for 50 ms.
    let one_by_one = busy.count() as u32 * Duration::from_millis(50);
    let endless = keep_busy(cluster.node(0)).await;
    let mut fastest = Duration::MAX;
    // The machine may be slow.
    let end = Instant::now() + DEADLINE;
    while fastest > one_by_one / 2 && Instant::now() < end {
        let began = Instant::now();
        let states = worker.store.status(ids.clone()).await.unwrap();
        fastest = fastest.min(began.elapsed());
        assert_eq!(states, expected);
    }
    cluster.node(0).ask(&["SCRIPT", "KILL"]);
    endless.join().unwrap().unwrap_err();
    assert!(fastest <= one_by_one / 2, "{fastest:?}");
}
