//! Tasks that survive the process, in a file of SQLite, [in Redis](redis) and [in PostgreSQL](postgres).
//!
//! With SQLite, everyone waits for the disk (`synchronous=FULL`), on the same file system, and stores tasks of the same size as
//! JSON. Each child has a new file. The plain peers are what one writes who has SQLite and no queue: one connection,
//! one thread, no claims, no retries, nobody else who works.

mod apalis;
mod kill;
mod layers;
mod ours;
mod plain;
mod postgres;
mod redis;
mod schedules;
mod servers;
mod steps;
mod tasks;
mod types;
mod worker;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use self::apalis::Apalis;
use self::plain::{Batched, OneCommit};
use self::schedules::Tasks;
pub(crate) use self::worker::work;
use super::{Area, Peer, Unit, Workload};
use crate::disk;
use crate::measure::{Rules, Sample, quantile};

/// Those who spawn at once, or have a task under way.
const SPAWNERS: u64 = 64;

/// Tasks that wait to be drained.
const STORED: u64 = 100_000;

pub(super) const AREA: Area = Area {
    name: "durable",
    about: "tasks that survive the process: SQLite, synchronous=FULL; Redis, appendfsync everysec; PostgreSQL, synchronous_commit=on; memory/drain: a store in memory",
    config: "SqliteStore, RedisStore and PostgresStore, everything by default; concurrency 256 in drain and together, 1 in kill and drain-1, else 64",
    workloads,
    prepare: Some(prepare),
};

fn workloads() -> Vec<Workload> {
    let workloads = vec![
        // One spawner after the other cannot be told apart from the outside: a plain peer with one thread does the
        // work of all 64.
        Workload::new(
            "sqlite/enqueue-64",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", ours::enqueue),
                Peer::new("one-commit", plain::enqueue::<OneCommit>),
                Peer::new("batch-64", plain::enqueue::<Batched<64>>).note(Some(NOT_PER_CALL)),
                Peer::new("batch-256", plain::enqueue::<Batched<256>>).note(Some(NOT_PER_CALL)),
                apalis::peer(Apalis::Enqueue),
            ],
        ),
        Workload::new(
            "sqlite/drain",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", ours::drain),
                Peer::new("one-commit", plain::drain::<OneCommit>),
                Peer::new("batch-64", plain::drain::<Batched<64>>).note(Some(RUN_AGAIN)),
                Peer::new("batch-256", plain::drain::<Batched<256>>).note(Some(RUN_AGAIN)),
                apalis::peer(Apalis::Drain),
            ],
        ),
        Workload::new(
            "sqlite/drain-1",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", ours::drain_1),
                Peer::new("one-commit", plain::drain::<OneCommit>),
            ],
        ),
        Workload::new(
            "sqlite/start-latency",
            Unit::US,
            vec![
                Peer::new("throng", ours::start_latency),
                Peer::new("one-commit", plain::commit_latency)
                    .note(Some("nothing but the commit: the bar is 1000 us more")),
            ],
        ),
        Workload::absolute(
            "sqlite/start-latency-2-processes",
            Unit::US,
            ours::start_latency_2_processes,
        ),
        Workload::absolute("sqlite/idle", Unit::SWITCHES_PER_S, ours::idle),
        Workload::absolute(
            "sqlite/idle-beside-a-producer",
            Unit::SWITCHES_PER_S,
            ours::idle_beside_a_producer,
        ),
        Workload::new(
            "sqlite/round-trip",
            Unit::US,
            vec![
                Peer::new("throng", ours::round_trip),
                Peer::new("one-commit", plain::round_trip)
                    .note(Some("two commits on one thread, and nobody to wake")),
            ],
        ),
        Workload::new(
            "sqlite/round-trip-64",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", ours::round_trip_64),
                Peer::new("one-commit", plain::round_trip_64)
                    .note(Some("two commits for each task, one after another")),
            ],
        ),
        steps::workload("sqlite/steps", steps::in_sqlite),
        Workload::absolute("sqlite/kill", Unit::MS, kill::kill),
        Workload::new(
            "memory/drain",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", layers::drain_without_layers),
                Peer::new("identity-layer", layers::drain_in_a_layer).note(Some(
                    "runs in a layer that does nothing; the difference should be within the spread of `throng`",
                )),
            ],
        )
        .processes(5),
        beside_another_type("sqlite/beside-another-type", ours::types),
        schedules_due("sqlite/schedules-due", schedules::sqlite),
    ];
    let timed = workloads
        .into_iter()
        .chain(redis::workloads())
        .chain(postgres::workloads())
        .map(|workload| Workload {
            // Allocations are not what a disk or a server has to do with.
            counted: false,
            ..workload
        });
    timed.collect()
}

