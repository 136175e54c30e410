//! [`Attempt`]: what follows if a run fails. [`TimeLimit`]: the time that a run may take. The verdicts on runs without an output.

use std::time::Duration;

use crate::durable::clock::since_boot;
use crate::durable::store::{
    Claimed, DeadReason, MAX_ATTEMPT_ERROR_BYTES, MAX_ERROR_BYTES, Verdict, shortened,
};
use crate::retry::Retry;

/// A run of a task, as far as it determines what follows if the run fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    retry: Retry,
    /// The number of runs that have failed if this one fails.
    failures: u32,
    /// The time since the first failure, and when it was measured, since the machine was started. `None` if no run has failed before.
    failing_for: Option<(Duration, Duration)>,
}

impl Attempt {
    /// Returns the attempt of a task that starts now.
    pub(crate) fn new(retry: Retry, claimed: &Claimed) -> Self {
        Self {
            retry,
            failures: claimed.failures.saturating_add(1),
            failing_for: claimed.failing_for.map(|time| (time, since_boot())),
        }
    }

    /// Returns the verdict on the run if it has failed: the next attempt begins after `wait` or, without it, after a delay of the
    /// [`Retry`], unless no attempt is left or the next one would begin too late.
    pub(crate) fn failed(&self, wait: Option<Duration>, error: String) -> Verdict {
        let delay = self.retry.delay(self.failures);
        let delay = delay.map(|delay| wait.unwrap_or(delay));
        match delay.filter(|&delay| self.retry.allows(delay, self.elapsed())) {
            Some(after) => Verdict::Retry {
                after,
                error: shortened(error, MAX_ATTEMPT_ERROR_BYTES),
            },
            None => dead(DeadReason::Attempts, error),
        }
    }

    /// Returns the time since the first failure, which may be that of this run.
    fn elapsed(&self) -> Duration {
        let elapsed = self.failing_for;
        elapsed.map_or(Duration::ZERO, |(time, at)| {
            time.saturating_add(since_boot().saturating_sub(at))
        })
    }
}

/// The time that a run may take, and what follows if it takes longer.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    pub(crate) timeout: Duration,
    pub(crate) attempt: Attempt,
}

impl TimeLimit {
    /// Returns the verdict on the run if it has not ended in time.
    pub(crate) fn exceeded(&self) -> Verdict {
        let error = format!("it ran longer than its timeout of {:?}", self.timeout);
        self.attempt.failed(None, error)
    }
}

pub(crate) fn dead(reason: DeadReason, error: String) -> Verdict {
    Verdict::Dead {
        reason,
        error: shortened(error, MAX_ERROR_BYTES),
    }
}
