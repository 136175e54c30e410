//! The peers that one would use instead: in a program of their own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde::Deserialize;

use super::server::{Fsync, Meter, Server, cpu_ns, with_server};
use crate::areas::Peer;
use crate::areas::durable::latencies;
use crate::areas::program::{Language, Program};
use crate::measure::{Rules, Sample};

pub(in crate::areas::durable) const PEERS: Program = Program {
    folder: "redis-peers",
    file: "redis-peers",
    language: Language::Rust,
};

const APALIS: &str = "apalis-redis";
const NO_LOCKS: &str = "apalis-no-locks";
const OXANA: &str = "oxana";
const SIDEKIQ: &str = "rusty-sidekiq";

/// Returns `true` if a row, by its path, needs the program.
pub(in crate::areas::durable) fn needs_peers(row: &str) -> bool {
    let peer = row.rsplit('/').next();
    row.contains("/redis/")
        && peer.is_some_and(|peer| [APALIS, NO_LOCKS, OXANA, SIDEKIQ].contains(&peer))
}

/// As many tasks as each can do in about two seconds.
pub(super) fn drain() -> [Peer; 4] {
    [
        of(APALIS, "drain", 7_500, Some(SMALL_COUNT)),
        of(NO_LOCKS, "drain", 7_500, Some(UNLOCKED)),
        of(OXANA, "drain", 10_000, None),
        of(SIDEKIQ, "drain", 20_000, Some(NOT_ACKNOWLEDGED)),
    ]
}

const SMALL_COUNT: &str = "in batches of 100, of 7,500 tasks: with more than 8,000 that are due, its workers end for good";

const UNLOCKED: &str = "the same, set up not to lock tasks and not to tell of events";

const NOT_ACKNOWLEDGED: &str =
    "16 workers; it acknowledges nothing: what runs when its process dies is lost";

/// The same, with workers of so many permits.
pub(super) fn drain_with(permits: usize, tasks: u64) -> [Peer; 3] {
    [
        of_permits(
            APALIS,
            "drain",
            tasks,
            Some(permits),
            Some("it reads 100 tasks ahead"),
        ),
        of_permits(OXANA, "drain", tasks, Some(permits), None),
        of_permits(
            SIDEKIQ,
            "drain",
            tasks,
            Some(permits),
            Some("it acknowledges nothing: what runs when its process dies is lost"),
        ),
    ]
}

pub(super) fn spawn_awaited() -> [Peer; 3] {
    [APALIS, OXANA, SIDEKIQ].map(|peer| of(peer, "spawn-awaited", 5_000, None))
}

pub(super) fn spawn_all() -> [Peer; 2] {
    [
        of(APALIS, "spawn-all", 100_000, Some("1,000 with a call")),
        of(OXANA, "spawn-all", 100_000, Some("1,000 with a call")),
    ]
}

pub(super) fn spawn_1000() -> [Peer; 3] {
    [
        of(
            APALIS,
            "spawn-1000",
            30_000,
            Some("on one connection, with locks and events, as by default"),
        ),
        of(OXANA, "spawn-1000", 30_000, Some("on 50 connections")),
        of(SIDEKIQ, "spawn-1000", 30_000, Some("on 32 connections")),
    ]
}

/// Not apalis, whose workers end when they are late.
pub(super) fn together() -> [Peer; 2] {
    [
        of(OXANA, "together", 10_000, None),
        of(SIDEKIQ, "together", 20_000, Some(NOT_ACKNOWLEDGED)),
    ]
}

pub(super) fn start_latency() -> [Peer; 3] {
    [
        of(
            APALIS,
            "start-latency",
            400,
            Some("it looks every 100 ms (more often, it stops doing so); by default, every 30 s"),
        ),
        of(
            OXANA,
            "start-latency",
            400,
            Some("it looks every 5 ms; by default, every 10 s"),
        ),
        of(SIDEKIQ, "start-latency", 400, None),
    ]
}

