//! BullMQ, a queue for Node.js, beside ours: delays, priorities, limits and schedules.
//!
//! Both have the same server, jobs, payloads and number of workers. Each worker is a process of its own, with the same maximum of
//! running jobs and otherwise with the defaults of its system. The jobs are stored before anything is measured.

mod node;
mod plain;
mod throng;

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use self::node::Bullmq;
pub(in crate::areas::durable) use self::node::PROGRAM;
pub(super) use self::plain::{drain as drain_plain, spawn_awaited, start_latency, together};
use self::throng::Throng;
pub(in crate::areas::durable) use self::throng::work_stamped;
use super::server::{Fsync, Server, cpu_ns, with_server};
use crate::areas::durable::latencies;
use crate::areas::durable::worker::Worker;
use crate::areas::{Peer, Unit, Workload};
use crate::measure::{Rules, Sample, monotonic_ns};

/// The queue of all jobs.
const QUEUE: &str = "q";

/// The number of jobs that a worker runs at a time.
const CONCURRENCY: usize = 64;

/// The time in milliseconds for storing jobs before the first of them is due.
const STORING: u64 = 8_000;

/// The period of schedules in milliseconds.
const PERIOD: u64 = 1_000;

/// A system of queues.
trait System: Sized {
    /// Opens it with an empty server.
    fn open(rules: &Rules, server: &Server) -> Self;

    /// Stores jobs, and waits until they are stored.
    fn store(&self, jobs: Jobs);

    /// Starts a worker of so many permits, which does not run jobs yet.
    fn worker(&self, permits: usize) -> Worker;

    /// Returns the number of jobs that have run, as the server knows it.
    fn done(&self, server: &Server) -> u64;
}

/// Jobs to store.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Jobs {
    /// Jobs with neither priorities nor limits.
    Plain { tasks: u64 },
    /// Their due times are spread evenly.
    Delayed {
        tasks: u64,
        first_ms: u64,
        spread_ms: u64,
    },
    /// A third of each of three priorities.
    Prioritized { tasks: u64 },
    /// At most `limit` run at once, over all workers.
    Limited { tasks: u64, limit: u32 },
    /// Schedules, whose first ticks are spread evenly.
    Scheduled {
        tasks: u64,
        first_ms: u64,
        spread_ms: u64,
    },
}

/// The `number`th of `tasks` times that are spread evenly from `first_ms` on.
fn due_ms(number: u64, tasks: u64, first_ms: u64, spread_ms: u64) -> u64 {
    first_ms + number * spread_ms / tasks
}

pub(super) fn workloads() -> Vec<Workload> {
    let at_once = [schedules::<Throng, 0>, schedules::<Bullmq, 0>];
    let spread = [schedules::<Throng, PERIOD>, schedules::<Bullmq, PERIOD>];
    vec![
        row(
            "redis/bullmq-delays",
            Unit::US,
            [delays::<Throng>, delays::<Bullmq>],
        ),
        row(
            "redis/bullmq-priorities",
            Unit::TASKS_PER_S,
            [priorities::<Throng>, priorities::<Bullmq>],
        ),
        row(
            "redis/bullmq-limits",
            Unit::TASKS_PER_S,
            [limits::<Throng>, limits::<Bullmq>],
        ),
        row(
            "redis/bullmq-limit-1",
            Unit::US,
            [limit_1::<Throng>, limit_1::<Bullmq>],
        ),
        row("redis/bullmq-schedules", Unit::US, spread),
        row("redis/bullmq-schedules-at-once", Unit::US, at_once),
    ]
}

/// A row of both systems.
fn row(
    name: &'static str,
    unit: Unit,
    [ours, theirs]: [fn(&Rules, &Server) -> Sample; 2],
) -> Workload {
    let with = |rules: &Rules, run: fn(&Rules, &Server) -> Sample| {
        with_server(rules, Fsync::EverySecond, |server| run(rules, server))
    };
    Workload::new(
        name,
        unit,
        vec![
            Peer::new("throng", move |rules| with(rules, ours)),
            Peer::new("bullmq", move |rules| match PROGRAM.command(rules) {
                Ok(_) => with(rules, theirs),
                Err(complaint) => Sample::skipped(complaint),
            }),
        ],
    )
}

