//! A worker reports the progress of its runs.

use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::timeout;

use super::state::{InFlight, Worker};
use crate::durable::executor::progress_reports;
use crate::durable::failure::Failure;
use crate::durable::store::{Backend, ProgressReport};
use crate::durable::{StopReason, TaskId};

/// The maximum time for which verdicts wait until the last reports of their runs are stored. A slow store does not delay the ends of runs
/// for longer.
const MAX_WAIT_FOR_REPORTS: Duration = Duration::from_secs(1);

impl Worker {
    /// Sends the reports of all runs together.
    pub(super) fn send_progress(&mut self) {
        if self.reporting.is_some() {
            return;
        }
        let reports = self.progress.begin_round();
        if !reports.is_empty() {
            let store = StdArc::clone(&self.engine.store);
            self.reporting = Some(InFlight::new(async move {
                progress_reports::store(&*store, &reports).await
            }));
        }
    }

    pub(super) fn reported(&mut self, answer: Result<Vec<TaskId>, Failure>) {
        self.reporting = None;
        if answer.is_err() {
            self.tally.failures.add(1);
        }
        for run in self.progress.end_round(answer) {
            // Other tasks of the claim may still be held.
            self.claims
                .stop_run(run.epoch(), run.id(), StopReason::LeaseLost);
        }
    }
}

/// Stores the last reports of runs before their verdicts are sent.
pub(super) async fn store_last(store: &dyn Backend, reports: &[ProgressReport]) {
    if !reports.is_empty() {
        let stored = progress_reports::store(store, reports);
        // The verdicts matter more than the reports.
        timeout(MAX_WAIT_FOR_REPORTS, stored).await.ok();
    }
}
