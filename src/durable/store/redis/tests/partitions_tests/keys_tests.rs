//! Tasks with one key are in one partition.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::super::*;
use super::{PARTITIONS, key, open_divided};
use crate::durable::{DurableClient, DurableTask, Key, SpawnOptions};

#[derive(Serialize, Deserialize)]
struct Job;

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

fn with_key(number: usize) -> (Job, SpawnOptions) {
    let key = Key::new(number.to_string());
    (Job, SpawnOptions::new().key(key))
}

#[tokio::test]
async fn tasks_with_one_key_meet_in_its_partition() {
    needs_redis!();
    let server = Server::start();
    let client = DurableClient::open(open_divided(&server.url()).await);
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let (task, options) = with_key(7);
        ids.insert(client.spawn_with(task, options).await.unwrap().id());
    }
    assert_eq!(ids.len(), 1);
}

/// Each partition answers with the positions of its own tasks.
#[tokio::test]
async fn a_batch_over_all_partitions_joins_the_right_tasks() {
    needs_redis!();
    const KEYS: usize = 40;
    let server = Server::start();
    let client = DurableClient::open(open_divided(&server.url()).await);
    let first = client.spawn_all_with((0..KEYS).map(with_key)).await;
    let first: Vec<_> = first.unwrap().iter().map(|handle| handle.id()).collect();
    for partition in 0..PARTITIONS {
        let alive = server.ask(&["HLEN", &key(partition, "alive")]);
        assert!(matches!(alive, redis::Value::Int(1..)), "{partition}");
    }
    // Every third key is new.
    let numbers = || (0..KEYS).map(|nth| if nth % 3 == 0 { KEYS + nth } else { nth });
    let again = client.spawn_all_with(numbers().map(with_key)).await;
    for (handle, number) in again.unwrap().into_iter().zip(numbers()) {
        assert_eq!(handle.was_joined(), number < KEYS, "{number}");
        let holder = first.iter().position(|&id| id == handle.id());
        assert_eq!(holder, (number < KEYS).then_some(number));
    }
}
