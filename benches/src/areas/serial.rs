//! One state, changed by one task at a time.
//!
//! Each task awaits its operations, except in the rows named `post` and `forget`, and yields to Tokio after 128 of them: otherwise
//! peers that never wait would starve the other tasks. Every operation returns the value to the caller. Further
//! measurements of a row stand below the table.

mod held;
mod peers;
mod post;

use std::time::Instant;

use tokio::runtime::Runtime;

use self::held::held;
use self::peers::{Serial, all, with_bounded};
use self::post::{Forget, Memory, Post};
use super::{Area, Peer, Unit, Workload, YieldEvery, on_worker, two_workers};
use crate::measure::{Rules, Sample, Spin, quantile};

/// One operation in this many is timed, so that the clock costs little. The number is odd, so that the operation after
/// a yield, which is one in 128, is timed no more often than any other.
const OPERATIONS_PER_SAMPLE: u64 = 7;

/// An operation that takes longer than this is slow.
const SLOW_NS: u64 = 20_000;

pub(super) const AREA: Area = Area {
    name: "serial",
    about: "one state, changed by one task at a time: executors, locks and actors",
    config: "SerialExecutor::new(state), everything by default",
    workloads,
    prepare: None,
};

fn workloads() -> Vec<Workload> {
    vec![
        contend("uncontended", 1, 0),
        contend("t2-20ns", 2, 20),
        contend("t4-20ns", 4, 20),
        contend("t16-20ns", 16, 20),
        contend("t64-20ns", 64, 20),
        contend("t2-1us", 2, 1_000),
        contend("t4-1us", 4, 1_000),
        contend("t16-1us", 16, 1_000),
        contend("t64-1us", 64, 1_000),
        latency("t4-20ns-p99", 4, 20),
        latency("t16-20ns-p99", 16, 20),
        latency("t4-1us-p99", 4, 1_000),
        latency("t16-1us-p99", 16, 1_000),
        fairness("t64-20ns-fairness", 64, 20),
        fairness_in(4, "t64-20ns-fairness-2s", 64, 20),
        fairness("t64-1us-fairness", 64, 1_000),
        captured("captured-1us", 1_000),
        captured("captured-10us", 10_000),
        Workload::new(
            "post-t16",
            Unit::NS_PER_TASK,
            with_bounded(Post { tasks: 16 }),
        ),
        Workload::new(
            "forget-t16",
            Unit::NS_PER_TASK,
            with_bounded(Forget { tasks: 16 }),
        ),
        Workload::new("post-t16-memory", Unit::KB, all(Memory { tasks: 16 })).uncounted(),
    ]
}

fn contend(name: &'static str, tasks: u64, ns: u64) -> Workload {
    Workload::new(name, Unit::NS_PER_TASK, all(Contend { tasks, ns }))
}

fn latency(name: &'static str, tasks: u64, ns: u64) -> Workload {
    Workload::new(name, Unit::US, all(Latency { tasks, ns }))
}

fn fairness(name: &'static str, tasks: u64, ns: u64) -> Workload {
    fairness_in(2, name, tasks, ns)
}

/// For so many times as long as other work.
fn fairness_in(times: u32, name: &'static str, tasks: u64, ns: u64) -> Workload {
    let work = Fairness { tasks, ns, times };
    Workload::new(name, Unit::PERCENT, all(work)).uncounted()
}

fn captured(name: &'static str, ns: u64) -> Workload {
    let ours = Peer::new("throng", move |rules| held(rules, ns)).note(Some(LIMIT));
    Workload::new(name, Unit::US, vec![ours]).uncounted()
}

const LIMIT: &str =
    "the limit is 16 jobs of others or 20 us; the clock is read after every fourth job";

/// A workload on a guarded state.
trait Work: Copy + 'static {
    fn run<S: Serial>(self, rules: &Rules) -> Sample;
}

/// Tasks that await each operation.
#[derive(Clone, Copy)]
struct Contend {
    tasks: u64,
    ns: u64,
}

impl Work for Contend {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        let (runtime, state) = start::<S>();
        let spin = spin(self.ns, rules);
        rules.measure(rules.scaled(operations(self.ns)), |operations| {
            let share = operations.div_ceil(self.tasks);
            on_tasks(&runtime, self.tasks, || operate(state.clone(), spin, share));
        })
    }
}

async fn operate<S: Serial>(state: S, spin: Spin, operations: u64) {
    let mut yields = YieldEvery::default();
    for _ in 0..operations {
        std::hint::black_box(state.operate(spin).await);
        yields.step().await;
    }
}

/// As [`Contend`], but the value is the 99th percentile of the time that an operation takes. The 99.9th percentile
/// and the share of slow operations are recorded as well.
#[derive(Clone, Copy)]
struct Latency {
    tasks: u64,
    ns: u64,
}

