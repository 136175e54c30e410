//! Pools of threads for closures that block.
//!
//! Handles are awaited everywhere: peers that have none get the result through a Tokio oneshot channel, as their
//! users do. Everything is submitted from tasks on the two workers of a Tokio runtime, except in the rows about
//! submitting threads. Rows about shrinking have only the peers with a keep-alive, and rows about idleness only ours:
//! their bars are absolute.

mod bursts;
mod peers;
mod rest;
mod steady;
mod storm;

use tokio::runtime::Runtime;

use self::bursts::{BurstCold, BurstWarm};
use self::peers::{Pool, Shape, all, in_storm, shrinking};
use self::rest::{Memory, MemoryQueued, ThreadsAfterBurst, idle_cpu, idle_switches};
use self::steady::{RoundTrip, Submitters, Throughput, Wide};
use self::storm::Storm;
use super::{Area, Unit, Workload};
use crate::measure::{Rules, Sample, threads};

pub(super) const AREA: Area = Area {
    name: "blocking",
    about: "pools for closures that block: throughput, latency, bursts, idle cost, memory",
    config: "BlockingPool::builder().max_threads(N), everything else by default; N is in the name of the workload, \
             100 in burst-cold, 512 in storm, 4 in submitters, else 64; threads-after-burst and memory have a short \
             keep-alive, so as to end; throng-after-200us says what it has",
    workloads,
    prepare: None,
};

fn workloads() -> Vec<Workload> {
    let mut workloads = steady_workloads();
    workloads.extend(burst_workloads());
    workloads.extend(rest_workloads());
    workloads
}

fn steady_workloads() -> Vec<Workload> {
    vec![
        throughput("throughput-1-max4", 1, 4),
        throughput("throughput-4-max4", 4, 4),
        throughput("throughput-1-max64", 1, 64),
        throughput("throughput-4-max64", 4, 64),
        all_at_once("all-at-once-1-max4", 1, 4),
        all_at_once("all-at-once-4-max4", 4, 4),
        all_at_once("all-at-once-1-max64", 1, 64),
        all_at_once("all-at-once-4-max64", 4, 64),
        Workload::new(
            "throughput-1-max4-64b",
            Unit::NS_PER_TASK,
            all(Wide { max: 4 }),
        ),
        round_trip("round-trip-max4", 4),
        round_trip("round-trip-max64", 64),
        submitters("submitters-1", 1),
        submitters("submitters-2", 2),
        submitters("submitters-4", 4),
        submitters("submitters-8", 8),
        submitters("submitters-16", 16),
    ]
}

fn burst_workloads() -> Vec<Workload> {
    vec![
        burst_cold("burst-cold", Unit::MS, BurstCold::TIME),
        burst_cold("burst-cold-start", Unit::MS, BurstCold::LAST_START),
        burst_cold("burst-cold-held", Unit::US_PER_TASK, BurstCold::HELD),
        burst_cold(
            "burst-cold-threads",
            Unit::THREADS_WANTED,
            BurstCold::THREADS,
        ),
        Workload::new("burst-warm-p50", Unit::US, all(BurstWarm::P50)),
        Workload::new("burst-warm-p99", Unit::US, all(BurstWarm::P99)),
        Workload::new("burst-warm-start", Unit::US, all(BurstWarm::START)),
        Workload::new("burst-warm-held", Unit::US_PER_TASK, all(BurstWarm::HELD)),
        Workload::new("storm", Unit::NS_PER_TASK, in_storm(Storm::TIME)).processes(10),
        Workload::new("storm-threads", Unit::THREADS, in_storm(Storm::THREADS)).processes(10),
    ]
}

fn rest_workloads() -> Vec<Workload> {
    vec![
        Workload::new(
            "threads-after-burst",
            Unit::THREADS,
            shrinking(ThreadsAfterBurst),
        )
        .uncounted(),
        Workload::new("memory", Unit::KB, shrinking(Memory)).uncounted(),
        Workload::new("memory-queued", Unit::KB, all(MemoryQueued)).uncounted(),
        Workload::absolute("idle-cpu", Unit::CPU_US_PER_S, idle_cpu),
        Workload::absolute("idle-switches", Unit::SWITCHES_PER_S, idle_switches),
    ]
}

fn throughput(name: &'static str, submitters: u64, max: usize) -> Workload {
    let work = Throughput::in_windows(submitters, max);
    Workload::new(name, Unit::NS_PER_TASK, all(work))
}

fn all_at_once(name: &'static str, submitters: u64, max: usize) -> Workload {
    let work = Throughput::all_at_once(submitters, max);
    Workload::new(name, Unit::NS_PER_TASK, all(work))
}

fn round_trip(name: &'static str, max: usize) -> Workload {
    Workload::new(name, Unit::NS_PER_TASK, all(RoundTrip { max }))
}

fn submitters(name: &'static str, threads: u64) -> Workload {
    Workload::new(name, Unit::NS_PER_TASK, all(Submitters { threads }))
}

/// A process is cold only once.
fn burst_cold(name: &'static str, unit: Unit, burst: BurstCold) -> Workload {
    Workload::new(name, unit, all(burst)).processes(10)
}

/// A workload for a pool.
trait Work: Copy + 'static {
    fn run<P: Pool>(self, rules: &Rules) -> Sample;
}

/// A pool, and the runtime from which closures are submitted to it.
struct Setup<P> {
    pool: P,
    runtime: Runtime,
    /// Threads of the process without those of the pool.
    others: u64,
}

impl<P: Pool> Setup<P> {
    fn new(shape: Shape) -> Self {
        let runtime = P::runtime(&shape);
        let others = threads();
        let pool = {
            let _context = runtime.enter();
            P::start(&shape)
        };
        Self {
            pool,
            runtime,
            others,
        }
    }

    /// Threads of the pool.
    fn threads(&self) -> u64 {
        threads().saturating_sub(self.others)
    }
}
