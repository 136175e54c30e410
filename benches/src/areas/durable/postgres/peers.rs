//! The peers that one would use instead: in programs of their own.

use super::SPAWNED;
use super::server::with_server;
use crate::areas::Peer;
use crate::areas::program::{self, Language, Program};
use crate::measure::{Rules, Sample};

const RUST: Program = Program {
    folder: "postgres-peers",
    file: "postgres-peers",
    language: Language::Rust,
};

const NODE: Program = Program {
    folder: "postgres-node",
    file: "main.js",
    language: Language::JavaScript,
};

const PYTHON: Program = Program {
    folder: "procrastinate",
    file: "main.py",
    language: Language::Python,
};

/// A system to compare with.
#[derive(Clone, Copy)]
struct System {
    name: &'static str,
    program: Program,
    /// The number of tasks in both workloads: those of slow systems are fewer.
    drained: u64,
    spawned: u64,
    note: Option<&'static str>,
}

const SYSTEMS: [System; 6] = [
    System {
        name: "graphile-worker",
        program: NODE,
        drained: 20_000,
        spawned: 20_000,
        note: None,
    },
    System {
        name: "graphile-batches",
        program: NODE,
        drained: 20_000,
        spawned: 20_000,
        note: Some("the same, set up to take 500 jobs at once, and to end several at once"),
    },
    System {
        name: "pg-boss",
        program: NODE,
        drained: 20_000,
        spawned: 20_000,
        note: Some("by calls that take and end a batch: its own workers ask twice a second"),
    },
    System {
        name: "apalis-postgres",
        program: RUST,
        drained: 20_000,
        spawned: 20_000,
        note: Some("in batches as large as its permits, on ten connections"),
    },
    System {
        name: "underway",
        program: RUST,
        drained: 5_000,
        spawned: 20_000,
        note: Some("on ten connections"),
    },
    System {
        name: "procrastinate",
        program: PYTHON,
        drained: 5_000,
        spawned: 10_000,
        note: None,
    },
];

/// Returns the programs that rows need, by their paths.
pub(in crate::areas::durable) fn programs(rows: &[String]) -> impl Iterator<Item = Program> {
    [RUST, NODE, PYTHON].into_iter().filter(move |program| {
        let mut of_program = SYSTEMS
            .iter()
            .filter(|system| system.program.folder == program.folder);
        of_program.any(|system| {
            let ends = format!("/{}", system.name);
            rows.iter()
                .any(|row| row.contains("/postgres/") && row.ends_with(&ends))
        })
    })
}

/// One worker, and tasks that are there already.
pub(super) fn drain(permits: usize) -> impl Iterator<Item = Peer> {
    SYSTEMS
        .into_iter()
        .map(move |system| system.peer("drain", system.drained, permits))
}

/// 64 spawners, each of which waits for each of its tasks.
pub(super) fn spawn() -> impl Iterator<Item = Peer> {
    SYSTEMS.into_iter().map(|system| {
        let spawned = system.spawned.min(SPAWNED);
        Peer {
            note: None,
            ..system.peer("spawn-64", spawned, 1)
        }
    })
}

impl System {
    fn peer(self, workload: &'static str, tasks: u64, permits: usize) -> Peer {
        let run = move |rules: &Rules| self.run(rules, workload, tasks, permits);
        Peer::new(self.name, run).note(self.note)
    }

    fn run(self, rules: &Rules, workload: &str, tasks: u64, permits: usize) -> Sample {
        let mut program = match self.program.command(rules) {
            Ok(program) => program,
            Err(complaint) => return Sample::skipped(complaint),
        };
        with_server(rules, |server| {
            let tasks = rules.scaled(tasks);
            if self.program.folder != PYTHON.folder {
                program.arg(self.name);
            }
            let args = [
                workload,
                &server.url(),
                &tasks.to_string(),
                &permits.to_string(),
            ];
            program::measure(program.args(args))
        })
    }
}
