//! [`TopModel`]: the state of the screen.

use std::collections::VecDeque;

use throng::durable::{Counts, TaskChange, TaskId, TaskInfo, WorkerInfo};

use super::data::{TopData, TopRows};
use super::tab::TopTab;
use crate::cmd::queue::queue_name;
use crate::cmd::task::show::{reason_name, when};
use crate::cmd::{types, worker};
use crate::duration::short;
use crate::failure::Failure;
use crate::out::{Line, dash, escape};

/// The state of the screen.
pub(super) struct TopModel {
    pub(super) can_operate: bool,
    pub(super) tab: TopTab,
    pub(super) data: TopData,
    /// The error of the last request, if it has failed.
    pub(super) failure: Option<String>,
    /// The numbers of the last minutes, the oldest first.
    pub(super) history: VecDeque<TopSample>,
    counts: Counts,
    pub(super) selected: usize,
    pub(super) filter: String,
    pub(super) is_filtering: bool,
    pub(super) is_frozen: bool,
    pub(super) is_help: bool,
    pub(super) detail: Option<Vec<Line>>,
    /// The number of lines of the detail that are above the screen.
    pub(super) scroll: u16,
    /// A change that waits for a confirmation.
    pub(super) pending: Option<(TaskId, TaskChange)>,
    pub(super) message: Option<String>,
}

/// The numbers of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TopSample {
    pub(super) waiting: u64,
    pub(super) running: u64,
    /// The number of tasks that have succeeded since the sample before.
    pub(super) done: u64,
}

/// A row of a table, and the task that it is about.
pub(super) struct TopRow {
    pub(super) cells: Vec<String>,
    pub(super) task: Option<TaskId>,
}

/// The number of samples that are kept.
const SAMPLES: usize = 300;
/// The number of characters in a line of a narrow screen.
const MIN_LINE: usize = 20;

impl TopModel {
    pub(super) fn new(can_operate: bool, data: TopData) -> Self {
        let counts = data.overview.counts;
        let mut model = Self {
            can_operate,
            tab: TopTab::Queues,
            data,
            failure: None,
            history: VecDeque::new(),
            counts,
            selected: 0,
            filter: String::new(),
            is_filtering: false,
            is_frozen: false,
            is_help: false,
            detail: None,
            scroll: 0,
            pending: None,
            message: None,
        };
        model.sample();
        model
    }

    /// Takes the answer to a request.
    pub(super) fn update(&mut self, answer: Result<TopData, Failure>) {
        match answer {
            Err(failure) => self.failure = Some(failure.to_string()),
            Ok(data) => {
                self.failure = None;
                self.data = data;
                self.sample();
            }
        }
        self.select(0);
    }

    fn sample(&mut self) {
        let counts = self.data.overview.counts;
        self.history.push_back(TopSample {
            waiting: counts.waiting,
            running: counts.running,
            done: counts.done.saturating_sub(self.counts.done),
        });
        self.counts = counts;
        if self.history.len() > SAMPLES {
            self.history.pop_front();
        }
    }

    /// Opens another tab. Its rows arrive with the next answer.
    pub(super) fn open(&mut self, tab: TopTab) {
        self.tab = tab;
        self.selected = 0;
        self.filter.clear();
        self.data.rows = TopRows::None;
    }

