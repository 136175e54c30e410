//! Pools of threads for closures that block.
//!
//! Handles are awaited everywhere: peers that have none get the result through a Tokio oneshot channel, as their
//! users do. Everything is submitted from tasks on the two workers of a Tokio runtime.

mod peers;

use std::time::{Duration, Instant};

use throng::BlockingPool;
use tokio::runtime::Runtime;

use self::peers::{Pool, all};
use super::{Area, Unit, Workload, on_worker, two_workers};
use crate::measure::{Rules, Sample, Section, note_threads, threads};

/// Closures that a submitting task has in flight before it awaits them.
const WINDOW: u64 = 1_000;

pub(super) const AREA: Area = Area {
    name: "blocking",
    about: "pools for closures that block: throughput, latency, bursts, idle cost",
    config: "BlockingPool::builder().max_threads(N), everything else by default; N is in the name of the workload, \
             100 in burst-cold, else 64; threads-after-burst has a short keep-alive, so as to end",
    workloads,
    prepare: None,
};

fn workloads() -> Vec<Workload> {
    vec![
        throughput("throughput-1-max4", 1, 4),
        throughput("throughput-4-max4", 4, 4),
        throughput("throughput-1-max64", 1, 64),
        throughput("throughput-4-max64", 4, 64),
        round_trip("round-trip-max4", 4),
        round_trip("round-trip-max64", 64),
        Workload::new("burst-cold", Unit::MS, all(BurstCold)).processes(10),
        burst_warm("burst-warm-p50", 0.5),
        burst_warm("burst-warm-p99", 0.99),
        Workload::absolute("threads-after-burst", Unit::THREADS, threads_after_burst),
        Workload::absolute("idle-cpu", Unit::CPU_US_PER_S, idle_cpu),
        Workload::absolute("idle-switches", Unit::SWITCHES_PER_S, idle_switches),
    ]
}

fn throughput(name: &'static str, submitters: u64, max: usize) -> Workload {
    Workload::new(name, Unit::NS_PER_TASK, all(Throughput { submitters, max }))
}

fn round_trip(name: &'static str, max: usize) -> Workload {
    Workload::new(name, Unit::NS_PER_TASK, all(RoundTrip { max }))
}

fn burst_warm(name: &'static str, quantile: f64) -> Workload {
    Workload::new(name, Unit::US, all(BurstWarm { quantile }))
}

/// Something to do with a pool.
trait Work: Copy + 'static {
    fn run<P: Pool>(self, rules: &Rules) -> Sample;
}

/// Trivial closures in windows, from a number of tasks at once.
#[derive(Clone, Copy)]
struct Throughput {
    submitters: u64,
    max: usize,
}

impl Work for Throughput {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let (runtime, pool) = start::<P>(self.max);
        rules.measure(rules.scaled(200_000), |tasks| {
            on_worker(
                &runtime,
                submit_from_many(pool.clone(), self.submitters, tasks),
            );
        })
    }
}

async fn submit_from_many<P: Pool>(pool: P, submitters: u64, tasks: u64) {
    let share = tasks / submitters;
    let first = tasks - share * (submitters - 1);
    let others: Vec<_> = (1..submitters)
        .map(|_| tokio::spawn(submit_windows(pool.clone(), share)))
        .collect();
    submit_windows(pool, first).await;
    for other in others {
        other.await.expect("a submitting task panicked");
    }
}

async fn submit_windows<P: Pool>(pool: P, tasks: u64) {
    let mut handles = Vec::with_capacity(WINDOW as usize);
    for begin in (0..tasks).step_by(WINDOW as usize) {
        let end = tasks.min(begin + WINDOW);
        handles.extend((begin..end).map(|task| pool.run(move || task)));
        for (handle, task) in handles.drain(..).zip(begin..) {
            assert_eq!(handle.await, task);
        }
    }
}

/// One trivial closure at a time.
#[derive(Clone, Copy)]
struct RoundTrip {
    max: usize,
}

impl Work for RoundTrip {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let (runtime, pool) = start::<P>(self.max);
        rules.measure(rules.scaled(5_000), |tasks| {
            let pool = pool.clone();
            on_worker(&runtime, async move {
                for task in 0..tasks {
                    assert_eq!(pool.run(move || task).await, task);
                }
            });
        })
    }
}

