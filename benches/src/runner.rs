//! Runs every (peer, workload, repetition) as a child process of its own, in turns.
//!
//! A fresh process keeps what one peer leaves behind (threads, a grown heap, switches in the environment) away
//! from the next one, and turns spread what disturbs the machine over all of them.

use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::areas::{self, Area, Workload};
use crate::measure::{Rules, Sample};
use crate::preload::Allocator;
use crate::report::Row;
use crate::watched;

/// A child that takes so many times longer than its measured work should is killed.
const TEST_TIMEOUT: u32 = 240;

/// The rows to run.
pub(crate) struct Plan {
    pub(crate) rules: Rules,
    pub(crate) repetitions: usize,
    pub(crate) filter: Option<regex::Regex>,
    /// Runs ours only: as it is, and watched.
    pub(crate) watched: bool,
    pub(crate) allocator: Option<(Allocator, PathBuf)>,
}

/// A workload, and the indices of those of its peers that are to run.
pub(crate) type Selected = (Workload, Vec<usize>);

/// An order to a child, as JSON in its argument.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    area: String,
    workload: String,
    peer: String,
    allocator: Option<Allocator>,
    rules: Rules,
}

impl Plan {
    /// Returns the rows of an area that match the filter.
    pub(crate) fn select(&self, area: &Area) -> Vec<Selected> {
        let chosen = |workload: &Workload, peer: usize| {
            let path = format!(
                "{}/{}/{}",
                area.name, workload.name, workload.peers[peer].name
            );
            self.filter
                .as_ref()
                .is_none_or(|filter| filter.is_match(&path))
        };
        let workloads = area.workloads(self.watched);
        let workloads = workloads.into_iter().map(|workload| {
            let peers = (0..workload.peers.len())
                .filter(|&peer| chosen(&workload, peer))
                .collect();
            (workload, peers)
        });
        workloads
            .filter(|(_, peers): &Selected| !peers.is_empty())
            .collect()
    }

    /// The number of children that a workload with so many peers needs, counting runs included.
    pub(crate) fn children(&self, workload: &Workload, peers: usize) -> usize {
        peers * (self.timed(workload) + usize::from(workload.counted))
    }

    fn timed(&self, workload: &Workload) -> usize {
        self.repetitions
            * if self.rules.quick {
                1
            } else {
                workload.processes
            }
    }

    /// Runs a workload for each of `peers` (indices), in turns, and one counting run for each at the end.
    pub(crate) fn run(
        &self,
        area: &Area,
        workload: &Workload,
        peers: &[usize],
        bar: &ProgressBar,
    ) -> Vec<Row> {
        let row =
            |&peer: &usize| Row::new(area, workload, &workload.peers[peer], self.allocator_name());
        let mut rows: Vec<Row> = peers.iter().map(row).collect();
        for _ in 0..self.timed(workload) {
            rows.iter_mut()
                .for_each(|row| self.run_one(row, &self.rules, bar));
            // The next turn begins with another peer.
            rows.rotate_left(1);
        }
        // The first is the first again.
        rows.rotate_right(self.timed(workload) % peers.len());
        let counting = Rules {
            count_allocs: true,
            ..self.rules.clone()
        };
        for row in rows.iter_mut().filter(|_| workload.counted) {
            self.run_one(row, &counting, bar);
        }
        rows
    }

    /// One child, whose result, or failure, goes into the row.
    fn run_one(&self, row: &mut Row, rules: &Rules, bar: &ProgressBar) {
        bar.set_message(row.path());
        let order = Order {
            area: row.area.clone(),
            workload: row.workload.clone(),
            peer: row.peer.clone(),
            allocator: self.allocator.as_ref().map(|(allocator, _)| *allocator),
            rules: rules.clone(),
        };
        // After its first failure a peer has no row to complete.
        if row.error.is_none() {
            match run_child(
                &order,
                self.allocator
                    .as_ref()
                    .map(|(_, library)| library.as_path()),
            ) {
                Ok(sample) => row.add(sample),
                Err(error) => row.error = Some(error),
            }
        }
        bar.inc(1);
    }

    fn allocator_name(&self) -> Option<String> {
        self.allocator
            .as_ref()
            .map(|(allocator, _)| allocator.to_string())
    }
}

/// Does what an order says, in this process, and prints the result.
///
/// # Errors
///
/// Fails if the order is malformed, with the reason.
pub(crate) fn obey(order: &str) -> Result<(), String> {
    let order: Order =
        serde_json::from_str(order).map_err(|error| format!("not an order: {error}"))?;
    if let Some(allocator) = order.allocator {
        allocator.check_loaded()?;
    }
    let sample = order.run().ok_or("an order for what there is not")?;
    let sample = serde_json::to_string(&sample).map_err(|error| error.to_string())?;
    println!("{sample}");
    Ok(())
}

