//! The example `indexer`, which uses all parts, against the same work on one thread.
//!
//! Files are in the page cache: the run that warms up has read them all. A task is a file.

mod corpus;
mod example;

use std::io;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use self::example::indexer::options::Options;
use self::example::indexer::pipeline::{self, Event};
use self::example::{reference, sequential};
use super::{Area, Peer, Unit, Workload, two_workers};
use crate::measure::{Rules, Sample, note_threads};

/// Text that is generated.
const MADE_UP: &str = "made-up";

/// Sources that cargo has fetched, if there are any on this machine.
const REGISTRY: &str = "registry";

/// After so many files all threads of the pool are there.
const SETTLED: u32 = 200;

pub(super) const AREA: Area = Area {
    name: "indexer",
    about: "the example `indexer` on files in the page cache",
    config: "the options of the example by default: as many threads that tokenise as the machine has, and twice as many \
        that read",
    workloads,
    prepare: Some(prepare),
};

fn workloads() -> Vec<Workload> {
    let corpora = [Some(MADE_UP), corpus::registry().map(|_| REGISTRY)];
    let workload = |corpus| Workload::new(corpus, Unit::MB_PER_S, all(corpus));
    corpora.into_iter().flatten().map(workload).collect()
}

/// Everyone, ours first.
fn all(corpus: &'static str) -> Vec<Peer> {
    let peer = |name, index: fn(&Path) -> io::Result<usize>| {
        Peer::new(name, move |rules| repeat(rules, corpus, index))
    };
    let word = match corpus {
        MADE_UP => corpus::most_frequent_word(),
        _ => "the".to_owned(),
    };
    let ripgrep = Peer::new("ripgrep", move |rules| match ripgrep(&["--version"]) {
        Ok(_) => repeat(rules, corpus, |dir| with_ripgrep(dir, &word)),
        Err(error) => Sample::skipped(format!(
            "rg cannot be started ({error}): install ripgrep, on Debian by `apt-get install ripgrep`"
        )),
    });
    vec![
        peer("throng", with_throng),
        peer("reference", with_reference).note(Some("the plainest way: a hash map, on one thread")),
        peer("sequential", with_sequential)
            .note(Some("the functions of the example, on one thread")),
        ripgrep.note(Some(
            "lists the files, then counts the lines with a frequent word: it reads all, and keeps nothing",
        )),
    ]
}

/// Both corpora in one directory. Of the registry, which can be large, only a part.
fn prepare(rules: &Rules, _: &[String]) -> io::Result<TempDir> {
    let root = tempfile::Builder::new().prefix("throng-corpus").tempdir()?;
    corpus::generate(&root.path().join(MADE_UP), rules.scaled(3_000))?;
    if let Some(sources) = corpus::registry() {
        corpus::copy_some(
            &sources,
            &root.path().join(REGISTRY),
            rules.scaled(100_000_000),
        )?;
    }
    Ok(root)
}

/// Returns how many terms are in the index, as do the others.
fn with_throng(dir: &Path) -> io::Result<usize> {
    let runtime = two_workers().build()?;
    let mut events = 0;
    let observe = |_: Event<'_>| {
        events += 1;
        if events == SETTLED {
            note_threads();
        }
    };
    let outcome = runtime.block_on(pipeline::build(dir, &Options::default(), observe))?;
    Ok(outcome.index.len())
}

fn with_reference(dir: &Path) -> io::Result<usize> {
    reference::build(dir).map(|reference| reference.terms.len())
}

fn with_sequential(dir: &Path) -> io::Result<usize> {
    sequential::build(dir).map(|index| index.len())
}

/// Returns the number of lines that have the word.
fn with_ripgrep(dir: &Path, word: &str) -> io::Result<usize> {
    let dir = dir.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
    // All files, as the others.
    const ALL: [&str; 2] = ["--no-ignore", "--hidden"];
    ripgrep(&[&ALL[..], &["--files", dir]].concat())?;
    let counts = ripgrep(&[&ALL[..], &["--text", "--count", "--no-filename", word, dir]].concat())?;
    let counts = counts.lines().map(|count| count.parse::<usize>());
    let sum = counts.sum::<Result<_, _>>();
    sum.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the output of ripgrep.
fn ripgrep(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("rg").args(arguments).output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(complaint));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn repeat(rules: &Rules, corpus: &str, index: impl Fn(&Path) -> io::Result<usize>) -> Sample {
    let root = rules
        .dir
        .as_ref()
        .expect("the runner has prepared a directory");
    let dir = root.join(corpus);
    let size = corpus::size(&dir).expect("a directory that can be read");
    let index = || index(&dir).expect("a directory that can be read");
    let expected = index();
    let sample = rules.measure_warm(size.files, |_| assert_eq!(index(), expected));
    let mb_per_s = size.bytes as f64 / size.files as f64 / sample.value * 1e3;
    sample.with_value(mb_per_s)
}
