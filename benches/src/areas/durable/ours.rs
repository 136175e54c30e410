//! The same with ours, and what only ours is asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableExecutor, SqliteStore};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::steps::Stepped;
use super::tasks::{Echo, Nothing, Stamp, Starts};
use super::types::{self, Other};
use super::worker::Worker;
use super::{SPAWNERS, STORED, Syncs, file, latencies, longer, new_dir, read};
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, Section, monotonic_ns};

/// See [`types`].
pub(super) fn types(rules: &Rules, other: Other) -> Sample {
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    types::drain(rules, &runtime, other, || open(dir.path()))
}

/// Between two tasks where latencies are asked for.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// A client of the store in a directory.
pub(super) async fn open(dir: &Path) -> DurableClient {
    let store = SqliteStore::open(file(dir)).await;
    DurableClient::open(store.expect("a store can be opened"))
}

/// 64 spawners, each of which waits for each of its tasks.
pub(super) fn enqueue(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(open(dir.path()));
    let (syncs, mut stored) = (Syncs::begin(), 0);
    let sample = longer(rules).measure(rules.scaled(64_000), |tasks| {
        let client = client.clone();
        let share = tasks.div_ceil(SPAWNERS);
        on_worker(&runtime, async move {
            let spawner = |client: DurableClient, first| async move {
                for number in first..first + share {
                    let stored = client.spawn(Nothing::new(number)).await;
                    drop(stored.expect("a task can be stored"));
                }
            };
            let spawners = (0..SPAWNERS).map(|spawner| spawner * share);
            let spawners = spawners.map(|first| spawner(client.clone(), first));
            spawners.collect::<JoinSet<_>>().join_all().await;
        });
        stored += share * SPAWNERS;
    });
    let counts = runtime.block_on(client.counts());
    let counts = counts.expect("the store can be read");
    assert_eq!(counts.waiting, stored, "a task was lost or came twice");
    syncs.note(sample, stored)
}

/// One executor, and tasks that are there already.
pub(super) fn drain(rules: &Rules) -> Sample {
    drain_with(rules, STORED, 256)
}

/// The same, with one task at a time.
pub(super) fn drain_1(rules: &Rules) -> Sample {
    drain_with(rules, 10_000, 1)
}

fn drain_with(rules: &Rules, tasks: u64, permits: usize) -> Sample {
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    let tasks = rules.scaled(tasks);
    let client = runtime.block_on(open(dir.path()));
    let fill = client.clone();
    on_worker(&runtime, async move {
        let stored = fill.spawn_all((0..tasks).map(Nothing::new)).await;
        drop(stored.expect("tasks can be stored"));
    });
    let (syncs, section) = (Syncs::begin(), Section::begin());
    let mut builder = DurableExecutor::builder(client.clone());
    builder.max_running(permits);
    let executor = runtime.block_on(builder.register::<Nothing>().start(()));
    let executor = executor.expect("an executor can be started");
    while executor.metrics().completed < tasks {
        thread::sleep(Duration::from_micros(200));
    }
    let counts = runtime.block_on(client.counts());
    let sample = section.end().per_task(tasks);
    let counts = counts.expect("the store can be read");
    assert_eq!((counts.done, counts.waiting), (tasks, 0), "{counts:?}");
    let metrics = executor.metrics();
    assert_eq!(metrics.claimed, tasks, "a task ran twice");
    syncs
        .note(sample, tasks)
        .with_fact("turns/task", metrics.turns as f64 / tasks as f64)
}

/// From before a task is stored until it begins, in one process.
pub(super) fn start_latency(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(open(dir.path()));
    let starts = Arc::new(Starts::default());
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Stamp>();
    let executor = runtime.block_on(builder.start(starts.clone()));
    let executor = executor.expect("an executor can be started");
    let section = Section::begin();
    let spawned = on_worker(&runtime, spawn_paced(client, rules.scaled(400)));
    wait_until(|| executor.metrics().completed >= spawned.len() as u64);
    let cost = section.end();
    let starts = starts.0.lock().expect("nobody panics with it").clone();
    let begins: Vec<_> = spawned.iter().map(|spawned| spawned.begin).collect();
    let sample = cost.per_task(spawned.len() as u64);
    with_commit(latencies(sample, since(&begins, &starts)), &spawned)
}

