//! BullMQ as one of the peers of rows of plain tasks. It has one process that stores jobs, and one that runs them.

use serde::Serialize;

use super::node::{Bullmq, PROGRAM};
use super::{Jobs, System, wait_until_done, with_workers};
use crate::areas::Peer;
use crate::areas::durable::latencies;
use crate::areas::durable::ours::PAUSE;
use crate::areas::durable::redis::server::{Fsync, Server, cpu_ns, with_server};
use crate::areas::durable::worker::Worker;
use crate::measure::{Rules, Sample};

/// The way in which a process stores jobs.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Produced {
    /// A thousand with a call.
    Plain { tasks: u64 },
    /// One call after another.
    Single { tasks: u64 },
    /// The same, with pauses.
    Paced { tasks: u64, pause_ms: u64 },
}

/// One worker, and jobs that are there already.
pub(in crate::areas::durable::redis) fn drain(tasks: u64, permits: usize) -> Peer {
    peer(move |rules, server| {
        let tasks = rules.scaled(tasks);
        let (sample, _) =
            super::drain::<Bullmq>(rules, server, Jobs::Plain { tasks }, tasks, 1, permits);
        sample
    })
}

/// One worker that runs what another process stores meanwhile.
pub(in crate::areas::durable::redis) fn together(tasks: u64, permits: usize) -> Peer {
    peer(move |rules, server| {
        let tasks = rules.scaled(tasks);
        let pair = Pair::start(rules, server, Produced::Plain { tasks }, permits);
        pair.run(server, tasks).0
    })
}

/// One process that waits for each of its jobs to be stored.
pub(in crate::areas::durable::redis) fn spawn_awaited(tasks: u64) -> Peer {
    peer(move |rules, server| {
        let tasks = rules.scaled(tasks);
        let mut producer = Bullmq::open(rules, server).producer(Produced::Single { tasks });
        producer.wait_ready();
        let (meter, before) = (server.meter(), cpu_ns(producer.pid()));
        producer.go();
        producer.wait_until_it_says("stored");
        let spent = cpu_ns(producer.pid()) - before;
        let sample = with_workers(meter.end_with(tasks, spent), spent, tasks);
        producer.finish();
        sample
    })
}

/// From before a job is stored until it begins.
pub(in crate::areas::durable::redis) fn start_latency(tasks: u64) -> Peer {
    peer(move |rules, server| {
        let tasks = rules.scaled(tasks);
        let pause_ms = PAUSE.as_millis() as u64;
        let pair = Pair::start(rules, server, Produced::Paced { tasks, pause_ms }, 64);
        let (sample, pair) = pair.run(server, tasks);
        let worker = pair.worker.pid();
        let sample = server.with_idle(sample, rules, || cpu_ns(worker));
        let (mut begins, mut starts) = (pair.producer.finish(), pair.worker.finish());
        begins.sort_unstable();
        starts.sort_unstable();
        assert_eq!(begins.len(), starts.len(), "a job was lost, or ran twice");
        let since = begins.iter().zip(&starts).map(|(begin, start)| {
            assert_eq!(begin.0, start.0, "a job was lost");
            start.1 - begin.1
        });
        latencies(sample, since.collect())
    })
}

/// A process that stores jobs, and one that runs them.
struct Pair {
    system: Bullmq,
    producer: Worker,
    worker: Worker,
}

impl Pair {
    /// The worker waits for jobs when the producer comes up.
    fn start(rules: &Rules, server: &Server, jobs: Produced, permits: usize) -> Self {
        let system = Bullmq::open(rules, server);
        let mut worker = system.worker(permits);
        worker.wait_ready();
        worker.go();
        let mut producer = system.producer(jobs);
        producer.wait_ready();
        Self {
            system,
            producer,
            worker,
        }
    }

    /// Measures until the server knows that all jobs have run.
    fn run(mut self, server: &Server, tasks: u64) -> (Sample, Self) {
        let (meter, before) = (server.meter(), self.cpu_ns());
        self.producer.go();
        self.producer.wait_until_it_says("stored");
        wait_until_done(&self.system, server, tasks);
        let spent = self.cpu_ns() - before;
        let sample = with_workers(meter.end_with(tasks, spent), spent, tasks);
        (sample, self)
    }

    fn cpu_ns(&self) -> u64 {
        cpu_ns(self.producer.pid()) + cpu_ns(self.worker.pid())
    }
}

/// The peer, which is left out if BullMQ cannot be installed.
fn peer(run: impl Fn(&Rules, &Server) -> Sample + 'static) -> Peer {
    let peer = Peer::new("bullmq", move |rules| match PROGRAM.command(rules) {
        Ok(_) => with_server(rules, Fsync::EverySecond, |server| run(rules, server)),
        Err(complaint) => Sample::skipped(complaint),
    });
    peer.note(Some("a process that stores jobs, and one that runs them"))
}