/// From when jobs are due until they begin; they become due within two seconds.
fn delays<S: System>(rules: &Rules, server: &Server) -> Sample {
    const SPREAD: u64 = 2_000;
    let tasks = rules.scaled(5_000);
    let system = S::open(rules, server);
    let mut workers = Workers::start(&system, 1, CONCURRENCY);
    workers.go();
    let first_ms = wall_ms() + STORING;
    system.store(Jobs::Delayed {
        tasks,
        first_ms,
        spread_ms: SPREAD,
    });
    sleep_until(first_ms);
    let (meter, before) = (server.meter(), workers.cpu_ns());
    sleep_until(first_ms + SPREAD);
    wait_until_done(&system, server, tasks);
    let spent = workers.cpu_ns() - before;
    let sample = with_workers(meter.end_with(tasks, spent), spent, tasks);
    let starts = workers.finish(Some(tasks)).into_iter();
    let due = |number| due_ms(number, tasks, first_ms, SPREAD);
    let starts = starts.map(|(number, begun)| (due(number), begun));
    latencies(sample, lateness(starts))
}

/// One worker runs jobs of three priorities.
fn priorities<S: System>(rules: &Rules, server: &Server) -> Sample {
    let tasks = rules.scaled(20_000);
    let (sample, _) = drain::<S>(
        rules,
        server,
        Jobs::Prioritized { tasks },
        tasks,
        1,
        CONCURRENCY,
    );
    per_second(sample)
}

/// Two workers run jobs of a queue that lets them run ten.
fn limits<S: System>(rules: &Rules, server: &Server) -> Sample {
    let tasks = rules.scaled(10_000);
    let (sample, _) = drain::<S>(
        rules,
        server,
        Jobs::Limited { tasks, limit: 10 },
        tasks,
        2,
        CONCURRENCY,
    );
    per_second(sample)
}

/// The time between two jobs of a queue that runs one at a time, with four workers.
fn limit_1<S: System>(rules: &Rules, server: &Server) -> Sample {
    let tasks = rules.scaled(2_000);
    let (sample, starts) = drain::<S>(
        rules,
        server,
        Jobs::Limited { tasks, limit: 1 },
        tasks,
        4,
        CONCURRENCY,
    );
    let mut begun: Vec<_> = starts.into_iter().map(|(_, at)| at).collect();
    begun.sort_unstable();
    let gaps = begun.windows(2).map(|pair| pair[1] - pair[0]);
    latencies(sample, gaps.collect())
}

/// From the ticks of a thousand schedules until their jobs begin, for five seconds. Each fires once per second; all of them do so
/// within `SPREAD` milliseconds.
fn schedules<S: System, const SPREAD: u64>(rules: &Rules, server: &Server) -> Sample {
    const SECONDS: u64 = 5;
    let tasks = rules.scaled(1_000);
    let system = S::open(rules, server);
    let mut workers = Workers::start(&system, 1, CONCURRENCY);
    workers.go();
    let first_ms = (wall_ms() + STORING).next_multiple_of(PERIOD);
    system.store(Jobs::Scheduled {
        tasks,
        first_ms,
        spread_ms: SPREAD,
    });
    sleep_until(first_ms);
    // The first second warms up. Between two ticks, the cost of the one is not that of the other.
    let measured = first_ms + PERIOD..first_ms + (1 + SECONDS) * PERIOD;
    sleep_between(measured.start, PERIOD / 10);
    let (meter, before) = (server.meter(), workers.cpu_ns());
    sleep_between(measured.end, PERIOD / 10);
    let (spent, wanted) = (workers.cpu_ns() - before, tasks * SECONDS);
    let sample = with_workers(meter.end_with(wanted, spent), spent, wanted);
    sleep_until(measured.end + PERIOD);
    let mut starts = workers.finish(None);
    starts.retain(|(tick, _)| measured.contains(tick));
    let ran = starts.len() as f64 / wanted as f64;
    latencies(sample, lateness(starts.into_iter())).with_fact("ticks that ran, %", 100.0 * ran)
}