/// From when a task is stored until it begins, in another process.
pub(super) fn start_latency_2_processes(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut worker = Worker::start(dir.path(), None);
    worker.wait_ready();
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(open(dir.path()));
    let section = Section::begin();
    let before = Switches::of(worker.pid());
    let spawned = on_worker(&runtime, spawn_paced(client.clone(), rules.scaled(400)));
    let cost = section.end();
    // Whatever is late is late; what is lost is not there at the end.
    wait_until(|| done(&runtime, &client) >= spawned.len() as u64);
    let worker_ns = Switches::of(worker.pid())
        .cpu_ns
        .saturating_sub(before.cpu_ns);
    let starts = worker.finish();
    let begins: Vec<_> = spawned.iter().map(|spawned| spawned.begin).collect();
    let ends: Vec<_> = spawned.iter().map(|spawned| spawned.end).collect();
    let tasks = spawned.len() as u64;
    let from_spawn = latencies(Sample::default(), since(&begins, &starts));
    with_commit(
        latencies(cost.per_task(tasks), since(&ends, &starts)),
        &spawned,
    )
    .with_fact("spawn to start p50 us", from_spawn.value)
    .with_fact("worker cpu us/task", worker_ns as f64 / 1e3 / tasks as f64)
}

/// Wake-ups of a process whose worker has nothing to do. Who spawned its tasks is gone.
pub(super) fn idle(rules: &Rules) -> Sample {
    idle_worker(rules, false)
}

/// As [`idle`], while who spawned its tasks is still there, and does nothing.
pub(super) fn idle_beside_a_producer(rules: &Rules) -> Sample {
    idle_worker(rules, true)
}

fn idle_worker(rules: &Rules, producer_stays: bool) -> Sample {
    let dir = new_dir(rules);
    let mut worker = Worker::start(dir.path(), None);
    worker.wait_ready();
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(open(dir.path()));
    let some = on_worker(&runtime, spawn_paced(client.clone(), 50));
    wait_until(|| done(&runtime, &client) >= some.len() as u64);
    // It comes to rest first.
    let producer = Some((client, runtime)).filter(|_| producer_stays);
    thread::sleep(Duration::from_secs(if rules.quick { 1 } else { 3 }));
    let section = Section::begin();
    let before = Switches::of(worker.pid());
    thread::sleep(Duration::from_secs(if rules.quick { 2 } else { 10 }));
    let after = Switches::of(worker.pid());
    let cost = section.end();
    let per_s = |number: u64| number as f64 / cost.elapsed.as_secs_f64();
    let (voluntary, other) = (per_s(after.voluntary(&before)), per_s(after.other(&before)));
    let cpu_us = per_s(after.cpu_ns.saturating_sub(before.cpu_ns)) / 1e3;
    drop((worker, producer));
    cost.absolute(voluntary)
        .with_fact("involuntary/s", other)
        .with_fact("cpu us/s", cpu_us)
}

/// One task after another is spawned and awaited.
pub(super) fn round_trip(rules: &Rules) -> Sample {
    let mut took = Vec::new();
    let round = |tasks, client: DurableClient| async move {
        let mut took = Vec::with_capacity(tasks as usize);
        for number in 0..tasks {
            let begin = Instant::now();
            spawn_and_await(&client, number).await;
            took.push(begin.elapsed().as_nanos() as u64);
        }
        took
    };
    let sample = awaiting(rules, rules.scaled(200), round, |round| took.extend(round));
    latencies(sample, took)
}

/// 64 at once do that; the value is the time of one.
pub(super) fn round_trip_64(rules: &Rules) -> Sample {
    let round = |tasks: u64, client: DurableClient| async move {
        let share = tasks.div_ceil(SPAWNERS);
        let spawner = |client: DurableClient| async move {
            for number in 0..share {
                spawn_and_await(&client, number).await;
            }
        };
        let spawners = (0..SPAWNERS).map(|_| spawner(client.clone()));
        spawners.collect::<JoinSet<_>>().join_all().await;
    };
    awaiting(rules, rules.scaled(16_000), round, drop)
}

pub(super) async fn spawn_and_await(client: &DurableClient, number: u64) {
    let handle = client.spawn(Echo::new(number)).await;
    let output = handle.expect("a task can be stored").await;
    assert_eq!(output.expect("a task ends well"), number);
}

