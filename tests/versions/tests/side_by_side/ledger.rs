//! [`Ledger`]: the runs of all tasks.

use std::collections::{BTreeMap, BTreeSet};

use super::site::Site;
use super::task::Task;

pub(crate) struct Ledger(Vec<Line>);

/// A line of the ledger.
struct Line {
    is_start: bool,
    id: String,
    process: u32,
    group: String,
    /// The time, in microseconds since 1970.
    time: u128,
}

impl Ledger {
    pub(crate) fn read(site: &Site) -> Self {
        let text = site.ledger();
        // The text after the last line end is still being written.
        let written = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = written.lines().map(|line| Line::parse(line).expect(line));
        Self(lines.collect())
    }

    /// Returns the number of these tasks that a process has started.
    pub(crate) fn starts_of(&self, process: u32, tasks: &[Task]) -> usize {
        let is_one = |line: &Line| tasks.iter().any(|task| task.id == line.id);
        let lines = self.0.iter();
        let starts = lines.filter(|line| line.is_start && line.process == process && is_one(line));
        starts.count()
    }

    /// Checks that each task has run to its end once, except those that never end.
    pub(crate) fn assert_each_ended_once(&self, tasks: &[Task], never: &BTreeSet<&str>) {
        let mut ends = BTreeMap::<_, usize>::new();
        for line in self.0.iter().filter(|line| !line.is_start) {
            *ends.entry(&*line.id).or_default() += 1;
        }
        for task in tasks {
            let expected = usize::from(!never.contains(&*task.id));
            let ended = ends.get(&*task.id).copied().unwrap_or_default();
            assert_eq!(ended, expected, "{task:?}");
        }
    }

    /// Checks that no two tasks of a group have run at the same time.
    pub(crate) fn assert_groups_take_turns(&self) {
        let mut lines: Vec<_> = self.0.iter().filter(|line| line.group != "-").collect();
        lines.sort_by_key(|line| (&line.group, line.time));
        for pair in lines.chunks(2) {
            let [start, end] = pair else {
                panic!("a run has no end");
            };
            let is_run = start.is_start && !end.is_start && start.id == end.id;
            assert!(is_run, "{} runs together with {}", start.id, end.id);
        }
    }
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            is_start: words.next()? == "start",
            id: words.next()?.into(),
            process: words.next()?.parse().ok()?,
            group: words.next()?.into(),
            time: words.next()?.parse().ok()?,
        })
    }
}
