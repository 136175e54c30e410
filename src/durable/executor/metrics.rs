//! [`Metrics`]: what an executor has done.

use crate::durable::store::Verdict;
use crate::sync::Number;

/// What a [`DurableExecutor`](super::DurableExecutor) has done since it was started, and does.
///
/// For totals over all workers, see [`DurableClient::counts`](crate::durable::DurableClient::counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Tasks that run and hold a permit.
    pub running: usize,
    /// Tasks whose runs hold no permit: they await durable handles, or a permit to begin or resume.
    pub suspended: usize,
    /// Tasks that it has claimed.
    pub claimed: usize,
    /// Runs that have succeeded.
    pub done: usize,
    /// Runs that have failed, and whose tasks are tried again.
    pub retried: usize,
    /// Runs whose tasks have asked to run later, or that must not wait for another task.
    pub snoozed: usize,
    /// Runs that have made their task a dead letter.
    pub died: usize,
    /// Runs that were given back.
    pub released: usize,
    /// Runs whose end came too late: the store may have given, or had given, the task to another.
    pub refused: usize,
    /// Leases that were lost.
    pub leases_lost: usize,
    /// How often no permit became free for 30 s while this process awaited tasks that wait for a worker.
    /// A likely cause: runs await handles in Tokio tasks that they have spawned, and so keep their permits.
    pub stalled_waits: usize,
    /// Requests to the store that took effect.
    pub turns: usize,
    /// Requests that the store did not answer, or refused.
    pub failures: usize,
}

/// The numbers, as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) running: Number,
    pub(crate) suspended: Number,
    pub(crate) claimed: Number,
    pub(crate) done: Number,
    pub(crate) retried: Number,
    pub(crate) snoozed: Number,
    pub(crate) died: Number,
    pub(crate) released: Number,
    pub(crate) refused: Number,
    pub(crate) leases_lost: Number,
    pub(crate) stalled_waits: Number,
    pub(crate) turns: Number,
    pub(crate) failures: Number,
}

impl Tally {
    /// Counts a verdict that the store has taken.
    pub(crate) fn count(&self, verdict: &Verdict) {
        let number = match verdict {
            Verdict::Done(_) => &self.done,
            Verdict::Retry { .. } => &self.retried,
            Verdict::Snooze { .. } => &self.snoozed,
            Verdict::Dead { .. } => &self.died,
            Verdict::Release => &self.released,
        };
        number.add(1);
    }

    pub(crate) fn read(&self) -> Metrics {
        Metrics {
            running: self.running.get(),
            suspended: self.suspended.get(),
            claimed: self.claimed.get(),
            done: self.done.get(),
            retried: self.retried.get(),
            snoozed: self.snoozed.get(),
            died: self.died.get(),
            released: self.released.get(),
            refused: self.refused.get(),
            leases_lost: self.leases_lost.get(),
            stalled_waits: self.stalled_waits.get(),
            turns: self.turns.get(),
            failures: self.failures.get(),
        }
    }
}
