//! [`Attempt`] determines the verdict on a run that fails, and [`TimeLimit`] the verdict on a run that exceeds its timeout.

use std::time::Duration;

use crate::durable::clock::since_boot;
use crate::durable::store::{
    Claimed, DeadReason, MAX_ATTEMPT_ERROR_BYTES, MAX_ERROR_BYTES, Verdict, shortened,
};
use crate::retry::Retry;

/// The facts about a run that determine the verdict on it if it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    retry: Retry,
    /// The number of runs that have failed if this one fails.
    failures: u32,
    /// The time since the first failure, and the time of this measurement, since the machine was started. It is `None` if no run has failed
    /// before.
    failing_for: Option<(Duration, Duration)>,
}

impl Attempt {
    /// Returns the attempt of a task whose run starts now.
    pub(crate) fn new(retry: Retry, claimed: &Claimed) -> Self {
        Self {
            retry,
            failures: claimed.failures.saturating_add(1),
            failing_for: claimed.failing_for.map(|time| (time, since_boot())),
        }
    }

    /// Returns the verdict on the run if it has failed: the next attempt begins after `wait` or, if that is `None`, after a delay of the
    /// [`Retry`], unless no attempt is left or the next one would begin too late.
    pub(crate) fn failed(&self, wait: Option<Duration>, error: String) -> Verdict {
        let delay = self.retry.delay(self.failures);
        let delay = delay.map(|delay| wait.unwrap_or(delay));
        match delay.filter(|&delay| self.retry.allows(delay, self.elapsed())) {
            Some(after) => Verdict::Retry {
                after,
                error: shortened(error, MAX_ATTEMPT_ERROR_BYTES),
                took: None,
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

/// The timeout of a run, and the attempt that fails if the run exceeds it.
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
        took: None,
    }
}
