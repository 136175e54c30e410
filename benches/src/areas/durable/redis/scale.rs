//! Benchmarks without peers: memory, and several processes.

use std::thread;
use std::time::Duration;

use super::STORED;
use super::ours::{begin, count, fill};
use super::server::{Fsync, cpu_ns, with_server};
use crate::areas::durable::tasks::Mail;
use crate::areas::durable::worker::Worker;
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// Bytes of the server for a task that waits, with a payload of a hundred bytes.
pub(super) fn memory(rules: &Rules) -> Sample {
    let empty = memory_of(rules, 0);
    memory_of(rules, 98).with_fact("with 2 B of payload", empty.value)
}

fn memory_of(rules: &Rules, letters: usize) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let before = server.memory();
        let tasks = rules.scaled(STORED);
        let meter = server.meter();
        let (runtime, client) = begin(server);
        let all = (0..tasks).map(move |_| Mail("x".repeat(letters)));
        let handles = on_worker(&runtime, async move { client.spawn_all(all).await });
        // With the last handle, the client ends, and what its connections need.
        drop(handles.expect("tasks can be stored"));
        drop(runtime);
        let sample = meter.end(tasks);
        sample.with_value((server.memory() - before) as f64 / tasks as f64)
    })
}

/// Several processes drain one store.
pub(super) fn drain_processes(rules: &Rules, processes: usize) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let tasks = rules.scaled(STORED);
        fill(&runtime, &client, tasks, 0);
        let workers = (0..processes).map(|_| Worker::start_on(&server.url()));
        let mut workers: Vec<_> = workers.collect();
        workers.iter_mut().for_each(Worker::wait_ready);
        let spent = |workers: &[Worker]| workers.iter().map(|it| cpu_ns(it.pid())).sum::<u64>();
        let (meter, before) = (server.meter(), spent(&workers));
        workers.iter_mut().for_each(Worker::go);
        while count(&runtime, &client).done < tasks {
            thread::sleep(Duration::from_millis(2));
        }
        let workers_ns = spent(&workers) - before;
        let sample = meter.end_with(tasks, workers_ns);
        let counts = count(&runtime, &client);
        assert_eq!((counts.claimed, counts.done), (tasks, tasks), "{counts:?}");
        sample.with_fact("workers cpu ns/task", workers_ns as f64 / tasks as f64)
    })
}
