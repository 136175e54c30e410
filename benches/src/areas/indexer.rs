//! The example `indexer`, which uses all three parts, against the same work on one thread.
//!
//! Files are in the page cache: the run that warms up has read them all.

mod corpus;
mod one_thread;

/// The example itself, of which only the pipeline is needed here.
#[allow(dead_code, unreachable_pub, reason = "it is written for the example")]
#[path = "../../../examples/indexer/mod.rs"]
#[rustfmt::skip]
mod example;

/// The index in the plainest way: hash maps, on one thread.
#[allow(dead_code, unreachable_pub, reason = "it is written for the example")]
#[path = "../../../examples/indexer/reference.rs"]
#[rustfmt::skip]
mod reference;

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use self::example::options::Options;
use self::example::pipeline;
use super::{Area, Peer, Unit, Workload, two_workers};
use crate::measure::{Rules, Sample};

pub(super) const AREA: Area = Area {
    name: "indexer",
    about: "the example `indexer` on files in the page cache, in bytes of indexed text",
    config: "the options of the example by default: as many threads as the machine has",
    workloads,
    prepare: Some(prepare),
};

fn workloads() -> Vec<Workload> {
    let mut workloads = vec![Workload::new("made-up", Unit::MB_PER_S, all(made_up))];
    if corpus::registry().is_some() {
        workloads.push(Workload::new("registry", Unit::MB_PER_S, all(registry)));
    }
    workloads
}

/// Everyone, ours first. A task is a file.
fn all(dir: fn(&Rules) -> PathBuf) -> Vec<Peer> {
    let peer = |name, index: fn(&Path) -> io::Result<Indexed>| {
        Peer::new(name, move |rules| repeat(rules, &dir(rules), index))
    };
    vec![
        peer("throng", with_throng),
        peer("reference", with_reference).note(Some("the plainest way: a hash map, on one thread")),
        peer("one-thread", with_one_thread).note(Some(
            "the scanner and the index of the example, on one thread",
        )),
    ]
}

fn prepare(rules: &Rules) -> io::Result<TempDir> {
    corpus::generate(rules.scaled(3_000))
}

fn made_up(rules: &Rules) -> PathBuf {
    rules
        .dir
        .clone()
        .expect("the runner has prepared a directory")
}

fn registry(_rules: &Rules) -> PathBuf {
    corpus::registry().expect("the workload is only there with its files")
}

/// Files and bytes that were indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Indexed {
    files: u64,
    bytes: u64,
}

fn with_throng(dir: &Path) -> io::Result<Indexed> {
    let runtime = two_workers().build()?;
    let outcome = runtime.block_on(pipeline::build(dir, &Options::default(), |_| ()))?;
    let counts = &outcome.summary.counts;
    Ok(Indexed {
        files: counts.files,
        bytes: counts.bytes,
    })
}

fn with_reference(dir: &Path) -> io::Result<Indexed> {
    let reference = reference::build(dir)?;
    Ok(Indexed {
        files: reference.files.len() as u64,
        bytes: reference.bytes,
    })
}

fn with_one_thread(dir: &Path) -> io::Result<Indexed> {
    one_thread::build(dir).map(|(_index, indexed)| indexed)
}

fn repeat(rules: &Rules, dir: &Path, index: fn(&Path) -> io::Result<Indexed>) -> Sample {
    let index = || index(dir).expect("a directory that can be read");
    let expected = index();
    let sample = rules.measure_warm(expected.files, |_| assert_eq!(index(), expected));
    let bytes_per_file = expected.bytes as f64 / expected.files as f64;
    let mb_per_s = bytes_per_file / sample.value * 1e3;
    sample.with_value(mb_per_s)
}
