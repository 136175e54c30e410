//! The peer apalis-sqlite: a program of its own, since its SQLite and ours cannot be linked into one.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::new_dir;
use crate::areas::Peer;
use crate::measure::{Rules, Sample};

pub(super) const NAME: &str = "apalis-sqlite";

/// In the prepared directory: the program, or why there is none.
const PROGRAM: &str = "apalis-sqlite-peer";
const COMPLAINT: &str = "apalis-sqlite-complaint";

/// What it can do.
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

/// Builds the program, if it can be built.
pub(super) fn build(dir: &Path) -> io::Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("apalis-sqlite/Cargo.toml");
    let own = std::env::current_exe()?;
    let target = own.parent().map(|beside| beside.join("apalis-sqlite"));
    let target = target.ok_or(io::ErrorKind::NotFound)?;
    eprintln!("# building {NAME}: the first time, this takes minutes");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .output();
    let complaint = match built {
        Ok(built) if built.status.success() => {
            let program = target.join("release").join(PROGRAM);
            return fs::copy(program, dir.join(PROGRAM)).map(drop);
        }
        Ok(built) => {
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            let mut errors = said.lines().filter(|line| line.starts_with("error"));
            errors.next().unwrap_or("cargo failed").to_owned()
        }
        Err(error) => format!("cargo cannot be started: {error}"),
    };
    eprintln!("# {NAME} cannot be built, and is left out: {complaint}");
    fs::write(dir.join(COMPLAINT), complaint)
}

impl Apalis {
    fn run(self, rules: &Rules) -> Sample {
        let root = rules
            .dir
            .as_ref()
            .expect("the runner has prepared a directory");
        if let Ok(complaint) = fs::read_to_string(root.join(COMPLAINT)) {
            return Sample::skipped(complaint);
        }
        let dir = new_dir(rules);
        let (workload, tasks, connections) = match self {
            Self::Enqueue => ("enqueue-64", rules.scaled(6_400), "1"),
            Self::Drain => ("drain", rules.scaled(2_000), "10"),
        };
        let output = Command::new(root.join(PROGRAM))
            .arg(workload)
            .arg(dir.path().join("tasks.db"))
            .args([&tasks.to_string(), connections])
            .output()
            .expect("it can be started");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "it failed: {complaints}");
        let output = String::from_utf8_lossy(&output.stdout);
        let mut figures = output.split_whitespace().map(str::parse::<f64>);
        let mut figure = || match figures.next() {
            Some(Ok(figure)) => figure,
            _ => panic!("not a result: {output}"),
        };
        let (tasks, seconds, cpu_seconds) = (figure(), figure(), figure());
        Sample {
            value: seconds * 1e9 / tasks,
            cpu_ns_per_task: Some(cpu_seconds * 1e9 / tasks),
            ..Sample::default()
        }
    }
}
