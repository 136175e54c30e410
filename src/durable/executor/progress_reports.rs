//! [`ProgressReports`]: the progress that the runs of an executor report, until it is stored.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::durable::TaskId;
use crate::durable::failure::Failure;
use crate::durable::progress::RunProgress;
use crate::durable::store::{Backend, Epoch, MAX_BATCH_TASKS, ProgressReport, Verdict, Verdicts};

/// The minimum time between two rounds of requests that report progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The progress that the runs of an executor report, until it is stored.
pub(crate) struct ProgressReports {
    sender: mpsc::UnboundedSender<StdArc<RunProgress>>,
    received: mpsc::UnboundedReceiver<StdArc<RunProgress>>,
    /// The runs that have reported progress, and have not ended.
    runs: HashMap<(Epoch, TaskId), StdArc<RunProgress>>,
    /// The runs whose last reports are to be sent.
    queued: Vec<StdArc<RunProgress>>,
    /// The earliest time of the next round.
    next: Instant,
    /// The runs of the current round, each with the number of its report.
    sent: Vec<(StdArc<RunProgress>, u64)>,
    /// The last reports of runs that have ended. They are stored before the verdicts, so that the next runs can read them.
    last: HashMap<(Epoch, TaskId), ProgressReport>,
}

impl ProgressReports {
    pub(crate) fn new() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        Self {
            sender,
            received,
            runs: HashMap::new(),
            queued: Vec::new(),
            next: Instant::now(),
            sent: Vec::new(),
            last: HashMap::new(),
        }
    }

    /// Returns the progress of a new run.
    pub(crate) fn of_run(&self, id: TaskId, epoch: Epoch) -> StdArc<RunProgress> {
        RunProgress::new(id, epoch, self.sender.clone())
    }

    /// Waits for the next run that has a report to send, and queues it.
    pub(crate) async fn receive(&mut self) {
        // There is always a sender.
        if let Some(run) = self.received.recv().await {
            self.queue(run);
        }
    }

    fn queue(&mut self, run: StdArc<RunProgress>) {
        let key = (run.epoch(), run.id());
        self.runs.insert(key, StdArc::clone(&run));
        self.queued.push(run);
    }

    /// Returns the time of the next round, if there are reports to send.
    pub(crate) fn next_round(&self) -> Option<Instant> {
        (!self.queued.is_empty()).then_some(self.next)
    }

    /// Begins a round if one is due. Returns its reports.
    pub(crate) fn begin_round(&mut self) -> Vec<ProgressReport> {
        let now = Instant::now();
        if self.next_round().is_none_or(|next| now < next) {
            return Vec::new();
        }
        let mut reports = Vec::new();
        for run in mem::take(&mut self.queued) {
            if let Some(report) = run.take() {
                self.sent.push((run, report.progress.number));
                reports.push(report);
            }
        }
        if !reports.is_empty() {
            self.next = now + REPORT_INTERVAL;
        }
        reports
    }

    /// Ends a round. Returns the runs that no longer hold their tasks.
    pub(crate) fn end_round(
        &mut self,
        answer: Result<Vec<TaskId>, Failure>,
    ) -> Vec<StdArc<RunProgress>> {
        let mut sent = mem::take(&mut self.sent);
        let Ok(refused) = answer else {
            let again = sent.into_iter().map(|(run, _)| run);
            self.queued
                .extend(again.filter(|run| run.must_send_again()));
            return Vec::new();
        };
        // If several runs of a task have reported, the report of an earlier run was refused.
        sent.sort_by_key(|(run, _)| run.epoch());
        let mut lost = Vec::new();
        for id in refused {
            let position = sent.iter().position(|(run, _)| run.id() == id);
            lost.extend(position.map(|position| sent.remove(position).0));
        }
        sent.iter().for_each(|(run, number)| run.stored(*number));
        lost
    }

    /// Ends a run. Returns its last report if it is not stored.
    pub(crate) fn end(&mut self, epoch: Epoch, id: TaskId) -> Option<ProgressReport> {
        // A run sends itself before it ends.
        while let Ok(run) = self.received.try_recv() {
            self.queue(run);
        }
        self.runs.remove(&(epoch, id))?.end()
    }

    /// Adds the last report of a run that has ended with a verdict, unless the verdict ends the task.
    pub(crate) fn add_last(&mut self, report: Option<ProgressReport>, verdict: &Verdict) {
        let report = report.filter(|_| may_run_again(verdict));
        let report = report.map(|report| ((report.progress.epoch, report.id), report));
        self.last.extend(report);
    }

    /// Returns the reports that are to be stored before the next verdicts.
    pub(crate) fn last(&self) -> Vec<ProgressReport> {
        self.last.values().cloned().collect()
    }

    /// Removes the reports of runs whose verdicts are stored.
    pub(crate) fn confirmed(&mut self, verdicts: &Verdicts) {
        if self.last.is_empty() {
            return;
        }
        for (id, _) in &verdicts.tasks {
            self.last.remove(&(verdicts.epoch, *id));
        }
    }
}

/// Returns `true` if a task may run again after this verdict.
pub(crate) fn may_run_again(verdict: &Verdict) -> bool {
    !matches!(verdict.split().0, Verdict::Done(_) | Verdict::Dead { .. })
}

/// Stores reports. Returns the tasks whose reports were refused.
pub(crate) async fn store(
    store: &dyn Backend,
    reports: &[ProgressReport],
) -> Result<Vec<TaskId>, Failure> {
    let mut refused = Vec::new();
    for reports in reports.chunks(MAX_BATCH_TASKS) {
        refused.extend(store.report_progress(reports.to_vec()).await?);
    }
    Ok(refused)
}