    /// Moves the selection, within the rows.
    pub(super) fn select(&mut self, by: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Opens a detail.
    pub(super) fn show(&mut self, detail: Vec<Line>) {
        self.detail = Some(detail);
        self.scroll = 0;
    }

    /// Scrolls the detail, and returns `true` if there is one.
    pub(super) fn scroll(&mut self, by: isize) -> bool {
        let Some(detail) = &self.detail else {
            return false;
        };
        // Each text takes at most this number of lines, even on the narrowest screen.
        let lines = detail.iter().map(|(_, text)| 1 + text.len() / MIN_LINE);
        let last = lines.sum::<usize>().saturating_sub(1);
        let scroll = usize::from(self.scroll).saturating_add_signed(by).min(last);
        self.scroll = u16::try_from(scroll).unwrap_or(u16::MAX);
        true
    }

    /// Returns all fields of the selected row. A narrow screen does not show all of them.
    pub(super) fn fields(&self) -> Option<Vec<Line>> {
        let row = self.rows().into_iter().nth(self.selected)?;
        let titles = self.tab.titles().iter().copied();
        Some(titles.zip(row.cells).collect())
    }

    /// Returns the selected task, if the row is about a task.
    pub(super) fn task(&self) -> Option<TaskId> {
        self.rows().get(self.selected)?.task
    }

    /// Returns the rows that match the filter. Their texts are escaped.
    pub(super) fn rows(&self) -> Vec<TopRow> {
        let mut rows = self.all_rows();
        rows.retain(|row| row.cells.iter().any(|cell| cell.contains(&self.filter)));
        rows
    }

    fn all_rows(&self) -> Vec<TopRow> {
        match (self.tab, &self.data.rows) {
            (TopTab::Queues, _) => self.queues(),
            (TopTab::Types, _) => self.types(),
            (TopTab::Running, TopRows::Tasks(tasks)) => tasks
                .iter()
                .map(|task| TopRow::new(running_cells(task), Some(task.id)))
                .collect(),
            (TopTab::Dead, TopRows::Tasks(tasks)) => tasks
                .iter()
                .map(|task| TopRow::new(dead_cells(task), Some(task.id)))
                .collect(),
            (TopTab::Workers, TopRows::Workers(workers)) => workers
                .iter()
                .map(|worker| TopRow::new(worker_cells(worker), None))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn queues(&self) -> Vec<TopRow> {
        let cells = self.data.overview.queues.iter().map(|queue| {
            vec![
                queue_name(queue.name.as_deref()),
                queue.info.waiting.to_string(),
                queue.info.running.to_string(),
                queue.oldest_waiting.map_or_else(dash, short),
                queue.sessions.to_string(),
                crate::cmd::queue::state(queue).into(),
            ]
        });
        cells.map(|cells| TopRow::new(cells, None)).collect()
    }

    fn types(&self) -> Vec<TopRow> {
        let cells = self.data.overview.types.iter().map(|it| {
            vec![
                it.name.clone().unwrap_or_else(|| "(others)".into()),
                queue_name(it.queue.as_deref()),
                it.last_hour.started.to_string(),
                it.last_hour.done.to_string(),
                it.last_hour.died.to_string(),
                types::mean(it),
                types::state(it).into(),
            ]
        });
        cells.map(|cells| TopRow::new(cells, None)).collect()
    }
}

impl TopRow {
    fn new(cells: Vec<String>, task: Option<TaskId>) -> Self {
        let cells = cells.iter().map(|cell| escape::text(cell)).collect();
        Self { cells, task }
    }
}

fn name(task: &TaskInfo) -> String {
    task.name.clone().unwrap_or_else(dash)
}

fn running_cells(task: &TaskInfo) -> Vec<String> {
    let failures = task.failures.map_or_else(dash, |it| it.to_string());
    let time = task.running_for.map_or_else(dash, short);
    let queue = queue_name(task.queue.as_deref());
    vec![task.id.to_string(), name(task), queue, time, failures]
}

fn dead_cells(task: &TaskInfo) -> Vec<String> {
    let reason = task.reason.map_or("-", reason_name);
    let error = task.error.clone().unwrap_or_default();
    let age = task.age.map_or_else(|| when(task), short);
    vec![task.id.to_string(), name(task), reason.into(), age, error]
}

fn worker_cells(worker: &WorkerInfo) -> Vec<String> {
    vec![
        worker.session.to_string(),
        queue_name(worker.queue.as_deref()),
        worker::state_name(worker.state).into(),
        worker.host.clone(),
        worker.program.clone(),
        worker.types.join(" "),
    ]
}
