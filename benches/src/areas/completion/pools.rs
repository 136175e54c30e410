//! Jobs that run on a pool of threads. Java's counterpart, an `ExecutorCompletionService` on a `ForkJoinPool`, cannot be
//! linked.

use futures::FutureExt;
use throng::ComputePool;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Work;
use super::peers::{Collector, Throng, peer};
use crate::areas::Peer;
use crate::watched::watch;

const THREADS: usize = 2;

/// Ours first, on our pool, and the usual way of others: closures on their pool, results through a channel.
pub(super) fn on_pools<W: Work>(work: W) -> Vec<Peer> {
    vec![
        peer::<OnComputePool, W>("throng", work),
        peer::<OnRayon, W>("rayon-mpsc", work),
        peer::<ChannelOfPool, W>("throng-pool-mpsc", work),
        peer::<JoinSet<u64>, W>("join-set", work),
    ]
}

struct OnComputePool {
    pool: ComputePool,
    ends: Throng,
}

impl Collector for OnComputePool {
    fn new(in_flight: usize) -> Self {
        Self {
            pool: compute_pool(),
            ends: Throng::new(in_flight),
        }
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let submitted = self.ends.jobs.submit_blocking(&self.pool, (), now(job));
        if submitted.await.is_err() {
            panic!("an open stream refused a job");
        }
    }

    async fn next(&mut self) -> u64 {
        self.ends.next().await
    }
}

struct OnRayon {
    pool: rayon::ThreadPool,
    sender: mpsc::UnboundedSender<u64>,
    receiver: mpsc::UnboundedReceiver<u64>,
}

impl Collector for OnRayon {
    const NOTE: Option<&str> = Some("a job that panics ends the process");

    fn new(_in_flight: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build();
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            pool: pool.expect("a pool can be built"),
            sender,
            receiver,
        }
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let (sender, job) = (self.sender.clone(), now(job));
        self.pool
            .spawn(move || sender.send(job()).expect("the reader lives"));
    }

    async fn next(&mut self) -> u64 {
        self.receiver.recv().await.expect("a job is in flight")
    }
}

/// Our pool without the stream.
struct ChannelOfPool {
    pool: ComputePool,
    sender: mpsc::UnboundedSender<u64>,
    receiver: mpsc::UnboundedReceiver<u64>,
}

impl Collector for ChannelOfPool {
    const NOTE: Option<&str> = Some("a job that panics is lost without a trace");

    fn new(_in_flight: usize) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            pool: compute_pool(),
            sender,
            receiver,
        }
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let (sender, job) = (self.sender.clone(), now(job));
        self.pool
            .execute(move || sender.send(job()).expect("the reader lives"));
    }

    async fn next(&mut self) -> u64 {
        self.receiver.recv().await.expect("a job is in flight")
    }
}

fn compute_pool() -> ComputePool {
    let pool = ComputePool::builder().threads(THREADS).build();
    let pool = pool.expect("a pool can be built");
    watch(&pool);
    pool
}

/// A job as a closure.
fn now<F>(job: F) -> impl FnOnce() -> u64 + Send + 'static
where
    F: Future<Output = u64> + Send + 'static,
{
    move || job.now_or_never().expect("a trivial job does not wait")
}
