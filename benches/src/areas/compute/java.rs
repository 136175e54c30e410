//! The peer fork-join-pool: Java's pool, in a process of its own.

use std::io;

use tempfile::TempDir;

use super::Outside;
use crate::areas::Peer;
use crate::areas::program::{self, Language, Program};
use crate::measure::{Rules, Sample};

const NAME: &str = "fork-join-pool";

const PROGRAM: Program = Program {
    folder: "fork-join",
    file: "ForkJoin.java",
    language: Language::Java,
};

/// A directory, with the program if a row needs it.
pub(super) fn prepare(_: &Rules, rows: &[String]) -> io::Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("throng-compute")
        .tempdir()?;
    if rows.iter().any(|row| row.ends_with(NAME)) {
        PROGRAM.build(dir.path())?;
    }
    Ok(dir)
}

/// The workload, which does no work in its tasks.
pub(super) fn outside(work: Outside) -> Peer {
    let peer = Peer::new(NAME, move |rules| run(rules, work));
    peer.note(Some(
        "Java, after three seconds in which its code is compiled",
    ))
}

fn run(rules: &Rules, work: Outside) -> Sample {
    if rules.count_allocs {
        return Sample::skipped("Java counts no allocations");
    }
    let mut program = match PROGRAM.command(rules) {
        Ok(program) => program,
        Err(complaint) => return Sample::skipped(complaint),
    };
    let tasks = rules.scaled(work.tasks);
    let arguments = [work.producers, tasks, rules.target.as_millis() as u64];
    program::measure(program.args(arguments.map(|number| number.to_string())))
}
