//! The same with ours.

use std::error::Error;
use std::io::{self, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use throng::durable::{DurableClient, DurableExecutor, RedisStore, SpawnOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::server::{Fsync, Server, cpu_ns, mean, with_server};
use super::{CHUNK, ROUND, SPAWNERS, STORED};
use crate::areas::durable::ours::wait_until;
use crate::areas::durable::tasks::{Echo, Nothing};
use crate::areas::durable::types::{self, Other};
use crate::areas::durable::worker::Worker;
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample};

/// The number of tasks that a worker runs at a time.
pub(super) const CONCURRENCY: usize = 256;

/// A client of the store in a server.
pub(super) async fn open(url: &str) -> DurableClient {
    let store = RedisStore::open(url).await;
    DurableClient::open(store.expect("a store can be opened"))
}

/// A runtime, and a client.
pub(super) fn begin(server: &Server) -> (Runtime, DurableClient) {
    let runtime = two_workers()
        .enable_io()
        .build()
        .expect("a runtime can be built");
    let client = runtime.block_on(open(&server.url()));
    (runtime, client)
}

/// See [`types`].
pub(super) fn types(rules: &Rules, other: Other) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, _) = begin(server);
        let url = server.url();
        types::drain(rules, &runtime, other, || open(&url))
    })
}

/// One executor, and tasks that are there already.
#[derive(Clone, Copy)]
pub(super) struct Drain {
    /// The number of tasks at the start.
    pub(super) waiting: u64,
    /// The number of tasks that are to run.
    pub(super) runs: u64,
    /// The minimum size of each payload.
    pub(super) bytes: usize,
    /// The number of tasks that run at a time.
    pub(super) permits: usize,
    pub(super) fsync: Fsync,
}

impl Drain {
    pub(super) const ALL: Self = Self {
        waiting: STORED,
        runs: STORED,
        bytes: 0,
        permits: CONCURRENCY,
        fsync: Fsync::EverySecond,
    };

    /// With few tasks, several times.
    pub(super) fn run(self, rules: &Rules) -> Sample {
        with_server(rules, self.fsync, |server| {
            let (runtime, client) = begin(server);
            let (mut rounds, mut elapsed) = (Vec::new(), Duration::ZERO);
            let mut missing = rules.scaled(self.waiting);
            while elapsed < rules.target {
                fill(&runtime, &client, missing, self.bytes);
                let begin = Instant::now();
                let runs = rules.scaled(self.runs);
                let (sample, done) = drain_some(server, &runtime, &client, runs, self.permits);
                elapsed += begin.elapsed();
                missing = done;
                rounds.push(sample);
            }
            mean(rounds)
        })
    }
}

/// Stores tasks with payloads that have so many bytes, at least.
pub(super) fn fill(runtime: &Runtime, client: &DurableClient, tasks: u64, bytes: usize) {
    let client = client.clone();
    let chunk = CHUNK.min((1 << 26) / (bytes as u64 + 1));
    on_worker(runtime, async move {
        for first in (0..tasks).step_by(chunk as usize) {
            let chunk = first..tasks.min(first + chunk);
            let stored = client.spawn_all(chunk.map(|number| Nothing::sized(number, bytes)));
            drop(stored.await.expect("tasks can be stored"));
        }
    });
}

/// Runs what is stored, until the store knows of so many runs, at least. Returns of how many it knows at the end.
fn drain_some(
    server: &Server,
    runtime: &Runtime,
    client: &DurableClient,
    tasks: u64,
    permits: usize,
) -> (Sample, u64) {
    let before = count(runtime, client).done;
    let meter = server.meter();
    let mut builder = DurableExecutor::builder(client.clone());
    builder.max_running(permits);
    let executor = runtime.block_on(builder.register::<Nothing>().start(()));
    let executor = executor.expect("an executor can be started");
    while executor.metrics().completed < tasks {
        thread::sleep(Duration::from_micros(500));
    }
    let done = count(runtime, client).done - before;
    let sample = meter.end(done);
    assert!(done >= tasks, "the store knows of {done}");
    runtime.block_on(executor.shutdown(Duration::from_secs(5)));
    let metrics = executor.metrics();
    let stored = count(runtime, client);
    assert_eq!(
        stored.claimed,
        stored.done + stored.released,
        "a task ran twice"
    );
    let turns = metrics.turns as f64 / metrics.completed as f64;
    (sample.with_fact("turns/task", turns), stored.done - before)
}

pub(super) fn count(runtime: &Runtime, client: &DurableClient) -> throng::durable::Counts {
    let counts = runtime.block_on(client.counts());
    counts.expect("the store can be read")
}

