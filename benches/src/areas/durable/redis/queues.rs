//! Measures named queues in Redis: the cost of their limits, and the time between two tasks of a queue that runs one at a time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use throng::durable::{
    DurableClient, DurableExecutor, Groups, Priority, QueueSettings, ServedQueue, SpawnOptions,
};
use tokio::runtime::Runtime;

use super::ours::{CONCURRENCY, begin, count, fill};
use super::server::{Fsync, with_server};
use super::{CHUNK, STORED};
use crate::areas::durable::latencies;
use crate::areas::durable::ours::wait_until;
use crate::areas::durable::tasks::{Nothing, Stamp, Starts};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// The queues of a drain, and their weights.
const QUEUES: [(&str, u32); 4] = [("a", 8), ("b", 4), ("c", 2), ("d", 1)];

/// Where the tasks of a drain wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// In the default queue, with the normal priority.
    Plainly,
    /// In four queues with weights and limits, with a quarter of the tasks in each.
    InQueues,
    /// In the default queue, with a third of the tasks of each priority.
    ByPriority,
    /// In one queue, in this number of groups, with a quantum of 8.
    InGroups(u64),
}

impl Waiting {
    fn options(self, number: u64) -> SpawnOptions {
        const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
        let options = SpawnOptions::new();
        match self {
            Self::Plainly => options,
            Self::InQueues => options.queue(QUEUES[number as usize % QUEUES.len()].0),
            Self::InGroups(groups) => {
                let options = options.queue(QUEUES[0].0);
                options.group((number % groups).to_string())
            }
            Self::ByPriority => options.priority(PRIORITIES[number as usize % PRIORITIES.len()]),
        }
    }

    fn builder(self, client: &DurableClient) -> throng::durable::Builder<()> {
        let mut builder = DurableExecutor::builder(client.clone());
        builder.max_running(CONCURRENCY).register::<Nothing>();
        let served = match self {
            Self::InQueues => &QUEUES[..],
            Self::InGroups(_) => &QUEUES[..1],
            Self::Plainly | Self::ByPriority => &[],
        };
        for &(name, weight) in served {
            builder.serve(ServedQueue::new(name).weight(weight));
        }
        builder
    }
}

/// One executor, and tasks that are there already.
pub(super) fn drain(rules: &Rules, waiting: Waiting) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let tasks = rules.scaled(STORED);
        limit_queues(&runtime, &client, CONCURRENCY as u32);
        match waiting {
            Waiting::Plainly => fill(&runtime, &client, tasks, 0),
            _ => fill_with(&runtime, &client, tasks, waiting),
        }
        let meter = server.meter();
        let executor = runtime.block_on(waiting.builder(&client).start(()));
        let executor = executor.expect("an executor can be started");
        while executor.metrics().completed < tasks {
            thread::sleep(Duration::from_micros(500));
        }
        let sample = meter.end(tasks);
        let turns = executor.metrics().turns as f64 / tasks as f64;
        runtime.block_on(executor.shutdown(Duration::from_secs(5)));
        assert_eq!(count(&runtime, &client).done, tasks);
        sample.with_fact("turns/task", turns)
    })
}

fn limit_queues(runtime: &Runtime, client: &DurableClient, max_running: u32) {
    for (name, _) in QUEUES {
        let groups = Groups::new().quantum(8);
        let settings = QueueSettings::new()
            .max_running(max_running)
            .grouped(groups);
        let set = runtime.block_on(client.queue(name).set(settings));
        assert!(set.expect("a queue can be limited"));
    }
}

fn fill_with(runtime: &Runtime, client: &DurableClient, tasks: u64, waiting: Waiting) {
    let client = client.clone();
    on_worker(runtime, async move {
        for first in (0..tasks).step_by(CHUNK as usize) {
            let chunk = first..tasks.min(first + CHUNK);
            let chunk = chunk.map(|number| (Nothing::new(number), waiting.options(number)));
            let stored = client.spawn_all_with(chunk).await;
            drop(stored.expect("tasks can be stored"));
        }
    });
}

/// The time between two tasks of a queue that runs one at a time, with ten workers that wait for it.
pub(super) fn one_at_a_time(rules: &Rules) -> Sample {
    const WORKERS: usize = 10;
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        limit_queues(&runtime, &client, 1);
        let starts = Arc::new(Starts::default());
        let clients = (0..WORKERS).map(|_| runtime.block_on(super::ours::open(&server.url())));
        let executors = clients.map(|client| {
            let mut builder = DurableExecutor::builder(client);
            builder.register::<Stamp>().serve(ServedQueue::new("a"));
            let executor = runtime.block_on(builder.start(Arc::clone(&starts)));
            executor.expect("an executor can be started")
        });
        let executors: Vec<_> = executors.collect();
        let tasks = rules.scaled(2_000);
        let meter = server.meter();
        on_worker(&runtime, async move {
            let options = || SpawnOptions::new().queue("a");
            let tasks = (0..tasks).map(|number| (Stamp::new(number), options()));
            drop(
                client
                    .spawn_all_with(tasks)
                    .await
                    .expect("tasks can be stored"),
            );
        });
        let completed = || {
            executors
                .iter()
                .map(|it| it.metrics().completed)
                .sum::<u64>()
        };
        wait_until(|| completed() >= tasks);
        let sample = meter.end(tasks);
        let mut begun: Vec<_> = starts.0.lock().expect("nobody panics with it").clone();
        begun.sort_unstable_by_key(|&(_, at)| at);
        let gaps = begun.windows(2).map(|pair| pair[1].1 - pair[0].1);
        latencies(sample, gaps.collect())
    })
}