/// 400 tasks of 20 ms for 4 permits, with a second worker that knows another type, and without one.
fn beside_another_type(
    name: &'static str,
    run: impl Fn(&Rules, types::Other) -> Sample + Copy + 'static,
) -> Workload {
    Workload::new(
        name,
        Unit::MS,
        vec![
            Peer::new("throng", move |rules| run(rules, types::Other::Idle)),
            Peer::new("alone", move |rules| run(rules, types::Other::None))
                .note(Some("without the second worker: the bar is 1.2 times this")),
        ],
    )
}

/// Ten thousand schedules that are due in the same second, for an executor that runs their tasks, and for one that does not.
fn schedules_due(
    name: &'static str,
    run: impl Fn(&Rules, Tasks) -> Sample + Copy + 'static,
) -> Workload {
    Workload::new(
        name,
        Unit::MS,
        vec![
            Peer::new("throng", move |rules| run(rules, Tasks::Run))
                .note(Some("until the last task is stored: the bar is 2000 ms")),
            Peer::new("only-fires", move |rules| run(rules, Tasks::Wait))
                .note(Some("the executor does not run the tasks")),
        ],
    )
}

const NOT_PER_CALL: &str =
    "one commit for so many tasks: what is stored is not durable when the call returns";

const RUN_AGAIN: &str = "one commit for so many tasks: after a crash so many run again";

/// A directory on a disk, beside this program if possible, and what is to be built first.
fn prepare(_: &Rules, rows: &[String]) -> io::Result<TempDir> {
    let own = env::current_exe()?;
    let beside = own.parent().map(Path::to_owned);
    let on_disk =
        |dir: &PathBuf| disk::file_system(dir).is_some_and(|(kind, _)| !disk::is_memory(&kind));
    let dir = beside.filter(on_disk).unwrap_or_else(env::temp_dir);
    match disk::file_system(&dir) {
        Some((kind, _)) if disk::is_memory(&kind) => {
            eprintln!(
                "# WARNING: files are in memory ({kind}): nobody waits for a disk. Set TMPDIR."
            );
        }
        Some((kind, device)) => eprintln!("# files: {kind} on {device}"),
        None => eprintln!("# WARNING: nobody knows what files are on"),
    }
    let dir = tempfile::Builder::new()
        .prefix("throng-durable")
        .tempdir_in(dir)?;
    if rows.iter().any(|row| row.ends_with(apalis::NAME)) {
        apalis::PROGRAM.build(dir.path())?;
    }
    if rows.iter().any(|row| redis::needs_peers(row)) {
        redis::PEERS.build(dir.path())?;
    }
    if rows.iter().any(|row| row.ends_with("/bullmq")) {
        redis::BULLMQ.build(dir.path())?;
    }
    for program in postgres::programs(rows) {
        program.build(dir.path())?;
    }
    Ok(dir)
}

/// A new directory for a child.
fn new_dir(rules: &Rules) -> TempDir {
    let root = rules
        .dir
        .as_ref()
        .expect("the runner has prepared a directory");
    TempDir::new_in(root).expect("a directory can be made")
}

/// The file of the store in a directory.
fn file(dir: &Path) -> PathBuf {
    dir.join("tasks.db")
}

/// Rules for what waits for a disk: of that, half a second says little.
fn longer(rules: &Rules) -> Rules {
    Rules {
        target: rules.target * 4,
        ..rules.clone()
    }
}

/// The median of latencies, in microseconds, and others besides.
fn latencies(sample: Sample, mut latencies: Vec<u64>) -> Sample {
    let mut us = |q| quantile(&mut latencies, q) as f64 / 1e3;
    let (p50, p99, max) = (us(0.5), us(0.99), us(1.0));
    sample
        .with_value(p50)
        .with_fact("p99 us", p99)
        .with_fact("max us", max)
}

/// Counts waits for the disk.
struct Syncs {
    before: u64,
}

impl Syncs {
    fn begin() -> Self {
        Self {
            before: disk::syncs(),
        }
    }

    /// Adds what a task has cost.
    fn note(self, sample: Sample, tasks: u64) -> Sample {
        let syncs = disk::syncs() - self.before;
        assert!(syncs > 0, "nobody has waited for the disk");
        sample.with_fact("fsyncs/task", syncs as f64 / tasks as f64)
    }
}

/// Reads a text file of the system.
fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
