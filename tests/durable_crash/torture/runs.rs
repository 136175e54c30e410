//! [`History`]: the runs of chores, according to the ledger, and for how long each of them had a lease.

use std::collections::{BTreeMap, HashMap, HashSet};

use throng::durable::TaskId;

use super::LEASE;
use super::chore::{Note, RATE};
use super::fleet::{Freeze, Record};
use crate::job::Line;

/// A run of a chore. Times are in microseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: TaskId,
    pub(super) pid: u32,
    pub(super) epoch: u64,
    /// The time of the claim, or an earlier one.
    pub(super) claimed: u64,
    pub(super) start: u64,
    /// The time until which the run certainly had a lease, and had not ended.
    pub(super) until: u64,
    /// The word of the ledger for the end of the run, unless its process was killed before.
    pub(super) end: Option<String>,
    pub(super) note: Note,
}

/// All runs, in the order in which they began.
pub(super) struct History {
    pub(super) runs: Vec<Run>,
    /// The last run of each task.
    last: HashMap<TaskId, (u64, usize)>,
}

impl History {
    /// Returns the history of a fleet that has ended.
    pub(super) fn of(ledger: &[Line], record: &Record) -> Self {
        let close = Closing::of(ledger, record);
        let run = |line| {
            let run = close.run(line);
            run.unwrap_or_else(|| panic!("the run has ended or was killed: {line:?}"))
        };
        Self::from_runs(starts(ledger).map(run).collect())
    }

    /// The same, of a fleet that is not at its end: without the runs that are not, either.
    pub(super) fn so_far(ledger: &[Line], record: &Record) -> Self {
        let close = Closing::of(ledger, record);
        Self::from_runs(starts(ledger).filter_map(|line| close.run(line)).collect())
    }

    fn from_runs(mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| run.start);
        let mut claims = HashSet::new();
        for run in &runs {
            let is_new = claims.insert((run.id, run.epoch));
            assert!(is_new, "a claim lets a task start once: {run:?}");
        }
        let mut last = HashMap::new();
        for (n, run) in runs.iter().enumerate() {
            let last = last.entry(run.id).or_default();
            *last = (run.epoch, n).max(*last);
        }
        Self { runs, last }
    }

    pub(super) fn ids(&self) -> HashSet<TaskId> {
        self.runs.iter().map(|run| run.id).collect()
    }

    /// Returns the tasks of which some run has ended in this way.
    pub(super) fn ended(&self, how: &str) -> HashSet<TaskId> {
        let ended = self.runs.iter();
        let ended = ended.filter(|run| run.end.as_deref() == Some(how));
        ended.map(|run| run.id).collect()
    }

    /// Returns `true` if this run has come to its end, and no other worker has claimed the task later: then, only the verdict of
    /// that one counts.
    pub(super) fn is_final(&self, id: TaskId, pid: u32, epoch: u64) -> bool {
        self.last.get(&id).is_some_and(|&(_, last)| {
            let run = &self.runs[last];
            (run.pid, run.epoch, run.end.as_deref()) == (pid, epoch, Some("end"))
        })
    }

    /// Returns the time at which each task has started first.
    pub(super) fn first_starts(&self) -> HashMap<TaskId, u64> {
        let mut first = HashMap::new();
        for run in &self.runs {
            first.entry(run.id).or_insert(run.start);
        }
        first
    }

    /// Sorts runs into classes, and asserts that at most so many of each class had a lease at once.
    pub(super) fn assert_at_most<C: Ord + std::fmt::Debug>(
        &self,
        limit: usize,
        class_of: impl Fn(&Run) -> Option<C>,
    ) {
        for (class, most) in self.fullest(class_of) {
            let count = most.len();
            assert!(count <= limit, "{class:?} runs {count} at once: {most:#?}");
        }
    }

    /// Returns the highest number of runs of one class that had a lease at once.
    pub(super) fn most_at_once<C: Ord>(&self, class_of: impl Fn(&Run) -> Option<C>) -> usize {
        let fullest = self.fullest(class_of);
        fullest.values().map(Vec::len).max().unwrap_or_default()
    }

    /// Returns the runs of each class at the time at which most of them had a lease.
    fn fullest<C: Ord>(&self, class_of: impl Fn(&Run) -> Option<C>) -> BTreeMap<C, Vec<&Run>> {
        let mut classes = BTreeMap::<C, Vec<&Run>>::new();
        for run in &self.runs {
            if let Some(class) = class_of(run) {
                classes.entry(class).or_default().push(run);
            }
        }
        let fullest = classes.into_iter();
        fullest
            .map(|(class, runs)| (class, most_at_once(&runs)))
            .collect()
    }

    /// Asserts that the tasks of each group have first started in the order in which they were stored.
    pub(super) fn assert_in_order(&self) {
        let mut last = HashMap::<&str, (u64, TaskId)>::new();
        let mut seen = HashSet::new();
        for run in &self.runs {
            let Some(group) = run.note.group.as_deref() else {
                continue;
            };
            if !seen.insert(run.id) {
                continue;
            }
            let place = run.note.tick.unwrap_or(run.note.chore.serial);
            if let Some((before, id)) = last.insert(group, (place, run.id)) {
                assert!(before < place, "{id} has started before {run:?}");
            }
        }
    }

    /// Asserts that these runs were not claimed faster than [`RATE`] allows. The times of the claims are known up to `slack`.
    pub(super) fn assert_rate(&self, slack: u64, is_rated: impl Fn(&Run) -> bool) {
        let (interval, burst) = (RATE.0.as_micros() as u64, u64::from(RATE.1));
        let rated = self.runs.iter().filter(|run| is_rated(run));
        let mut claims: Vec<_> = rated.map(|run| run.claimed).collect();
        claims.sort_unstable();
        let mut used_until = 0;
        for claim in claims {
            used_until = used_until.max(claim) + interval;
            let ahead = used_until - claim;
            let whole = interval * burst + slack;
            assert!(ahead <= whole, "at {claim}, the rate is exceeded");
        }
    }
}

