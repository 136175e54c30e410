//! Counts the runs of a worker, for the statistics of the store and for its metrics.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::state::Worker;
use crate::durable::RunTotals;
use crate::durable::executor::claims::EndedRun;
use crate::durable::store::{Claimed, Verdict};

impl Worker {
    /// Counts the run of a task that starts in the current queue.
    pub(super) fn count_start(&self, task: &Claimed) {
        if let Some(time) = task.waited {
            self.tally.types.record_wait(&task.name, time);
        }
        let started = RunTotals {
            started: 1,
            ..RunTotals::default()
        };
        self.count(&task.name, self.current, started);
    }

    /// Counts a run that has ended with this verdict.
    pub(super) fn count_end(&self, run: &EndedRun, verdict: &Verdict, took: Duration) {
        let types = &self.tally.types;
        types.count(&run.name, verdict, run.was_cancelled, took);
        let mut counts = RunTotals::default();
        let number = match verdict.split().0 {
            Verdict::Done(_) => &mut counts.done,
            _ if run.was_cancelled => &mut counts.cancelled,
            Verdict::Retry { .. } => &mut counts.retried,
            Verdict::Dead { .. } => &mut counts.died,
            Verdict::Snooze { .. }
            | Verdict::Suspend { .. }
            | Verdict::Release
            | Verdict::HoldGroup { .. } => return,
        };
        *number = 1;
        counts.run_time = took;
        self.count(&run.name, run.queue, counts);
    }

    fn count(&self, name: &StdArc<str>, queue: usize, counts: RunTotals) {
        let queue = &self.settings.queues[queue].queue;
        self.engine.run_stats.add(name, queue, counts);
    }
}
