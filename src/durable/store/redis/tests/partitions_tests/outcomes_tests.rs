//! Batches of which some partitions store their tasks, and others do not.

use redis::Value;
use serde::{Deserialize, Serialize};

use super::super::*;
use super::{PARTITIONS, key, open_divided};
use crate::durable::spawn_queue::SpawnQueue;
use crate::durable::{DurableClient, DurableTask};

/// The number of tasks of a batch. Each partition has some.
const TASKS: u64 = 40;

#[derive(Serialize, Deserialize)]
struct Job(u64);

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = u64;
}

/// The client cannot know that a partition has lost its session.
#[tokio::test]
async fn a_client_stores_tasks_although_a_partition_has_lost_its_session() {
    needs_redis!();
    let server = Server::start();
    let client = DurableClient::open(open_divided(&server.url()).await);
    client.spawn_all((0..TASKS).map(Job)).await.unwrap();
    server.ask(&["DEL", &key(2, "sessions")]);
    let stored = client.spawn_all((0..TASKS).map(Job)).await;
    stored.expect("the other partitions have their tasks");
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (2 * TASKS, 2 * TASKS));
}

/// Without the number of the first request, a partition does not know that it has stored the tasks, some of which may have ended.
#[tokio::test]
async fn a_partition_that_has_stored_its_tasks_gets_no_other_request() {
    needs_redis!();
    let server = Server::start();
    let store = open_divided(&server.url()).await;
    let open = async || store.open_session(None).await.unwrap();
    let [first, second] = [open().await, open().await];
    let queue = Arc::new(SpawnQueue::new());
    let mut callers: Vec<_> = (0..TASKS).map(|it| queue.push(vec![task(it)])).collect();
    let batch = queue.next_batch().await.unwrap();
    let enqueue = async |session| {
        let batch = Arc::clone(&batch);
        let request = Enqueue {
            session,
            number: 1,
            batch,
        };
        store.enqueue(Arc::new(request)).await
    };
    let row = |partition| server.ask(&["HGET", &key(partition, "sessions"), &second.to_string()]);
    let rows = || (0..PARTITIONS).map(&row).collect::<Vec<Value>>();
    server.ask(&["HDEL", &key(2, "sessions"), &first.to_string()]);
    let before = rows();
    assert_fails(enqueue(first).await, &Cause::NoSession, Effect::Unknown);
    let is_waiting = |nth: u64| store.inner.partitions.of_task(id(nth)) == 2;
    for (nth, caller) in (0..).zip(&mut callers) {
        let answer = caller.try_recv().ok().map(|it| it.is_ok());
        assert_eq!(answer, (!is_waiting(nth)).then_some(true), "{nth}");
    }
    enqueue(second).await.unwrap();
    let sent = before
        .iter()
        .zip(rows())
        .map(|(before, after)| *before != after);
    assert_eq!(sent.collect::<Vec<_>>(), [false, false, true, false]);
    for (nth, mut caller) in (0..).zip(callers).filter(|(nth, _)| is_waiting(*nth)) {
        caller
            .try_recv()
            .unwrap_or_else(|_| panic!("{nth}"))
            .unwrap();
    }
    assert_eq!(store.counts().await.unwrap().stored, TASKS);
}