/// Measures rounds of what is spawned and awaited; `take` gets what each has returned.
pub(super) fn awaiting<F>(
    rules: &Rules,
    tasks: u64,
    round: impl Fn(u64, DurableClient) -> F,
    mut take: impl FnMut(F::Output),
) -> Sample
where
    F: Future<Output: Send> + Send + 'static,
{
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(open(dir.path()));
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Echo>().register::<Stepped>();
    let executor = runtime.block_on(builder.start(()));
    let executor = executor.expect("an executor can be started");
    let syncs = Syncs::begin();
    let sample = longer(rules).measure(tasks, |tasks| {
        take(on_worker(&runtime, round(tasks, client.clone())));
    });
    let metrics = executor.metrics();
    let turns = metrics.turns as f64 / metrics.completed as f64;
    let sample = syncs.note(sample, metrics.completed);
    sample.with_fact("turns/task", turns)
}

/// When a task was spawned, and when it was stored.
#[derive(Clone, Copy)]
pub(super) struct Spawned {
    pub(super) begin: u64,
    end: u64,
}

pub(super) async fn spawn_paced(client: DurableClient, tasks: u64) -> Vec<Spawned> {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut spawned = Vec::with_capacity(tasks as usize);
    for number in 0..tasks {
        ticks.tick().await;
        let begin = monotonic_ns();
        let stored = client.spawn(Stamp::new(number)).await;
        let end = monotonic_ns();
        drop(stored.expect("a task can be stored"));
        spawned.push(Spawned { begin, end });
    }
    spawned
}

/// From each of `from` until the task of that number has begun.
pub(super) fn since(from: &[u64], starts: &[(u64, u64)]) -> Vec<u64> {
    let starts: BTreeMap<u64, u64> = starts.iter().copied().collect();
    let since = |(number, from): (u64, &u64)| {
        let begun = starts.get(&number).expect("a task was lost");
        // It can begin before its spawner has heard that it is stored.
        begun.saturating_sub(*from)
    };
    (0..).zip(from).map(since).collect()
}

/// Adds how long it took until tasks were stored.
pub(super) fn with_commit(sample: Sample, spawned: &[Spawned]) -> Sample {
    let took = spawned.iter().map(|spawned| spawned.end - spawned.begin);
    let commit = latencies(Sample::default(), took.collect());
    sample
        .with_fact("spawn p50 us", commit.value)
        .with_fact("spawn p99 us", commit.facts["p99 us"])
}

fn done(runtime: &tokio::runtime::Runtime, client: &DurableClient) -> u64 {
    let counts = runtime.block_on(client.counts());
    counts.expect("the store can be read").done
}

/// Looks from time to time, and not for ever.
pub(super) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "tasks were not done"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Context switches of the threads of a process, and its CPU time.
struct Switches {
    threads: BTreeMap<String, (u64, u64)>,
    cpu_ns: u64,
}

impl Switches {
    fn of(pid: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
        let mut switches = Self {
            threads: BTreeMap::new(),
            cpu_ns: 0,
        };
        for thread in threads.flatten() {
            let status = read(thread.path().join("status"));
            let number = |key: &str| {
                let mut lines = status.lines();
                let line = lines.find_map(|line| line.strip_prefix(key));
                line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
            };
            let both = (
                number("voluntary_ctxt_switches:"),
                number("nonvoluntary_ctxt_switches:"),
            );
            let name = thread.file_name().to_string_lossy().into_owned();
            switches.threads.insert(name, both);
            let spent = read(thread.path().join("schedstat"));
            let spent = spent.split(' ').next().and_then(|ns| ns.parse().ok());
            switches.cpu_ns += spent.unwrap_or(0);
        }
        switches
    }

    fn voluntary(&self, before: &Self) -> u64 {
        self.more(before, |both| both.0)
    }

    fn other(&self, before: &Self) -> u64 {
        self.more(before, |both| both.1)
    }

    /// Returns the CPU time since then. Threads that have started later count from their start.
    fn more(&self, before: &Self, which: fn(&(u64, u64)) -> u64) -> u64 {
        let more = self.threads.iter().map(|(thread, now)| {
            let before = before.threads.get(thread).map_or(0, which);
            which(now).saturating_sub(before)
        });
        more.sum()
    }
}
