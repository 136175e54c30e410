//! [`Attempt`]: what follows if a run fails. [`TimeLimit`]: the end of the time that a run may take. The verdicts on runs without an output.

use std::time::Duration;

use tokio::time::Instant;

use crate::durable::store::{
    Claimed, DeadReason, MAX_ATTEMPT_ERROR_BYTES, MAX_ERROR_BYTES, Verdict,
};
use crate::retry::Retry;

/// A run of a task, as far as it determines what follows if the run fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    retry: Retry,
    /// The number of runs that have failed if this one fails.
    failures: u32,
    /// The time since the first failure, and when it was measured. `None` if no run has failed before.
    failing_for: Option<(Duration, Instant)>,
}

impl Attempt {
    /// Returns the attempt of a task that starts now.
    pub(crate) fn new(retry: Retry, claimed: &Claimed) -> Self {
        Self {
            retry,
            failures: claimed.failures.saturating_add(1),
            failing_for: claimed.failing_for.map(|time| (time, Instant::now())),
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
            time.saturating_add(at.elapsed())
        })
    }
}

/// The end of the time that a run may take, and what follows if it takes longer.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    pub(crate) deadline: Instant,
    timeout: Duration,
    pub(super) attempt: Attempt,
}

impl TimeLimit {
    /// Returns the limit of a run that starts now, or `None` if the run may take forever.
    pub(crate) fn new(timeout: Duration, attempt: Attempt) -> Option<Self> {
        Some(Self {
            deadline: Instant::now().checked_add(timeout)?,
            timeout,
            attempt,
        })
    }

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

/// Cuts a text to at most `max` bytes.
fn shortened(mut error: String, max: usize) -> String {
    let mut end = max.min(error.len());
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error.truncate(end);
    error
}
