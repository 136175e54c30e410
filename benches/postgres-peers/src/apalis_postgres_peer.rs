//! apalis-postgres, with the batches of its queue as large as the number of permits.

use std::ops::Range;

use apalis::layers::WorkerBuilderExt as _;
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use sqlx::postgres::PgPoolOptions;

use super::{Payload, Peer, Result, ran};

const QUEUE: &str = "bench";

#[derive(Clone)]
pub(super) struct Apalis(PgPool);

impl Apalis {
    fn storage(&self, batch: usize) -> PostgresStorage<Payload> {
        let config = Config::default().queue(QUEUE).batch_size(batch);
        PostgresStorage::<Payload>::new(&self.0).with_config(config)
    }
}

impl Peer for Apalis {
    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .connect(url)
            .await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self(pool))
    }

    async fn store(&self, number: u64) -> Result<()> {
        Ok(self.storage(1).push(Payload::new(number)).await?)
    }

    async fn store_all(&self, numbers: Range<u64>) -> Result<()> {
        let mut storage = self.storage(1);
        let payloads: Vec<_> = numbers.map(Payload::new).collect();
        for chunk in payloads.chunks(1_000) {
            storage.push_bulk(chunk.to_vec()).await?;
        }
        Ok(())
    }

    async fn work(self, permits: usize) -> Result<()> {
        let worker = WorkerBuilder::new("worker")
            .backend(self.storage(permits))
            .concurrency(permits)
            .build(run);
        Ok(worker.run().await?)
    }

    async fn done(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM apalis.jobs WHERE job_type = $1 AND status = 'Done'";
        let query = sqlx::query_scalar::<_, i64>(query).bind(QUEUE);
        Ok(query.fetch_one(&self.0).await? as u64)
    }
}

async fn run(_: Payload) -> Result<(), BoxDynError> {
    ran();
    Ok(())
}
