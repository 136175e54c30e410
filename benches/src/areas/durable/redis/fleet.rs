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

use super::fleet_model;
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
const PACE: Duration = Duration::from_nanos(1_000_000_000 / (RATE / PRODUCERS));
/// The number of tasks that a worker runs at a time, by default.
const PERMITS: u64 = 64;
const WORKERS: [(usize, [&str; 2]); 3] = [
    (10, ["redis/fleet-idle-10", "redis/fleet-busy-10"]),
    (100, ["redis/fleet-idle-100", "redis/fleet-busy-100"]),
    (1_000, ["redis/fleet-idle-1000", "redis/fleet-busy-1000"]),
];

pub(super) fn workloads() -> Vec<Workload> {
    let rows = WORKERS.into_iter().flat_map(|(workers, [idle, busy])| {
        [
            row(idle, workers, false, Fleet::idle),
            row(busy, workers, true, Fleet::busy),
        ]
    });
    rows.collect()
}

/// One partition, and four.
fn row(
    name: &'static str,
    workers: usize,
    models: bool,
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
    let mut peers = vec![peer("throng", 1), peer("4 partitions", 4)];
    peers.extend(
        models
            .then(|| {
                [
                    model("model", workers, 1),
                    model("model, 4 partitions", workers, 4),
                ]
            })
            .into_iter()
            .flatten(),
    );
    Workload::new(name, Unit::CPU_US_PER_S, peers)
}

/// The prediction of the model, with the costs of the requests of one worker at this server.
fn model(name: &'static str, workers: usize, partitions: usize) -> Peer {
    Peer::new(name, move |rules: &Rules| {
        let fleet = Fleet {
            workers,
            partitions,
        };
        with_server(rules, Fsync::EverySecond, |server| {
            fleet.predict(rules, server)
        })
    })
    .note(Some(
        "predicted from the costs of requests of one worker; not measured",
    ))
}

/// What a fleet has done.
struct Run {
    seconds: f64,
    /// The CPU time of the server.
    cpu_ns: u64,
    scripts: u64,
    turns: u64,
    /// The times before each task was stored.
    stored: Vec<u64>,
    /// The numbers of the tasks, and the times at which they have begun.
    begun: Vec<(u64, u64)>,
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
        let run = self.run(rules, server);
        let all = run.stored.len() as f64;
        latencies(Sample::default(), since(&run.stored, &run.begun))
            .with_value(run.cpu_ns as f64 / 1e3 / run.seconds)
            .with_fact("tasks/s", all / run.seconds)
            .with_fact("scripts/task", run.scripts as f64 / all)
            .with_fact("turns/task", run.turns as f64 / all)
    }

    /// Runs tasks at the rate.
    fn run(self, rules: &Rules, server: &Server) -> Run {
        let (runtime, client) = self.begin(server);
        let ended = count(&runtime, &client).done;
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
            join_all(
                producers.map(|(n, client)| tokio::spawn(produce(client, n * tasks, tasks, PACE))),
            )
            .await
        });
        let seconds = begin.elapsed().as_secs_f64();
        let (cpu_ns, scripts) = (server.cpu_ns() - before, server.scripts() - scripts);
        wait_until(|| count(&runtime, &client).done >= ended + tasks * PRODUCERS);
        let stored = stored
            .into_iter()
            .flat_map(|it| it.expect("nobody panics"))
            .collect();
        let begun = starts.0.lock().expect("nobody panics with it").clone();
        Run {
            seconds,
            cpu_ns,
            scripts,
            turns: executors.iter().map(|it| it.metrics().turns).sum(),
            stored,
            begun,
        }
    }

    /// Predicts the CPU time of the server from what requests cost with one worker.
    fn predict(self, rules: &Rules, server: &Server) -> Sample {
        let costs = self.costs(rules, server);
        let predicted = fleet_model::predict(self.model(self.workers), costs, 10 * RATE);
        Sample::default()
            .with_value(predicted.cpu_us_per_s)
            .with_fact("scripts/task", predicted.scripts_per_task)
            .with_fact("ns to store", costs.store as f64)
            .with_fact("ns to visit", costs.visit as f64)
            .with_fact("ns a task", costs.task as f64)
            .with_fact("ns under way", costs.way as f64)
    }

    fn model(self, workers: usize) -> fleet_model::Fleet {
        fleet_model::Fleet {
            workers,
            partitions: self.partitions,
            permits: PERMITS,
            rate: RATE,
        }
    }

    /// Measures what requests cost: those that store tasks, and those of one worker, first with many tasks at once and then at the rate.
    fn costs(self, rules: &Rules, server: &Server) -> fleet_model::Costs {
        let (runtime, client) = self.begin(server);
        let tasks = rules.scaled(2_000);
        let spent = |work: &mut dyn FnMut()| {
            let before = server.cpu_ns();
            work();
            (server.cpu_ns() - before) / tasks
        };
        let store = spent(&mut || {
            on_worker(&runtime, produce(client.clone(), 0, tasks, Duration::ZERO));
        });
        let one = Self { workers: 1, ..self };
        let starts = Arc::<Starts>::default();
        let mut executors = Vec::new();
        let task = spent(&mut || {
            executors = one.start(&runtime, server, &starts);
            wait_until(|| count(&runtime, &client).done >= tasks);
        });
        drop(executors);
        let run = one.run(rules, server);
        let all = run.stored.len() as u64;
        let visits = run.scripts.saturating_sub(all).max(1);
        let costs = fleet_model::Costs {
            store,
            visit: run.cpu_ns.saturating_sub(all * (store + task)) / visits,
            task: task / 2,
            way: 0,
        };
        fleet_model::with_way(self.model(1), costs, run.scripts as f64 / all as f64)
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

/// Stores tasks, one in each interval. Returns the times before that.
async fn produce(client: DurableClient, first: u64, tasks: u64, pace: Duration) -> Vec<u64> {
    let mut ticks = interval(pace.max(Duration::from_nanos(1)));
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
