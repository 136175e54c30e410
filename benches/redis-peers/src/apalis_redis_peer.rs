//! apalis-redis.

use std::time::Duration;

use apalis::layers::WorkerBuilderExt as _;
use apalis::prelude::*;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use redis::aio::MultiplexedConnection;

use crate::{Payload, Peer, Result, permits, ran};

const QUEUE: &str = "bench";

/// With locks of tasks and events, as it is by default, or without either.
#[derive(Clone)]
pub(crate) struct Apalis<const LOCKS: bool> {
    connection: ConnectionManager,
}

impl<const LOCKS: bool> Apalis<LOCKS> {
    /// It looks for tasks with each heartbeat, and is told of none. With heartbeats of 10 ms, it stops looking.
    fn storage(&self, heartbeat: Duration) -> RedisStorage<Payload> {
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(100)
            .emit_events(LOCKS)
            .lock_tasks(LOCKS)
            .heartbeat_interval(heartbeat)
            .missed_heartbeats(10_000);
        RedisStorage::new(self.connection.clone()).with_config(config)
    }
}

impl<const LOCKS: bool> Peer for Apalis<LOCKS> {
    async fn open(url: &str) -> Result<Self> {
        Ok(Self {
            connection: apalis_redis::connect(url).await?,
        })
    }

    async fn store(&self, number: u64) -> Result<()> {
        let mut storage = self.storage(Duration::from_secs(30));
        Ok(storage.push(Payload::new(number)).await?)
    }

    async fn store_all(&self, numbers: std::ops::Range<u64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let mut storage = self.storage(Duration::from_secs(30));
        Ok(storage
            .push_bulk(numbers.map(Payload::new).collect())
            .await?)
    }

    async fn work(self) -> Result<()> {
        let worker = WorkerBuilder::new("worker")
            .backend(self.storage(Duration::from_millis(100)))
            .concurrency(permits(64))
            .build(run);
        Ok(worker.run().await?)
    }

    async fn is_done(&self, redis: &mut MultiplexedConnection, tasks: u64) -> Result<bool> {
        let done = redis::cmd("SCARD").arg(format!("{QUEUE}:done")).to_owned();
        Ok(done.query_async::<u64>(redis).await? == tasks)
    }
}

async fn run(payload: Payload) -> Result<(), BoxDynError> {
    ran(&payload);
    Ok(())
}
