//! The peer apalis-sqlite: a program of its own, since its SQLite and ours cannot be linked into one.

use super::new_dir;
use crate::areas::Peer;
use crate::areas::program::{self, Language, Program};
use crate::measure::{Rules, Sample};

pub(super) const NAME: &str = "apalis-sqlite";

pub(super) const PROGRAM: Program = Program {
    folder: "apalis-sqlite",
    file: "apalis-sqlite-peer",
    language: Language::Rust,
};

/// The workloads that apalis supports.
#[derive(Clone, Copy)]
pub(super) enum Apalis {
    Enqueue,
    Drain,
}

pub(super) fn peer(what: Apalis) -> Peer {
    let peer = Peer::new(NAME, move |rules| what.run(rules));
    peer.note(Some(match what {
        Apalis::Enqueue => "in a process of its own, with one connection: ten are slower",
        Apalis::Drain => {
            "in a process of its own, with ten connections (one is slower), in batches of 256, of fewer \
             stored tasks: it is slower the more there are"
        }
    }))
}

impl Apalis {
    fn run(self, rules: &Rules) -> Sample {
        let mut program = match PROGRAM.command(rules) {
            Ok(program) => program,
            Err(complaint) => return Sample::skipped(complaint),
        };
        let dir = new_dir(rules);
        let (workload, tasks, connections) = match self {
            Self::Enqueue => ("enqueue-64", rules.scaled(6_400), "1"),
            Self::Drain => ("drain", rules.scaled(2_000), "10"),
        };
        let program = program
            .arg(workload)
            .arg(dir.path().join("tasks.db"))
            .args([&tasks.to_string(), connections]);
        program::measure(program)
    }
}
