//! Peers that are SQLite and a few lines.

use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::tasks::Payload;
use super::{SPAWNERS, STORED, Syncs, file, latencies, longer, new_dir};
use crate::measure::{Rules, Sample, Section};

/// The number of tasks of one commit.
pub(super) trait Commits {
    const TASKS: u64;
}

pub(super) struct OneCommit;

impl Commits for OneCommit {
    const TASKS: u64 = 1;
}

pub(super) struct Batched<const TASKS: u64>;

impl<const TASKS: u64> Commits for Batched<TASKS> {
    const TASKS: u64 = TASKS;
}

/// One thread stores tasks.
pub(super) fn enqueue<C: Commits>(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut queue = Queue::open(dir.path());
    let (syncs, mut stored) = (Syncs::begin(), 0);
    // About a tenth of a second.
    let tasks = rules.scaled(1_000 * C::TASKS.min(SPAWNERS));
    let sample = longer(rules).measure(tasks, |tasks| {
        queue.store(stored..stored + tasks, C::TASKS);
        stored += tasks;
    });
    syncs.note(sample, stored)
}

/// One thread runs tasks that are there, for some time at least, or until there are none.
pub(super) fn drain<C: Commits>(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut queue = Queue::open(dir.path());
    queue.store(0..rules.scaled(STORED), 10_000);
    let enough = longer(rules).target;
    let (syncs, section) = (Syncs::begin(), Section::begin());
    let mut done = 0;
    while section.elapsed() < enough {
        match queue.run(C::TASKS) {
            0 => break,
            ran => done += ran,
        }
    }
    syncs.note(section.end().per_task(done), done)
}

/// Measures the time until one task is stored.
pub(super) fn commit_latency(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut queue = Queue::open(dir.path());
    let pause = Duration::from_millis(5);
    let mut took = Vec::new();
    let section = Section::begin();
    let tasks = rules.scaled(400);
    for task in 0..tasks {
        thread::sleep(pause);
        let begin = Instant::now();
        queue.store(task..task + 1, 1);
        took.push(begin.elapsed().as_nanos() as u64);
    }
    latencies(section.end().per_task(tasks), took)
}

/// Measures the time from storing a task until its end is known.
pub(super) fn round_trip(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut queue = Queue::open(dir.path());
    let (mut number, mut took) = (0, Vec::new());
    let sample = longer(rules).measure(rules.scaled(200), |tasks| {
        for _ in 0..tasks {
            let begin = Instant::now();
            queue.store_and_run(number);
            took.push(begin.elapsed().as_nanos() as u64);
            number += 1;
        }
    });
    latencies(sample, took)
}

/// As [`round_trip`]; the value is the time of one when there are many.
pub(super) fn round_trip_64(rules: &Rules) -> Sample {
    let dir = new_dir(rules);
    let mut queue = Queue::open(dir.path());
    let (syncs, mut number) = (Syncs::begin(), 0);
    let sample = longer(rules).measure(rules.scaled(1_000), |tasks| {
        for _ in 0..tasks {
            queue.store_and_run(number);
            number += 1;
        }
    });
    syncs.note(sample, number)
}

/// A table of tasks.
struct Queue(Connection);

impl Queue {
    fn open(dir: &Path) -> Self {
        let connection = Connection::open(file(dir)).expect("a file can be made");
        let prepared = connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT NOT NULL, payload BLOB NOT NULL);",
        );
        prepared.expect("a table can be made");
        Self(connection)
    }

    /// Stores tasks, so many with a commit.
    fn store(&mut self, tasks: std::ops::Range<u64>, commit: u64) {
        let mut tasks = tasks.peekable();
        while tasks.peek().is_some() {
            let transaction = self.0.transaction().expect("one can begin");
            {
                let mut insert = transaction
                    .prepare_cached("INSERT INTO tasks (name, payload) VALUES (?, ?)")
                    .expect("there is such a table");
                for task in tasks.by_ref().take(commit as usize) {
                    insert
                        .execute(params!["bench.nothing", encode(&Payload::new(task))])
                        .expect("a task can be stored");
                }
            }
            transaction.commit().expect("it can be written");
        }
    }

    /// Runs the oldest tasks, so many at most, with one commit. Returns how many there were.
    fn run(&mut self, tasks: u64) -> u64 {
        let transaction = self.0.transaction().expect("one can begin");
        let mut ran = 0;
        {
            let mut select = transaction
                .prepare_cached("SELECT id, payload FROM tasks ORDER BY id LIMIT 1")
                .expect("there is such a table");
            let mut delete = transaction
                .prepare_cached("DELETE FROM tasks WHERE id = ?")
                .expect("there is such a table");
            while ran < tasks {
                let row = select.query_row([], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
                });
                let Some((id, payload)) = row.optional().expect("it can be read") else {
                    break;
                };
                decode(&payload);
                delete.execute([id]).expect("it can be deleted");
                ran += 1;
            }
        }
        transaction.commit().expect("it can be written");
        ran
    }

    fn store_and_run(&mut self, task: u64) {
        self.store(task..task + 1, 1);
        assert_eq!(self.run(1), 1);
    }
}

pub(super) fn encode(payload: &Payload) -> Vec<u8> {
    serde_json::to_vec(payload).expect("it has nothing that JSON cannot say")
}

/// All that there is to do.
pub(super) fn decode(payload: &[u8]) {
    let payload: Payload = serde_json::from_slice(payload).expect("it was encoded here");
    black_box(payload.number);
}