impl Order {
    /// The result, if there is what it is about.
    fn run(&self) -> Option<Sample> {
        let area = areas::ALL.iter().find(|area| area.name == self.area)?;
        let workloads = area.workloads(self.peer == watched::NAME);
        let workload = workloads
            .iter()
            .find(|workload| workload.name == self.workload)?;
        let peer = workload.peers.iter().find(|peer| peer.name == self.peer)?;
        Some((peer.run)(&self.rules))
    }
}

/// The names of selected rows, as the filter sees them.
pub(crate) fn names(area: &Area, selected: &[Selected]) -> Vec<String> {
    let name = |workload: &Workload, peer: &usize| {
        let peer = workload.peers[*peer].name;
        format!("{}/{}/{peer}", area.name, workload.name)
    };
    let names = selected
        .iter()
        .flat_map(|(workload, peers)| peers.iter().map(move |peer| name(workload, peer)));
    names.collect()
}

fn run_child(order: &Order, library: Option<&Path>) -> Result<Sample, String> {
    let mut child = command(order, library)?
        .spawn()
        .map_err(|error| format!("cannot start a child: {error}"))?;
    let (output, complaints) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let limit = order.rules.target * TEST_TIMEOUT;
    let in_time = output.recv_timeout(limit);
    let status = end(&mut child, in_time.is_err())?;
    let complaints = || last_lines(&complaints.recv().unwrap_or_default());
    match in_time {
        Err(_) => Err(format!("killed after {} s", limit.as_secs())),
        Ok(_) if !status.success() => Err(format!("{status}: {}", complaints())),
        Ok(json) => serde_json::from_str(&json).map_err(|error| format!("not a result: {error}")),
    }
}

/// This program again, with an order.
fn command(order: &Order, library: Option<&Path>) -> Result<Command, String> {
    let own = env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let order = serde_json::to_string(order).map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.arg("child").arg(order);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The last lines of a panic are shown: they should be the ones that say what happened.
    command.env("RUST_BACKTRACE", "0");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    Ok(command)
}

/// Waits for a child, which gets no more time if it is late.
fn end(child: &mut Child, late: bool) -> Result<std::process::ExitStatus, String> {
    if late {
        child
            .kill()
            .map_err(|error| format!("cannot kill a child: {error}"))?;
    }
    child
        .wait()
        .map_err(|error| format!("cannot wait for a child: {error}"))
}

/// Reads a pipe to its end on a thread of its own, so that the child never waits for us.
fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error, use the bytes that could be read.
            let _ = pipe.read_to_end(&mut bytes);
        }
        // Nobody asks for the complaints of a child that did well.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

/// Joins the last lines of a child's output into one.
fn last_lines(complaints: &str) -> String {
    let lines = complaints.lines().map(str::trim);
    let telling = |line: &&str| !line.is_empty() && !line.starts_with("note: run with");
    let lines: Vec<&str> = lines.filter(telling).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    fn plan(filter: &str) -> Plan {
        let rules = Rules {
            target: Duration::ZERO,
            quick: true,
            count_allocs: false,
            steps_per_us: 1.0,
            dir: None,
        };
        let filter = Some(regex::Regex::new(filter).expect("a filter of a test is valid"));
        Plan {
            rules,
            repetitions: 1,
            filter,
            watched: false,
            allocator: None,
        }
    }

    fn paths(filter: &str) -> Vec<String> {
        let plan = plan(filter);
        let mut paths = Vec::new();
        for area in areas::ALL {
            for (workload, peers) in plan.select(area) {
                paths.extend(
                    peers
                        .iter()
                        .map(|&peer| Row::new(area, &workload, &workload.peers[peer], None).path()),
                );
            }
        }
        paths
    }

    #[test]
    fn a_filter_picks_workloads_and_peers() {
        assert_eq!(paths("^cell/slot/throng$"), ["cell/slot/throng"]);
        assert!(paths("no such row").is_empty());
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let all = paths("");
        let distinct: HashSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn every_workload_is_explained() {
        let page = include_str!("../ROWS.md");
        for area in areas::ALL {
            for workload in area.workloads(false) {
                let name = format!("`{}`", workload.name);
                assert!(page.contains(&name), "{name} is not in benches/ROWS.md");
            }
        }
    }

    #[test]
    fn every_workload_has_ours_first() {
        for area in areas::ALL {
            for workload in area.workloads(false) {
                assert_eq!(
                    workload.peers[0].name, "throng",
                    "{}/{}",
                    area.name, workload.name
                );
            }
        }
    }
}
