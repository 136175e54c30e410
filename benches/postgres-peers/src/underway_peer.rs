//! underway, whose workers claim one task at a time.

use std::ops::Range;

use sqlx_0_8::postgres::{PgPool, PgPoolOptions};
use sqlx_0_8::query_scalar;
use underway::{Job, To};

use super::{Payload, Peer, Result, ran};

#[derive(Clone)]
pub(super) struct Underway {
    pool: PgPool,
    job: Job<Payload, ()>,
}

impl Peer for Underway {
    async fn open(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .connect(url)
            .await?;
        underway::run_migrations(&pool).await?;
        let job = Job::builder()
            .step(|_cx, _: Payload| async move {
                ran();
                To::done()
            })
            .name("bench")
            .pool(pool.clone())
            .build()
            .await?;
        Ok(Self { pool, job })
    }

    async fn store(&self, number: u64) -> Result<()> {
        self.job.enqueue(&Payload::new(number)).await?;
        Ok(())
    }

    async fn store_all(&self, numbers: Range<u64>) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        for number in numbers {
            let job = Payload::new(number);
            self.job.enqueue_using(&mut *transaction, &job).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn work(self, permits: usize) -> Result<()> {
        let mut worker = self.job.worker();
        worker.set_concurrency_limit(permits);
        Ok(worker.run().await?)
    }

    async fn done(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM underway.task WHERE state = 'succeeded'";
        let done: i64 = query_scalar(query).fetch_one(&self.pool).await?;
        Ok(done as u64)
    }
}
