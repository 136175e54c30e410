//! [`Timeouts`]: the runs whose time is limited.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::TimeLimit;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, Verdict};

/// The runs whose time is limited, and the times at which something follows for them. Runs without a timeout are not here.
#[derive(Default)]
pub(crate) struct Timeouts {
    runs: HashMap<RunId, TimedRun>,
    /// For each of them, the time of the next step.
    steps: BTreeSet<(Instant, RunId)>,
}

type RunId = (Epoch, TaskId);

struct TimedRun {
    limit: Box<TimeLimit>,
    next: Instant,
    /// It was asked to stop.
    is_told: bool,
}

/// What follows for a run that takes too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TimeoutStep {
    /// It is asked to stop.
    Tell,
    /// It has not stopped, and its task gets this verdict.
    Fence(Verdict),
}

impl Timeouts {
    /// Adds a run that has started.
    pub(crate) fn started(&mut self, epoch: Epoch, id: TaskId, limit: Box<TimeLimit>) {
        let (next, is_told) = (limit.deadline, false);
        self.steps.insert((next, (epoch, id)));
        let run = TimedRun {
            limit,
            next,
            is_told,
        };
        self.runs.insert((epoch, id), run);
    }

    /// Removes a run that has ended, if it is here.
    pub(crate) fn ended(&mut self, epoch: Epoch, id: TaskId) {
        if self.runs.is_empty() {
            return;
        }
        if let Some(run) = self.runs.remove(&(epoch, id)) {
            self.steps.remove(&(run.next, (epoch, id)));
        }
    }

    /// Returns the time of the next step.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.steps.first().map(|(time, _)| *time)
    }

    /// Takes a step that is due. A run that is told is fenced after this grace period.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        grace: Duration,
    ) -> Option<(Epoch, TaskId, TimeoutStep)> {
        let run = self.steps.first().filter(|(time, _)| *time <= now)?.1;
        self.steps.pop_first();
        let (epoch, id) = run;
        let timed = self.runs.get_mut(&run)?;
        if timed.is_told {
            let verdict = timed.limit.exceeded();
            self.runs.remove(&run);
            return Some((epoch, id, TimeoutStep::Fence(verdict)));
        }
        (timed.is_told, timed.next) = (true, now + grace);
        self.steps.insert((timed.next, run));
        Some((epoch, id, TimeoutStep::Tell))
    }
}
