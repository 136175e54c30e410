//! The same with ours.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableExecutor, PostgresStore};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;

use super::server::{Server, with_server};
use super::{CHUNK, SPAWNED, STORED};
use crate::areas::durable::ours::{PAUSE, since, wait_until};
use crate::areas::durable::tasks::{Nothing, Stamp, Starts};
use crate::areas::durable::{SPAWNERS, latencies};
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, monotonic_ns};

/// A runtime, and a client.
fn begin(server: &Server) -> (Runtime, DurableClient) {
    let runtime = runtime();
    let store = runtime.block_on(PostgresStore::open(&server.url()));
    let client = DurableClient::open(store.expect("a store can be opened"));
    (runtime, client)
}

pub(super) fn runtime() -> Runtime {
    let mut builder = two_workers();
    builder.enable_io().build().expect("a runtime can be built")
}

/// One executor, and tasks that are there already.
#[derive(Clone, Copy)]
pub(super) struct Drain {
    /// The number of tasks that run at a time.
    pub(super) permits: usize,
    /// A transaction that has begun before the tasks were stored stays open.
    pub(super) beside_old_transaction: bool,
}

impl Drain {
    pub(super) fn run(self, rules: &Rules) -> Sample {
        with_server(rules, |server| {
            let (runtime, client) = begin(server);
            let old = self
                .beside_old_transaction
                .then(|| runtime.block_on(hold(server)));
            let tasks = rules.scaled(STORED);
            fill(&runtime, &client, tasks);
            let sample = self.drain(server, &runtime, &client, tasks);
            drop(old);
            sample
        })
    }

    fn drain(
        self,
        server: &Server,
        runtime: &Runtime,
        client: &DurableClient,
        tasks: u64,
    ) -> Sample {
        let meter = server.meter();
        let mut builder = DurableExecutor::builder(client.clone());
        builder.max_running(self.permits);
        let executor = runtime.block_on(builder.register::<Nothing>().start(()));
        let executor = executor.expect("an executor can be started");
        while executor.metrics().completed < tasks {
            thread::sleep(Duration::from_micros(500));
        }
        let sample = meter.end(tasks);
        let counts = runtime.block_on(client.counts());
        let counts = counts.expect("the store can be read");
        assert_eq!((counts.done, counts.waiting), (tasks, 0), "{counts:?}");
        let metrics = executor.metrics();
        assert_eq!(metrics.claimed, tasks, "a task ran twice");
        sample.with_fact("turns/task", metrics.turns as f64 / tasks as f64)
    }
}

/// Begins a transaction that sees the database as it is now. It ends with the connection.
async fn hold(server: &Server) -> Client {
    let client = server.connect().await;
    let begun = client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    begun.await.expect("a transaction can begin");
    client
}

/// Stores tasks.
fn fill(runtime: &Runtime, client: &DurableClient, tasks: u64) {
    let client = client.clone();
    on_worker(runtime, async move {
        for first in (0..tasks).step_by(CHUNK as usize) {
            let chunk = first..tasks.min(first + CHUNK);
            let stored = client.spawn_all(chunk.map(Nothing::new));
            drop(stored.await.expect("tasks can be stored"));
        }
    });
}

/// 64 spawners, each of which waits for each of its tasks.
pub(super) fn spawn(rules: &Rules) -> Sample {
    with_server(rules, |server| {
        let (runtime, client) = begin(server);
        let share = rules.scaled(SPAWNED).div_ceil(SPAWNERS);
        let spawner = move |client: DurableClient, first| async move {
            for number in first..first + share {
                let stored = client.spawn(Nothing::new(number)).await;
                drop(stored.expect("a task can be stored"));
            }
        };
        let meter = server.meter();
        let spawning = client.clone();
        on_worker(&runtime, async move {
            let spawners = (0..SPAWNERS).map(|spawner| spawner * share);
            let spawners = spawners.map(|first| spawner(spawning.clone(), first));
            spawners.collect::<JoinSet<_>>().join_all().await;
        });
        let sample = meter.end(share * SPAWNERS);
        let counts = runtime.block_on(client.counts());
        let counts = counts.expect("the store can be read");
        assert_eq!(counts.waiting, share * SPAWNERS, "{counts:?}");
        sample
    })
}

/// From before a task is stored until it begins, in one process. Between two tasks, another client commits a row.
pub(super) fn start_latency(rules: &Rules) -> Sample {
    with_server(rules, |server| {
        let (runtime, client) = begin(server);
        let starts = Arc::new(Starts::default());
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Stamp>();
        let executor = runtime.block_on(builder.start(starts.clone()));
        let executor = executor.expect("an executor can be started");
        let plain = runtime.block_on(server.connect());
        let tasks = rules.scaled(400);
        let meter = server.meter();
        let spawned = on_worker(&runtime, spawn_and_commit(client, plain, tasks));
        wait_until(|| executor.metrics().completed >= tasks);
        let sample = meter.end(tasks);
        let starts = starts.0.lock().expect("nobody panics with it").clone();
        let commit = latencies(Sample::default(), spawned.commits).value;
        let stored = latencies(Sample::default(), spawned.stored).value;
        let sample = latencies(sample, since(&spawned.begins, &starts));
        let over = sample.value - 2.0 * commit;
        sample
            .with_fact("spawn p50 us", stored)
            .with_fact("commit p50 us", commit)
            .with_fact("over two commits us", over)
    })
}

/// When tasks were spawned; how long it took to store each, and to commit a row.
#[derive(Default)]
struct Spawned {
    begins: Vec<u64>,
    stored: Vec<u64>,
    commits: Vec<u64>,
}

async fn spawn_and_commit(client: DurableClient, plain: Client, tasks: u64) -> Spawned {
    let table = plain.batch_execute("CREATE TABLE plain (number bigint)");
    table.await.expect("a table can be made");
    let insert = plain.prepare("INSERT INTO plain VALUES ($1)").await;
    let insert = insert.expect("there is such a table");
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut spawned = Spawned::default();
    for number in 0..tasks {
        ticks.tick().await;
        let begin = Instant::now();
        let committed = plain.execute(&insert, &[&(number as i64)]).await;
        committed.expect("a row can be written");
        spawned.commits.push(begin.elapsed().as_nanos() as u64);
        ticks.tick().await;
        let begin = monotonic_ns();
        let stored = client.spawn(Stamp::new(number)).await;
        drop(stored.expect("a task can be stored"));
        spawned.begins.push(begin);
        spawned.stored.push(monotonic_ns() - begin);
    }
    spawned
}
