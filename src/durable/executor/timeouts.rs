//! [`Timeouts`]: the runs that have a timeout.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::TimeLimit;
use crate::durable::TaskId;
use crate::durable::store::{Epoch, Verdict};

/// The runs that have a timeout, and the times of their next steps.
#[derive(Default)]
pub(crate) struct Timeouts {
    runs: HashMap<RunId, TimedRun>,
    /// The time of the next step of each run.
    steps: BTreeSet<(Instant, RunId)>,
}

type RunId = (Epoch, TaskId);

struct TimedRun {
    limit: Box<TimeLimit>,
    next: Instant,
    /// `true` if the run was asked to stop.
    is_told: bool,
}

/// A step that ends a run which exceeds its timeout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TimeoutStep {
    /// The run is asked to stop.
    Tell,
    /// The run has not stopped within this time, and its task gets this verdict.
    Fence(Duration, Verdict),
}

impl Timeouts {
    /// Adds a run that starts now, unless its timeout is too long to be added to the current time.
    pub(crate) fn started(&mut self, epoch: Epoch, id: TaskId, limit: Box<TimeLimit>) {
        let Some(next) = Instant::now().checked_add(limit.timeout) else {
            return;
        };
        self.steps.insert((next, (epoch, id)));
        let run = TimedRun {
            limit,
            next,
            is_told: false,
        };
        self.runs.insert((epoch, id), run);
    }

    /// Removes a run that has ended, if it has a timeout.
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

    /// Removes and returns a step that is due. A run that is asked to stop is fenced after this grace period.
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
            let took = timed.limit.timeout.saturating_add(grace);
            self.runs.remove(&run);
            return Some((epoch, id, TimeoutStep::Fence(took, verdict)));
        }
        (timed.is_told, timed.next) = (true, now + grace);
        self.steps.insert((timed.next, run));
        Some((epoch, id, TimeoutStep::Tell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::executor::attempt::Attempt;
    use crate::durable::store::{Claimed, StepWait};
    use crate::retry::Retry;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(timeout: Duration) -> Box<TimeLimit> {
        let claimed = Claimed {
            id: TaskId::new(),
            name: "job".into(),
            group: None,
            payload: Ok(Vec::new()),
            failures: 0,
            failing_for: None,
            waited: None,
            crashes: 0,
            lost: 0,
            quarantined: false,
            steps: 0,
            wait: StepWait::Over,
        };
        let attempt = Attempt::new(Retry::exponential().attempts(1), &claimed);
        Box::new(TimeLimit { timeout, attempt })
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_told_and_then_fenced() {
        let (mut timeouts, now, id) = (Timeouts::default(), Instant::now(), TaskId::new());
        timeouts.started(1, id, limit(3 * SECOND));
        assert_eq!(timeouts.next(), Some(now + 3 * SECOND));
        let mut steps = Vec::new();
        for seconds in 0..9 {
            let now = now + SECOND * seconds;
            while let Some((1, found, step)) = timeouts.take_due(now, 2 * SECOND) {
                assert_eq!(found, id);
                steps.push((seconds, step));
            }
        }
        let verdict = limit(3 * SECOND).exceeded();
        let expected = [
            (3, TimeoutStep::Tell),
            (5, TimeoutStep::Fence(5 * SECOND, verdict)),
        ];
        assert_eq!(steps, expected);
        assert!(timeouts.runs.is_empty() && timeouts.next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_a_run_that_has_ended() {
        let (mut timeouts, now) = (Timeouts::default(), Instant::now());
        let ids = [TaskId::new(), TaskId::new()];
        for id in ids {
            timeouts.started(1, id, limit(SECOND));
        }
        timeouts.ended(1, ids[0]);
        timeouts.ended(2, ids[1]);
        let due = timeouts.take_due(now + SECOND, SECOND);
        assert_eq!(due, Some((1, ids[1], TimeoutStep::Tell)));
        timeouts.ended(1, ids[1]);
        assert_eq!(timeouts.take_due(now + 9 * SECOND, SECOND), None);
        assert!(timeouts.runs.is_empty() && timeouts.next().is_none());
    }

    #[test]
    fn a_timeout_beyond_all_times_is_no_limit() {
        let mut timeouts = Timeouts::default();
        timeouts.started(1, TaskId::new(), limit(Duration::MAX));
        assert!(timeouts.runs.is_empty() && timeouts.next().is_none());
    }
}
