//! Results of many jobs, taken as they finish.
//!
//! A consuming task on one of the two workers of a runtime submits the jobs and takes the results, whose sum is
//! checked. Jobs are futures on Tokio for everyone, except in the rows called `pool`, where they are closures on a pool
//! of two threads, and in `ready`, where they are ready at once and run in the consuming task.

mod memory;
mod peers;
mod pools;
mod ready;

use std::time::Duration;

use tokio::sync::oneshot;

use self::memory::{Allocations, Asleep, Unread};
use self::peers::{Collector, all, keeping};
use self::pools::on_pools;
use self::ready::ready_at_once;
use super::{Area, Unit, Workload, on_worker, two_workers};
use crate::measure::{Rules, Sample};

const JOBS: u64 = 200_000;

pub(super) const AREA: Area = Area {
    name: "completion",
    about: "results of many jobs in the order in which they finish",
    config: "CompletionStream::builder(), both bounds set to the number of jobs that the workload keeps in flight",
    workloads,
    prepare: None,
};

fn workloads() -> Vec<Workload> {
    let per_task = Unit::NS_PER_TASK;
    vec![
        Workload::new("all-at-once", per_task, all(AllAtOnce)),
        Workload::new("window-1000", per_task, all(Window1000)),
        Workload::new("reversed", per_task, all(Reversed)),
        Workload::new("sleeping", per_task, all(Sleeping)),
        Workload::new("pool-all-at-once", per_task, on_pools(AllAtOnce)),
        Workload::new("pool-window-1000", per_task, on_pools(Window1000)),
        Workload::new("ready", per_task, ready_at_once()),
        Workload::new("allocations", Unit::ALLOCATIONS, keeping(Allocations)).uncounted(),
        Workload::new("sleeping-memory", Unit::BYTES, all(Asleep)).uncounted(),
        Workload::new("unread-memory", Unit::BYTES, keeping(Unread)).uncounted(),
    ]
}

/// Something to do with a collector.
trait Work: Copy + 'static {
    fn run<C: Collector>(self, rules: &Rules) -> Sample;
}

/// Submits everything, then reads everything.
#[derive(Clone, Copy)]
struct AllAtOnce;

impl Work for AllAtOnce {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        repeat(rules, JOBS.min(C::MAX_JOBS), |jobs| all_at_once::<C>(jobs))
    }
}

async fn all_at_once<C: Collector>(jobs: u64) {
    let mut collector = C::new(jobs as usize);
    for job in 0..jobs {
        collector.submit(async move { job }).await;
    }
    check(jobs, read(&mut collector, jobs).await);
}

/// Keeps a thousand jobs in flight.
#[derive(Clone, Copy)]
struct Window1000;

impl Work for Window1000 {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        repeat(rules, JOBS, |jobs| {
            window::<C, _>(jobs, 1_000, |job| async move { job })
        })
    }
}

/// Keeps ten thousand jobs in flight, each of which sleeps for 0 to 5 ms.
#[derive(Clone, Copy)]
struct Sleeping;

impl Work for Sleeping {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        let asleep = |job| async move {
            tokio::time::sleep(pause(job)).await;
            job
        };
        repeat(rules, JOBS, move |jobs| {
            window::<C, _>(jobs, 10_000, asleep)
        })
    }
}

async fn window<C: Collector, F>(jobs: u64, size: u64, make: impl Fn(u64) -> F)
where
    F: Future<Output = u64> + Send + 'static,
{
    window_of(&mut C::new(size as usize), jobs, size, make).await;
}

async fn window_of<C: Collector, F>(
    collector: &mut C,
    jobs: u64,
    size: u64,
    make: impl Fn(u64) -> F,
) where
    F: Future<Output = u64> + Send + 'static,
{
    let mut sum = 0;
    for job in 0..jobs {
        if job >= size {
            sum += collector.next().await;
        }
        collector.submit(make(job)).await;
    }
    check(jobs, sum + read(collector, size.min(jobs)).await);
}

/// Submits jobs that wait for a gate each, opens the gates from the last to the first, then reads.
#[derive(Clone, Copy)]
struct Reversed;

impl Work for Reversed {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        repeat(rules, JOBS.min(C::MAX_JOBS), |jobs| reversed::<C>(jobs))
    }
}

async fn reversed<C: Collector>(jobs: u64) {
    let mut collector = C::new(jobs as usize);
    let mut gates = Vec::with_capacity(jobs as usize);
    for job in 0..jobs {
        let (opener, gate) = oneshot::channel::<()>();
        gates.push(opener);
        let behind = async move {
            gate.await.expect("every gate is opened");
            job
        };
        collector.submit(behind).await;
    }
    for gate in gates.into_iter().rev() {
        gate.send(()).expect("every job waits at its gate");
    }
    check(jobs, read(&mut collector, jobs).await);
}

/// Rounds of `work` on a worker of a runtime.
fn repeat<F>(rules: &Rules, jobs: u64, work: impl Fn(u64) -> F) -> Sample
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = two_workers().build().expect("a runtime can be built");
    rules.measure(rules.scaled(jobs), |jobs| on_worker(&runtime, work(jobs)))
}

async fn read(collector: &mut impl Collector, jobs: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..jobs {
        sum += collector.next().await;
    }
    sum
}

fn check(jobs: u64, sum: u64) {
    assert_eq!(
        sum,
        jobs * (jobs - 1) / 2,
        "a result was lost or came twice"
    );
}

/// A pause of 0 to 5 ms, the same for the same job in every run.
fn pause(job: u64) -> Duration {
    let mixed = job.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Duration::from_micros(mixed % 5_000)
}
