//! Jobs that are ready at once, and are polled where they are submitted.

use std::future::{Ready, ready};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures_buffered::FuturesUnorderedBounded;
use tokio::task::JoinSet;

use super::peers::{Collector, Throng};
use super::{JOBS, check, repeat};
use crate::areas::{Peer, YieldEvery};
use crate::measure::Rules;

/// Jobs in flight.
const WINDOW: u64 = 1_000;

/// Ours first.
pub(super) fn ready_at_once() -> Vec<Peer> {
    vec![
        peer::<InPlace>("throng"),
        peer::<FuturesUnorderedBounded<Ready<u64>>>("futures-buffered").note(Some(PLAIN)),
        peer::<FuturesUnordered<Ready<u64>>>("futures-unordered").note(Some(PLAIN)),
        peer::<JoinSet<u64>>("join-set").note(Some("spawns every job")),
    ]
}

const PLAIN: &str = "plain futures, all in the consuming task: no parallelism";

fn peer<C: Polls>(name: &'static str) -> Peer {
    Peer::new(name, |rules: &Rules| repeat(rules, JOBS, window::<C>))
}

/// Polls futures of one type.
trait Polls: Send + 'static {
    fn new() -> Self;

    fn submit(&mut self, job: Ready<u64>) -> impl Future<Output = ()> + Send;

    fn next(&mut self) -> impl Future<Output = u64> + Send;
}

async fn window<P: Polls>(jobs: u64) {
    let mut polls = P::new();
    let mut yields = YieldEvery::default();
    let mut sum = 0;
    for job in 0..jobs {
        if job >= WINDOW {
            sum += polls.next().await;
        }
        polls.submit(ready(job)).await;
        yields.step().await;
    }
    for _ in 0..WINDOW.min(jobs) {
        sum += polls.next().await;
    }
    check(jobs, sum);
}

struct InPlace(Throng);

impl Polls for InPlace {
    fn new() -> Self {
        Self(Throng::in_place(WINDOW as usize))
    }

    async fn submit(&mut self, job: Ready<u64>) {
        Collector::submit(&mut self.0, job).await;
    }

    async fn next(&mut self) -> u64 {
        Collector::next(&mut self.0).await
    }
}

impl Polls for FuturesUnorderedBounded<Ready<u64>> {
    fn new() -> Self {
        Self::new(WINDOW as usize)
    }

    async fn submit(&mut self, job: Ready<u64>) {
        self.push(job);
    }

    async fn next(&mut self) -> u64 {
        StreamExt::next(self).await.expect("a job is in flight")
    }
}

impl Polls for FuturesUnordered<Ready<u64>> {
    fn new() -> Self {
        Self::new()
    }

    async fn submit(&mut self, job: Ready<u64>) {
        self.push(job);
    }

    async fn next(&mut self) -> u64 {
        StreamExt::next(self).await.expect("a job is in flight")
    }
}

impl Polls for JoinSet<u64> {
    fn new() -> Self {
        Self::new()
    }

    async fn submit(&mut self, job: Ready<u64>) {
        self.spawn(job);
    }

    async fn next(&mut self) -> u64 {
        Collector::next(self).await
    }
}
