//! The peers that collect results.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use throng::CompletionStream;
use throng::completion::{self, Submitter};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::task::JoinQueue;

use super::Work;
use crate::areas::Peer;
use crate::watched::watch;

/// All collectors, ours first.
pub(super) fn all<W: Work>(work: W) -> Vec<Peer> {
    vec![
        peer::<Throng, W>("throng", work),
        peer::<JoinSet<u64>, W>("join-set", work),
        peer::<JoinQueue<u64>, W>("join-queue", work),
        peer::<FuturesUnordered<JoinHandle<u64>>, W>("futures-unordered", work),
        peer::<Buffered, W>("futures-buffered", work),
        peer::<Channel, W>("mpsc", work),
        peer::<Detached, W>(DETACHED, work),
    ]
}

/// The collectors that keep each result until it is read, ours first.
pub(super) fn keeping<W: Work>(work: W) -> Vec<Peer> {
    let mut peers = all(work);
    peers.retain(|peer| peer.name != DETACHED);
    peers
}

const DETACHED: &str = "detached";

pub(super) fn peer<C: Collector, W: Work>(name: &'static str, work: W) -> Peer {
    Peer::new(name, move |rules| work.run::<C>(rules)).note(C::NOTE)
}

/// Runs jobs on Tokio and hands out their results.
pub(super) trait Collector: Send + 'static {
    /// The maximum number of outstanding jobs.
    const MAX_JOBS: u64 = u64::MAX;
    const NOTE: Option<&str> = None;

    fn new(in_flight: usize) -> Self;

    fn submit<F>(&mut self, job: F) -> impl Future<Output = ()> + Send
    where
        F: Future<Output = u64> + Send + 'static;

    fn next(&mut self) -> impl Future<Output = u64> + Send;
}

pub(super) struct Throng {
    pub(super) jobs: Submitter<u64>,
    done: CompletionStream<u64>,
}

impl Throng {
    /// Polls each job once where it is submitted.
    pub(super) fn in_place(in_flight: usize) -> Self {
        Self::build(bounded(in_flight).poll_in_place(true))
    }

    fn build(builder: &completion::Builder<u64>) -> Self {
        let (jobs, done) = builder.build().expect("the limits are valid");
        watch(&done);
        Self { jobs, done }
    }
}

fn bounded(in_flight: usize) -> completion::Builder<u64> {
    let mut builder = CompletionStream::builder();
    builder.max_running(in_flight).max_outstanding(in_flight);
    builder
}

impl Collector for Throng {
    fn new(in_flight: usize) -> Self {
        Self::build(&bounded(in_flight))
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        if self.jobs.submit((), job).await.is_err() {
            panic!("an open stream refused a job");
        }
    }

    async fn next(&mut self) -> u64 {
        self.done
            .next()
            .await
            .expect("a job is in flight")
            .outcome
            .expect("jobs end well")
    }
}

impl Collector for JoinSet<u64> {
    fn new(_in_flight: usize) -> Self {
        Self::new()
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.spawn(job);
    }

    async fn next(&mut self) -> u64 {
        self.join_next()
            .await
            .expect("a job is in flight")
            .expect("jobs end well")
    }
}

/// In the order of submission.
impl Collector for JoinQueue<u64> {
    const NOTE: Option<&str> = Some("yields in the order of submission");

    fn new(_in_flight: usize) -> Self {
        Self::new()
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.spawn(job);
    }

    async fn next(&mut self) -> u64 {
        self.join_next()
            .await
            .expect("a job is in flight")
            .expect("jobs end well")
    }
}

/// Polls every finished handle again each time that the consumer's budget is spent: quadratic in the number of
/// jobs, which is why it gets fewer.
impl Collector for FuturesUnordered<JoinHandle<u64>> {
    const MAX_JOBS: u64 = 20_000;
    const NOTE: Option<&str> =
        Some("20,000 jobs at most where all are in flight: its cost is quadratic");

    fn new(_in_flight: usize) -> Self {
        Self::new()
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.push(tokio::spawn(job));
    }

    async fn next(&mut self) -> u64 {
        StreamExt::next(self)
            .await
            .expect("a job is in flight")
            .expect("jobs end well")
    }
}

struct Buffered(futures_buffered::FuturesUnorderedBounded<JoinHandle<u64>>);

impl Collector for Buffered {
    fn new(in_flight: usize) -> Self {
        Self(futures_buffered::FuturesUnorderedBounded::new(in_flight))
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.0.push(tokio::spawn(job));
    }

    async fn next(&mut self) -> u64 {
        self.0
            .next()
            .await
            .expect("a job is in flight")
            .expect("jobs end well")
    }
}

/// Detached tasks that send their results.
struct Channel {
    sender: mpsc::UnboundedSender<u64>,
    receiver: mpsc::UnboundedReceiver<u64>,
}

impl Collector for Channel {
    const NOTE: Option<&str> = Some("a job that panics is lost without a trace");

    fn new(_in_flight: usize) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let sender = self.sender.clone();
        tokio::spawn(async move { sender.send(job.await).expect("the reader lives") });
    }

    async fn next(&mut self) -> u64 {
        self.receiver.recv().await.expect("a job is in flight")
    }
}

/// Detached tasks that add their results to a sum, and a reader that is woken once for half of what is in flight:
/// no bookkeeping at all. It is not the cheapest everywhere: a task that nobody awaits is freed by the worker that ran
/// it, and not by the one that allocated it.
pub(super) struct Detached {
    shared: Arc<Tally>,
    submitted: u64,
    read: u64,
    sum: u64,
}

#[derive(Default)]
struct Tally {
    sum: AtomicU64,
    finished: AtomicU64,
    /// The number of finished jobs for which the reader waits.
    awaited: AtomicU64,
    reader: AtomicWaker,
}

impl Collector for Detached {
    const NOTE: Option<&str> = Some("adds up and counts, but hands out no single result");

    fn new(_in_flight: usize) -> Self {
        Self {
            shared: Arc::default(),
            submitted: 0,
            read: 0,
            sum: 0,
        }
    }

    async fn submit<F>(&mut self, job: F)
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.submitted += 1;
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let result = job.await;
            shared.finish(result);
        });
    }

    /// Returns by how much the sum has grown since the last call.
    async fn next(&mut self) -> u64 {
        let in_flight = self.submitted - self.read;
        if self.shared.finished.load(SeqCst) <= self.read {
            let awaited = self.read + in_flight.div_ceil(2);
            self.shared.awaited.store(awaited, SeqCst);
            poll_fn(|cx| self.shared.poll_finished(awaited, cx)).await;
        }
        self.read += 1;
        let sum = self.shared.sum.load(SeqCst);
        sum - std::mem::replace(&mut self.sum, sum)
    }
}

impl Tally {
    fn finish(&self, result: u64) {
        self.sum.fetch_add(result, SeqCst);
        if self.finished.fetch_add(1, SeqCst) + 1 == self.awaited.load(SeqCst) {
            self.reader.wake();
        }
    }

    /// The job that reaches the awaited number wakes the reader, unless the reader sees the number first: both
    /// write before they read, and all of it is sequentially consistent.
    fn poll_finished(&self, awaited: u64, cx: &Context<'_>) -> Poll<()> {
        self.reader.register(cx.waker());
        if self.finished.load(SeqCst) >= awaited {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
