//! oxana.

use std::io;
use std::time::Duration;

use oxana::{JobContext, Storage, StorageBuilderTimeouts};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::{Payload, Peer, Result, permits, ran};

#[derive(Clone)]
pub(crate) struct Oxana {
    storage: Storage,
}

#[derive(Clone, Debug)]
struct Context {}

#[derive(Debug, Serialize, Deserialize)]
struct Job(Payload);

impl oxana::Job for Job {}

#[derive(oxana::Worker)]
#[oxana(context = Context, error = io::Error, registry = None)]
struct Worker;

impl Worker {
    async fn process(&self, job: Job, _: &JobContext) -> Result<(), io::Error> {
        ran(&job.0);
        Ok(())
    }
}

#[derive(Serialize)]
struct Queue;

impl oxana::Queue for Queue {
    fn to_config() -> oxana::QueueConfig {
        oxana::QueueConfig::as_static("bench").concurrency(permits(16))
    }
}

impl Peer for Oxana {
    async fn open(url: &str) -> Result<Self> {
        // A thousand that store tasks wait for its connections longer than it lets them by default.
        let timeouts = StorageBuilderTimeouts::new(Duration::from_secs(60));
        let builder = Storage::builder().timeouts(timeouts);
        Ok(Self {
            storage: builder.build_from_redis_url(url)?,
        })
    }

    async fn store(&self, number: u64) -> Result<()> {
        self.storage
            .enqueue(Queue, Job(Payload::new(number)))
            .await?;
        Ok(())
    }

    async fn store_all(&self, numbers: std::ops::Range<u64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let jobs = numbers.map(|number| Job(Payload::new(number)));
        self.storage.enqueue_list(Queue, jobs).await?;
        Ok(())
    }

    /// After it has found nothing, it sleeps for ten seconds by default.
    async fn work(self) -> Result<()> {
        let runtime = self.storage.runtime(Context {});
        let runtime = runtime.queue::<Queue>().worker::<Worker, Job>();
        runtime
            .dequeue_timeout(Duration::from_millis(5))
            .run()
            .await?;
        Ok(())
    }

    async fn is_done(&self, _: &mut MultiplexedConnection, _: u64) -> Result<bool> {
        Ok(self.storage.jobs_count().await? == 0)
    }
}