/// Bytes of the server for a task that waits.
pub(super) fn memory() -> [Peer; 3] {
    [APALIS, OXANA, SIDEKIQ].map(|peer| {
        Peer::new(peer, move |rules| {
            with_program(rules, |server| {
                let tasks = rules.scaled(50_000);
                let before = server.memory();
                // As fast as they can.
                let workload = if peer == SIDEKIQ {
                    "spawn-1000"
                } else {
                    "spawn-all"
                };
                let meter = server.meter();
                let mut running = Running::start(rules, server, peer, workload, tasks, None);
                let report = running.report();
                let sample = running.sample(meter, &report);
                running.finish();
                sample.with_value((server.memory() - before) as f64 / report.tasks as f64)
            })
        })
    })
}

fn of(peer: &'static str, workload: &'static str, tasks: u64, note: Option<&'static str>) -> Peer {
    of_permits(peer, workload, tasks, None, note)
}

/// With the permits that the peer has by default, or with so many.
fn of_permits(
    peer: &'static str,
    workload: &'static str,
    tasks: u64,
    permits: Option<usize>,
    note: Option<&'static str>,
) -> Peer {
    let run = move |rules: &Rules| {
        with_program(rules, |server| {
            let meter = server.meter();
            let tasks = rules.scaled(tasks);
            let mut running = Running::start(rules, server, peer, workload, tasks, permits);
            let report = running.report();
            let mut sample = running.sample(meter, &report);
            if !report.latencies_ns.is_empty() {
                sample = latencies(sample, report.latencies_ns);
                sample = server.with_idle(sample, rules, || cpu_ns(running.child.id()));
            }
            running.finish();
            sample
        })
    };
    Peer::new(peer, run).note(note)
}

/// As [`with_server`], if there is the program too.
fn with_program(rules: &Rules, work: impl FnOnce(&Server) -> Sample) -> Sample {
    match PEERS.command(rules) {
        Ok(_) => with_server(rules, Fsync::EverySecond, work),
        Err(complaint) => Sample::skipped(complaint),
    }
}

/// The output of the program.
#[derive(Debug, Deserialize)]
struct Report {
    tasks: u64,
    seconds: f64,
    cpu_seconds: f64,
    redis_cpu_seconds: f64,
    latencies_ns: Vec<u64>,
}

/// The program; it ends when this is dropped.
struct Running {
    child: Child,
    /// It ends with it.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(
        rules: &Rules,
        server: &Server,
        peer: &str,
        workload: &str,
        tasks: u64,
        permits: Option<usize>,
    ) -> Self {
        let mut command = PEERS.command(rules).expect("it is there");
        let mut child = command
            .args([peer, workload, &server.url(), &tasks.to_string()])
            .args(permits.map(|permits| permits.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let output = child.stdout.take().expect("it is piped");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(output),
            child,
        }
    }

    fn report(&mut self) -> Report {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.expect("it can be read");
        match serde_json::from_str(&line) {
            Ok(report) => report,
            Err(_) => panic!("it failed: {line} {}", self.complaints()),
        }
    }

    fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(errors) = &mut self.child.stderr {
            errors.read_to_string(&mut text).expect("it can be read");
        }
        text
    }

    /// The meter has seen all that it has done, of which only a part counts.
    fn sample(&self, meter: Meter<'_>, report: &Report) -> Sample {
        let per_task = |seconds: f64| seconds * 1e9 / report.tasks as f64;
        let all = meter.end_with(report.tasks, cpu_ns(self.child.id()));
        Sample {
            value: per_task(report.seconds),
            cpu_ns_per_task: Some(per_task(report.cpu_seconds)),
            ctx_switches_per_task: None,
            ..all
        }
        .with_fact("redis cpu ns/task", per_task(report.redis_cpu_seconds))
    }

    fn finish(mut self) {
        self.input = None;
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "it failed: {}", self.complaints());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