/// Returns the lines with which the runs of chores begin.
fn starts(ledger: &[Line]) -> impl Iterator<Item = &Line> {
    let starts = ledger.iter().filter(|line| line.what == "start");
    starts.filter(|line| line.note != "-")
}

/// Returns the runs at the time at which most of them had a lease.
fn most_at_once<'a>(runs: &[&'a Run]) -> Vec<&'a Run> {
    let (mut running, mut most) = (Vec::<&Run>::new(), Vec::new());
    for &run in runs.iter().filter(|run| run.start < run.until) {
        running.retain(|other| other.until > run.start);
        running.push(run);
        if running.len() > most.len() {
            most.clone_from(&running);
        }
    }
    most
}

/// Everything that can end a run.
struct Closing<'a> {
    record: &'a Record,
    ends: HashMap<(TaskId, u64), &'a Line>,
    late: HashSet<(TaskId, u64)>,
    /// The first lines of the runs of each task, by their epochs.
    claims: HashMap<TaskId, BTreeMap<u64, &'a Line>>,
}

impl<'a> Closing<'a> {
    fn of(ledger: &'a [Line], record: &'a Record) -> Self {
        let mut closing = Self {
            record,
            ends: HashMap::new(),
            late: HashSet::new(),
            claims: HashMap::new(),
        };
        for line in ledger {
            let run = (line.id, line.epoch);
            match &*line.what {
                "start" => {
                    _ = closing
                        .claims
                        .entry(line.id)
                        .or_default()
                        .insert(run.1, line)
                }
                "late" => _ = closing.late.insert(run),
                _ => _ = closing.ends.insert(run, line),
            }
        }
        closing
    }

    /// Returns the run that begins with a line, if it has ended or was killed.
    fn run(&self, line: &Line) -> Option<Run> {
        let end = self.ends.get(&(line.id, line.epoch));
        let ended = end.map(|end| end.time).or_else(|| self.death(line))?;
        Some(Run {
            id: line.id,
            pid: line.pid,
            epoch: line.epoch,
            claimed: self.record.time_of_claim(line),
            start: line.time,
            until: self.end_of_lease(line, ended),
            end: end.map(|end| end.what.clone()),
            note: serde_json::from_str(&line.note).expect("a note"),
        })
    }

    /// Returns the time at which the process of a run was killed, if it was. A later process may have the same number.
    fn death(&self, line: &Line) -> Option<u64> {
        let mut deaths = self.record.deaths.iter();
        let death = deaths.find(|&&(pid, time)| pid == line.pid && time >= line.time);
        death.map(|&(_, time)| time)
    }

    /// Returns the time until which a run certainly had its lease, at most `ended`. A run that has lost its lease had it for
    /// some time after its claim, whether it was renewed or not.
    fn end_of_lease(&self, line: &Line, ended: u64) -> u64 {
        let claimed = self.record.time_of_claim(line);
        let granted = match self.is_lost(line, ended) {
            true => claimed + LEASE * 500,
            false => ended,
        };
        let is_own = |freeze: &&Freeze| freeze.pid == line.pid;
        let freezes = self.record.freezes.iter().filter(is_own);
        let frozen = freezes.filter_map(|freeze| freeze.cuts(line.time, ended));
        let frozen = frozen.min().unwrap_or(ended);
        ended.min(granted).min(frozen)
    }

    /// Returns `true` if another worker has claimed the task, although no verdict of this run was accepted.
    fn is_lost(&self, line: &Line, ended: u64) -> bool {
        if self.late.contains(&(line.id, line.epoch)) {
            return true;
        }
        let mut later = self.claims[&line.id].range(line.epoch + 1..);
        let Some((_, next)) = later.next() else {
            return false;
        };
        let Some(end) = self.ends.get(&(line.id, line.epoch)) else {
            return next.time < ended;
        };
        // Only a snooze counts no attempt.
        let is_accepted =
            end.what == "fail" && (next.attempt > line.attempt || line.note.contains("Snooze"));
        !is_accepted || next.time < ended
    }
}