impl Work for Latency {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        let (runtime, state) = start::<S>();
        let spin = spin(self.ns, rules);
        let mut all = Vec::new();
        let sample = rules.measure_latency(rules.scaled(operations(self.ns)), 0.99, |operations| {
            let share = operations.div_ceil(self.tasks);
            let latencies = on_tasks(&runtime, self.tasks, || {
                operate_timed(state.clone(), spin, share)
            })
            .concat();
            all.extend_from_slice(&latencies);
            latencies
        });
        let slow = all.iter().filter(|&&ns| ns > SLOW_NS).count() as f64;
        let p999 = quantile(&mut all, 0.999) as f64 / 1e3;
        sample
            .with_fact("p999_us", p999)
            .with_fact("over_20us_percent", slow * 100.0 / all.len() as f64)
    }
}

async fn operate_timed<S: Serial>(state: S, spin: Spin, operations: u64) -> Vec<u64> {
    let mut yields = YieldEvery::default();
    let mut latencies = Vec::with_capacity((operations / OPERATIONS_PER_SAMPLE + 1) as usize);
    for operation in 0..operations {
        if operation.is_multiple_of(OPERATIONS_PER_SAMPLE) {
            latencies.push(time(&state, spin).await);
        } else {
            std::hint::black_box(state.operate(spin).await);
        }
        yields.step().await;
    }
    latencies
}

/// Measures an operation, in nanoseconds.
async fn time<S: Serial>(state: &S, spin: Spin) -> u64 {
    let begin = Instant::now();
    std::hint::black_box(state.operate(spin).await);
    begin.elapsed().as_nanos() as u64
}

/// As [`Contend`] for a given time. The value is the operations of the slowest task divided by those of the fastest. The
/// 99th percentile of the time of an operation is recorded as well, because one may be traded for the other.
#[derive(Clone, Copy)]
struct Fairness {
    tasks: u64,
    ns: u64,
    times: u32,
}

impl Work for Fairness {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        let (runtime, state) = start::<S>();
        let spin = spin(self.ns, rules);
        let mut shares = Vec::new();
        let sample = rules.measure_once(1, |_| {
            // A task does 128 operations before it yields. In a short time, one yield more or less would decide.
            let end = Instant::now() + rules.target * self.times;
            shares = on_tasks(&runtime, self.tasks, || {
                operate_until(state.clone(), spin, end)
            });
        });
        let counts = shares.iter().map(|share| share.operations);
        let (least, most) = (counts.clone().min(), counts.clone().max());
        let percent =
            least.expect("there are tasks") as f64 * 100.0 / most.expect("there are tasks") as f64;
        let operations = counts.sum();
        let latencies = shares.into_iter().flat_map(|share| share.latencies);
        let p99 = quantile(&mut latencies.collect::<Vec<u64>>(), 0.99);
        sample
            .spread_over(operations)
            .with_value(percent)
            .with_fact("p99_us", p99 as f64 / 1e3)
    }
}

/// The operations of one task.
#[derive(Default)]
struct Share {
    operations: u64,
    /// The times of some of them, in nanoseconds.
    latencies: Vec<u64>,
}

async fn operate_until<S: Serial>(state: S, spin: Spin, end: Instant) -> Share {
    let mut yields = YieldEvery::default();
    let mut share = Share::default();
    loop {
        if share.operations.is_multiple_of(OPERATIONS_PER_SAMPLE) {
            if Instant::now() >= end {
                return share;
            }
            share.latencies.push(time(&state, spin).await);
        } else {
            std::hint::black_box(state.operate(spin).await);
        }
        share.operations += 1;
        yields.step().await;
    }
}

fn start<S: Serial>() -> (Runtime, S) {
    let runtime = two_workers().build().expect("a runtime can be built");
    let state = {
        let _context = runtime.enter();
        S::start()
    };
    (runtime, state)
}

fn spin(ns: u64, rules: &Rules) -> Spin {
    if ns == 0 {
        Spin::NONE
    } else {
        Spin::of(ns, rules)
    }
}

/// The operations of a round, which take about a tenth of a second.
fn operations(ns: u64) -> u64 {
    if ns >= 1_000 { 100_000 } else { 400_000 }
}

/// Runs `tasks` tasks concurrently, and waits for all of them.
fn on_tasks<F>(runtime: &Runtime, tasks: u64, make: impl Fn() -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let work: Vec<F> = (0..tasks).map(|_| make()).collect();
    on_worker(runtime, async move {
        let mut running = tokio::task::JoinSet::new();
        for task in work {
            running.spawn(task);
        }
        running.join_all().await
    })
}
