//! Requests that concern several nodes, one of which cannot do its part.

use super::lost_nodes_tests::keep_busy;
use super::*;

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