/// A hundred closures of 50 ms for a pool of up to a hundred threads that has not run anything yet.
#[derive(Clone, Copy)]
struct BurstCold;

impl Work for BurstCold {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let (runtime, pool) = start::<P>(100);
        let sample = rules.measure_once(100, |tasks| {
            on_worker(
                &runtime,
                burst(pool.clone(), tasks, Duration::from_millis(50)),
            );
        });
        let ms = sample.value * 100.0 / 1e6;
        sample.with_value(ms)
    }
}

/// 64 closures of 20 ms every 100 ms: the time from submission to start.
#[derive(Clone, Copy)]
struct BurstWarm {
    quantile: f64,
}

impl Work for BurstWarm {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let (runtime, pool) = start::<P>(64);
        // Twice the usual time: a burst has few values for a quantile in the tail.
        let rules = Rules {
            target: rules.target * 2,
            ..rules.clone()
        };
        rules.measure_latency(64, self.quantile, |_| {
            let next = Instant::now() + Duration::from_millis(100);
            let delays = on_worker(&runtime, burst(pool.clone(), 64, Duration::from_millis(20)));
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            delays
        })
    }
}

/// Submits closures that block, waits for all, and returns how long each one waited for its start, in nanoseconds.
async fn burst<P: Pool>(pool: P, tasks: u64, length: Duration) -> Vec<u64> {
    let submit = |_| {
        let submitted = Instant::now();
        pool.run(move || {
            let delay = submitted.elapsed();
            std::thread::sleep(length);
            delay.as_nanos() as u64
        })
    };
    let handles: Vec<_> = (0..tasks).map(submit).collect();
    let mut delays = Vec::with_capacity(handles.len());
    for handle in handles {
        delays.push(handle.await);
    }
    delays
}

/// Threads that are left of a burst after two keep-alives, while 50 tiny tasks a second go on.
fn threads_after_burst(rules: &Rules) -> Sample {
    let keep_alive = Duration::from_millis(if rules.quick { 100 } else { 300 });
    let runtime = two_workers().build().expect("a runtime can be built");
    let before = threads();
    let mut builder = BlockingPool::builder();
    builder
        .max_threads(64)
        .keep_alive(keep_alive)
        .runtime(runtime.handle().clone());
    let pool = peers::Throng(builder.build().expect("a pool can be built"));
    let section = Section::begin();
    on_worker(&runtime, burst(pool.clone(), 64, Duration::from_millis(20)));
    note_threads();
    on_worker(&runtime, trickle(pool.clone(), 2 * keep_alive));
    let left = threads().saturating_sub(before);
    drop(pool);
    section.end().absolute(left as f64)
}

async fn trickle<P: Pool>(pool: P, length: Duration) {
    let pause = Duration::from_millis(20);
    for _ in 0..length.as_millis() / pause.as_millis() {
        pool.run(|| ()).await;
        tokio::time::sleep(pause).await;
    }
}

/// CPU time that a pool takes while it has nothing to do but keep the threads of a burst.
fn idle_cpu(rules: &Rules) -> Sample {
    idle(rules, |cpu_ns, _| cpu_ns as f64 / 1e3)
}

/// Context switches meanwhile.
fn idle_switches(rules: &Rules) -> Sample {
    idle(rules, |_, switches| switches as f64)
}

fn idle(rules: &Rules, what: fn(u64, u64) -> f64) -> Sample {
    let (runtime, pool) = start::<peers::Throng>(64);
    on_worker(&runtime, burst(pool.clone(), 64, Duration::from_millis(20)));
    // The last threads come to rest first.
    std::thread::sleep(Duration::from_millis(100));
    let section = Section::begin();
    // Long enough for the one wake-up of this thread to matter little.
    std::thread::sleep(rules.target * 4);
    let cost = section.end();
    let value = what(cost.cpu_ns, cost.ctx_switches) / cost.elapsed.as_secs_f64();
    let sample = cost.absolute(value);
    // Until here the pool has to live, and keep its threads.
    drop(pool);
    sample
}

fn start<P: Pool>(max: usize) -> (Runtime, P) {
    let runtime = P::runtime(max);
    let pool = {
        let _context = runtime.enter();
        P::start(max)
    };
    (runtime, pool)
}
