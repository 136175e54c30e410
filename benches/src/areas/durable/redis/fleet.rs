//! A fleet: many workers with connections of their own, idle or at a given rate of tasks.
//!
//! All of them are in this process, since a thousand processes do not fit on a small machine. The server cannot tell: each worker has a
//! client of its own, with two connections and a session.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use throng::durable::{DurableClient, DurableExecutor, RedisStore};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};

use super::ours::count;
use super::server::{Fsync, Server, with_server};
use crate::areas::durable::latencies;
use crate::areas::durable::ours::{since, wait_until};
use crate::areas::durable::tasks::{Stamp, Starts};
use crate::areas::{Peer, Unit, Workload, on_worker, two_workers};
use crate::measure::{Rules, Sample, monotonic_ns};

/// The tasks per second of a fleet that runs 10^8 tasks a day, in its busiest hour.
const RATE: u64 = 5_800;
/// Each stores its share of the tasks one after the other.
const PRODUCERS: u64 = 8;
const WORKERS: [(usize, [&str; 2]); 3] = [
    (10, ["redis/fleet-idle-10", "redis/fleet-busy-10"]),
    (100, ["redis/fleet-idle-100", "redis/fleet-busy-100"]),
    (1_000, ["redis/fleet-idle-1000", "redis/fleet-busy-1000"]),
];

pub(super) fn workloads() -> Vec<Workload> {
    let rows = WORKERS.into_iter().flat_map(|(workers, [idle, busy])| {
        [
            row(idle, workers, Fleet::idle),
            row(busy, workers, Fleet::busy),
        ]
    });
    rows.collect()
}

/// One partition, and four.
fn row(
    name: &'static str,
    workers: usize,
    measure: fn(Fleet, &Rules, &Server) -> Sample,
) -> Workload {
    let peer = |name, partitions| {
        Peer::new(name, move |rules: &Rules| {
            let fleet = Fleet {
                workers,
                partitions,
            };
            with_server(rules, Fsync::EverySecond, |server| {
                measure(fleet, rules, server)
            })
        })
    };
    Workload::new(
        name,
        Unit::CPU_US_PER_S,
        vec![peer("throng", 1), peer("4 partitions", 4)],
    )
}

#[derive(Clone, Copy)]
struct Fleet {
    workers: usize,
    partitions: usize,
}

impl Fleet {
    /// The CPU time of the server while there are no tasks.
    fn idle(self, rules: &Rules, server: &Server) -> Sample {
        let (runtime, client) = self.begin(server);
        let executors = self.start(&runtime, server, &Arc::default());
        // Sessions that have just been opened do more than others.
        thread::sleep(Duration::from_secs(if rules.quick { 2 } else { 12 }));
        let (begin, before) = (Instant::now(), server.cpu_ns());
        let scripts = server.scripts();
        thread::sleep(Duration::from_secs(if rules.quick { 2 } else { 20 }));
        let seconds = begin.elapsed().as_secs_f64();
        let sample = per_second(server, before, seconds);
        let connections = server.connections();
        drop((executors, client));
        sample
            .with_fact("scripts/s", (server.scripts() - scripts) as f64 / seconds)
            .with_fact("connections", connections as f64)
    }

    /// The CPU time of the server at a rate, and the time from before a task is stored until it starts.
    fn busy(self, rules: &Rules, server: &Server) -> Sample {
        let (runtime, client) = self.begin(server);
        let starts = Arc::<Starts>::default();
        let executors = self.start(&runtime, server, &starts);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| self.client(&runtime, server))
            .collect();
        let tasks = RATE / PRODUCERS * if rules.quick { 2 } else { 10 };
        let (begin, before) = (Instant::now(), server.cpu_ns());
        let scripts = server.scripts();
        let stored = on_worker(&runtime, async move {
            let producers = (0..).zip(producers);
            join_all(producers.map(|(n, client)| tokio::spawn(produce(client, n * tasks, tasks))))
                .await
        });
        let seconds = begin.elapsed().as_secs_f64();
        let all = tasks * PRODUCERS;
        let sample = per_second(server, before, seconds);
        let sent = server.scripts() - scripts;
        wait_until(|| count(&runtime, &client).done >= all);
        let turns: u64 = executors.iter().map(|it| it.metrics().turns).sum();
        let stored: Vec<u64> = stored
            .into_iter()
            .flat_map(|it| it.expect("nobody panics"))
            .collect();
        let begun = starts.0.lock().expect("nobody panics with it").clone();
        let value = sample.value;
        drop(executors);
        latencies(sample, since(&stored, &begun))
            .with_value(value)
            .with_fact("tasks/s", all as f64 / seconds)
            .with_fact("scripts/task", sent as f64 / all as f64)
            .with_fact("turns/task", turns as f64 / all as f64)
    }

    fn begin(self, server: &Server) -> (Runtime, DurableClient) {
        let runtime = two_workers()
            .enable_io()
            .build()
            .expect("a runtime can be built");
        let client = self.client(&runtime, server);
        (runtime, client)
    }

    fn client(self, runtime: &Runtime, server: &Server) -> DurableClient {
        let url = server.url();
        let store = runtime.block_on(RedisStore::builder(&url).partitions(self.partitions).open());
        DurableClient::open(store.expect("a store can be opened"))
    }

    fn start(
        self,
        runtime: &Runtime,
        server: &Server,
        starts: &Arc<Starts>,
    ) -> Vec<DurableExecutor> {
        let workers = (0..self.workers).map(|_| {
            let mut builder = DurableExecutor::builder(self.client(runtime, server));
            builder.register::<Stamp>();
            let executor = runtime.block_on(builder.start(Arc::clone(starts)));
            executor.expect("an executor can be started")
        });
        workers.collect()
    }
}

fn per_second(server: &Server, before: u64, seconds: f64) -> Sample {
    let spent = server.cpu_ns() - before;
    Sample::default().with_value(spent as f64 / 1e3 / seconds)
}

/// Stores its share of the tasks at its share of the rate. Returns the times before that.
async fn produce(client: DurableClient, first: u64, tasks: u64) -> Vec<u64> {
    let mut ticks = interval(Duration::from_secs(1) / (RATE / PRODUCERS) as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut begun = Vec::with_capacity(tasks as usize);
    for number in first..first + tasks {
        ticks.tick().await;
        begun.push(monotonic_ns());
        let stored = client.spawn(Stamp::new(number)).await;
        drop(stored.expect("a task can be stored"));
    }
    begun
}