/// Workers run jobs that are there already, until the server knows that all have run. Returns their starts, too.
fn drain<S: System>(
    rules: &Rules,
    server: &Server,
    jobs: Jobs,
    tasks: u64,
    workers: usize,
    permits: usize,
) -> (Sample, Vec<(u64, u64)>) {
    let system = S::open(rules, server);
    system.store(jobs);
    let mut workers = Workers::start(&system, workers, permits);
    let (meter, before) = (server.meter(), workers.cpu_ns());
    workers.go();
    wait_until_done(&system, server, tasks);
    let spent = workers.cpu_ns() - before;
    let sample = with_workers(meter.end_with(tasks, spent), spent, tasks);
    (sample, workers.finish(Some(tasks)))
}

/// Workers of a system.
struct Workers(Vec<Worker>);

impl Workers {
    fn start<S: System>(system: &S, workers: usize, permits: usize) -> Self {
        let mut workers = Self((0..workers).map(|_| system.worker(permits)).collect());
        workers.0.iter_mut().for_each(Worker::wait_ready);
        workers
    }

    fn go(&mut self) {
        self.0.iter_mut().for_each(Worker::go);
    }

    fn cpu_ns(&self) -> u64 {
        self.0.iter().map(|worker| cpu_ns(worker.pid())).sum()
    }

    /// Ends them, and returns when which job has begun. If there is a number of jobs, each of them must have run once.
    fn finish(self, tasks: Option<u64>) -> Vec<(u64, u64)> {
        let starts: Vec<_> = self.0.into_iter().flat_map(Worker::finish).collect();
        if let Some(tasks) = tasks {
            let mut numbers: Vec<_> = starts.iter().map(|&(number, _)| number).collect();
            numbers.sort_unstable();
            assert!(
                numbers.into_iter().eq(0..tasks),
                "a job was lost, or ran twice"
            );
        }
        starts
    }
}

/// The time from when each job is due, in milliseconds since 1970, until it has begun.
fn lateness(starts: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
    let monotonic = monotonic_ns();
    let ahead = since_1970().as_nanos() as u64 - monotonic;
    let late = |(due_ms, begun): (u64, u64)| (begun + ahead).saturating_sub(due_ms * 1_000_000);
    starts.map(late).collect()
}

/// The CPU time is that of the workers: this process only looks on.
fn with_workers(sample: Sample, spent: u64, tasks: u64) -> Sample {
    Sample {
        cpu_ns_per_task: Some(spent as f64 / tasks as f64),
        ctx_switches_per_task: None,
        ..sample
    }
}

/// Nanoseconds per task become tasks per second.
fn per_second(sample: Sample) -> Sample {
    let rate = 1e9 / sample.value;
    sample.with_value(rate)
}

fn wait_until_done<S: System>(system: &S, server: &Server, tasks: u64) {
    let begin = Instant::now();
    while system.done(server) < tasks {
        let waited = begin.elapsed();
        assert!(waited < Duration::from_secs(60), "jobs were not done");
        thread::sleep(Duration::from_millis(5));
    }
}

fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after 1970")
}

fn wall_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// Sleeps until a time that must not have passed.
fn sleep_until(at_ms: u64) {
    let left = at_ms.checked_sub(wall_ms());
    let left = left.expect("jobs were not stored in time");
    thread::sleep(Duration::from_millis(left));
}

/// Sleeps until so long before a tick.
fn sleep_between(tick_ms: u64, before_ms: u64) {
    sleep_until(tick_ms - before_ms);
}