/// The same, with somebody who awaits all of them: until the last output is there.
pub(super) fn drain_awaited(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let tasks = rules.scaled(STORED);
        let fill = client.clone();
        let handles = on_worker(&runtime, async move {
            fill.spawn_all((0..tasks).map(Echo::new)).await
        });
        let handles = handles.expect("tasks can be stored");
        let meter = server.meter();
        let ended = runtime.spawn(join_all(handles));
        let mut builder = DurableExecutor::builder(client);
        builder.max_running(CONCURRENCY);
        let executor = runtime.block_on(builder.register::<Echo>().start(()));
        let executor = executor.expect("an executor can be started");
        let ended = runtime.block_on(ended).expect("nobody panics");
        let sample = meter.end(tasks);
        for (number, output) in (0..).zip(ended) {
            assert_eq!(output.expect("a task ends well"), number);
        }
        drop(executor);
        sample
    })
}

/// One call stores many.
pub(super) fn spawn_all(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut stored = 0;
        let sample = server.rounds(rules, rules.scaled(ROUND), |tasks| {
            fill(&runtime, &client, tasks, 0);
            stored += tasks;
        });
        assert_eq!(count(&runtime, &client).waiting, stored);
        sample
    })
}

/// A thousand spawners, each of which waits for each of its tasks.
pub(super) fn spawn_1000(rules: &Rules) -> Sample {
    spawn_by_1000(rules, |_| SpawnOptions::new(), |spawned| spawned)
}

/// The same, with options for each number. `stored` is the number of tasks that are then stored.
pub(super) fn spawn_by_1000(
    rules: &Rules,
    options: fn(u64) -> SpawnOptions,
    stored: fn(u64) -> u64,
) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut spawned = 0;
        let sample = server.rounds(rules, rules.scaled(ROUND), |tasks| {
            let share = tasks.div_ceil(SPAWNERS);
            let (client, first) = (client.clone(), spawned);
            on_worker(&runtime, async move {
                let spawners = (0..SPAWNERS).map(|spawner| first + spawner * share);
                let spawners = spawners.map(|first| spawner(client.clone(), first, share, options));
                spawners.collect::<JoinSet<_>>().join_all().await;
            });
            spawned += share * SPAWNERS;
        });
        assert_eq!(count(&runtime, &client).waiting, stored(spawned));
        sample
    })
}

/// One spawner, which waits for each of its tasks.
pub(super) fn spawn_awaited(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut spawned = 0;
        let sample = server.rounds(rules, rules.scaled(5_000), |tasks| {
            let options = |_| SpawnOptions::new();
            on_worker(&runtime, spawner(client.clone(), spawned, tasks, options));
            spawned += tasks;
        });
        assert_eq!(count(&runtime, &client).waiting, spawned);
        sample
    })
}

async fn spawner(client: DurableClient, first: u64, share: u64, options: fn(u64) -> SpawnOptions) {
    for number in first..first + share {
        let stored = client.spawn_with(Nothing::new(number), options(number));
        drop(stored.await.expect("a task can be stored"));
    }
}

/// One executor that runs what is stored meanwhile, until the store knows that all have run.
pub(super) fn together(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let tasks = rules.scaled(STORED);
        let mut builder = DurableExecutor::builder(client.clone());
        builder.max_running(CONCURRENCY);
        let executor = runtime.block_on(builder.register::<Nothing>().start(()));
        let executor = executor.expect("an executor can be started");
        let meter = server.meter();
        fill(&runtime, &client, tasks, 0);
        while executor.metrics().completed < tasks {
            thread::sleep(Duration::from_micros(500));
        }
        let counts = count(&runtime, &client);
        let sample = meter.end(tasks);
        assert_eq!((counts.done, counts.claimed), (tasks, tasks), "{counts:?}");
        let turns = executor.metrics().turns as f64 / tasks as f64;
        sample.with_fact("turns/task", turns)
    })
}

/// The same, with the executor in a process of its own.
pub(super) fn together_2_processes(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut worker = Worker::start_on(&server.url());
        worker.wait_ready();
        worker.go();
        // One task shows that it is at work.
        fill(&runtime, &client, 1, 0);
        wait_until(|| count(&runtime, &client).done == 1);
        let tasks = rules.scaled(STORED);
        let (meter, before) = (server.meter(), cpu_ns(worker.pid()));
        fill(&runtime, &client, tasks, 0);
        wait_until(|| count(&runtime, &client).done > tasks);
        let worker_ns = cpu_ns(worker.pid()) - before;
        let sample = meter.end_with(tasks, worker_ns);
        let counts = count(&runtime, &client);
        assert_eq!(counts.claimed, tasks + 1, "a task ran twice: {counts:?}");
        sample.with_fact("worker cpu ns/task", worker_ns as f64 / tasks as f64)
    })
}

/// Runs tasks in this process: from when there is a line in its input until that ends.
pub(in crate::areas::durable) fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = two_workers().enable_io().build()?;
    let client = runtime.block_on(open(url));
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let mut builder = DurableExecutor::builder(client);
    builder.max_running(CONCURRENCY);
    let executor = runtime.block_on(builder.register::<Nothing>().start(()))?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(executor);
    Ok(())
}
