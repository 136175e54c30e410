//! rusty-sidekiq.

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use sidekiq::{Processor, ProcessorConfig, RedisConnectionManager, RedisPool, Worker};

use crate::{Payload, Peer, Result, permits, ran};

#[derive(Clone)]
pub(crate) struct Sidekiq {
    pool: RedisPool,
}

#[derive(Clone)]
struct Handler;

#[async_trait]
impl Worker<Payload> for Handler {
    async fn perform(&self, payload: Payload) -> sidekiq::Result<()> {
        ran(&payload);
        Ok(())
    }
}

/// Those who run tasks by default: each has a connection while it waits.
const WORKERS: usize = 16;

impl Peer for Sidekiq {
    async fn open(url: &str) -> Result<Self> {
        let manager = RedisConnectionManager::new(url)?;
        let pool = bb8::Pool::builder().max_size(2 * permits(WORKERS) as u32);
        Ok(Self {
            pool: pool.build(manager).await?,
        })
    }

    async fn store(&self, number: u64) -> Result<()> {
        Ok(Handler::perform_async(&self.pool, Payload::new(number)).await?)
    }

    async fn store_all(&self, _: std::ops::Range<u64>) -> Result<()> {
        Err("it stores one by one".into())
    }

    async fn work(self) -> Result<()> {
        let config = ProcessorConfig::default().num_workers(permits(WORKERS));
        let processor = Processor::new(self.pool.clone(), vec!["default".to_owned()]);
        let mut processor = processor.with_config(config);
        processor.register(Handler);
        processor.run().await;
        Ok(())
    }

    /// It acknowledges nothing: whatever has left the list is done.
    async fn is_done(&self, redis: &mut MultiplexedConnection, _: u64) -> Result<bool> {
        let left = redis::cmd("LLEN").arg("queue:default").to_owned();
        Ok(left.query_async::<u64>(redis).await? == 0)
    }
}
