//! Measures the latency of one task with throng, and the cost of an idle worker.

use std::sync::Arc;
use std::time::Instant;

use throng::durable::{DurableClient, DurableExecutor};

use super::ours::{begin, count};
use super::server::{Fsync, cpu_ns, with_server};
use crate::areas::durable::latencies;
use crate::areas::durable::ours::{since, spawn_and_await, spawn_paced, wait_until, with_commit};
use crate::areas::durable::tasks::{Echo, Stamp, Starts};
use crate::areas::durable::worker::Worker;
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// From before a task is stored until it begins, in one process.
pub(super) fn start(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let starts = Arc::new(Starts::default());
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Stamp>();
        let executor = runtime.block_on(builder.start(starts.clone()));
        let executor = executor.expect("an executor can be started");
        let meter = server.meter();
        let spawned = on_worker(&runtime, spawn_paced(client, rules.scaled(400)));
        wait_until(|| executor.metrics().completed >= spawned.len() as u64);
        let sample = meter.end(spawned.len() as u64);
        let begun = starts.0.lock().expect("nobody panics with it").clone();
        let begins: Vec<_> = spawned.iter().map(|spawned| spawned.begin).collect();
        let sample = with_commit(latencies(sample, since(&begins, &begun)), &spawned);
        server.with_idle(sample, rules, || cpu_ns(std::process::id()))
    })
}

/// The same, with the executor in a process of its own.
pub(super) fn start_2_processes(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut worker = Worker::start_stamped(&server.url(), 64, None);
        worker.wait_ready();
        worker.go();
        // One task shows that it is at work.
        let first = client.clone();
        on_worker(&runtime, async move {
            let stored = first.spawn(Stamp::new(u64::MAX)).await;
            drop(stored.expect("a task can be stored"));
        });
        let done = || count(&runtime, &client).done;
        wait_until(|| done() == 1);
        let (meter, before) = (server.meter(), cpu_ns(worker.pid()));
        let spawned = on_worker(&runtime, spawn_paced(client.clone(), rules.scaled(400)));
        let tasks = spawned.len() as u64;
        wait_until(|| done() > tasks);
        let worker_ns = cpu_ns(worker.pid()) - before;
        let sample = meter.end_with(tasks, worker_ns);
        let sample = server.with_idle(sample, rules, || cpu_ns(worker.pid()));
        let begins: Vec<_> = spawned.iter().map(|spawned| spawned.begin).collect();
        let sample = latencies(sample, since(&begins, &worker.finish()));
        with_commit(sample, &spawned)
            .with_fact("worker cpu us/task", worker_ns as f64 / 1e3 / tasks as f64)
    })
}

/// One task after another is spawned and awaited.
pub(super) fn round_trip(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Echo>();
        let executor = runtime.block_on(builder.start(()));
        let executor = executor.expect("an executor can be started");
        let mut took = Vec::new();
        let sample = server.rounds(rules, rules.scaled(200), |tasks| {
            took.extend(on_worker(&runtime, rounds(client.clone(), tasks)));
        });
        drop(executor);
        latencies(sample, took)
    })
}

async fn rounds(client: DurableClient, tasks: u64) -> Vec<u64> {
    let mut took = Vec::with_capacity(tasks as usize);
    for number in 0..tasks {
        let begin = Instant::now();
        spawn_and_await(&client, number).await;
        took.push(begin.elapsed().as_nanos() as u64);
    }
    took
}
