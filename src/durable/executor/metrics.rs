//! [`Metrics`]: the numbers of an executor.

use super::type_tally::TypeTally;
use crate::durable::store::Verdict;
use crate::sync::Number;

/// The numbers of a [`DurableExecutor`](crate::durable::DurableExecutor): of its runs now, and in total since it was started.
///
/// For totals over all workers, see [`DurableClient::counts`](crate::durable::DurableClient::counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The most tasks that [may run](crate::durable::Builder::max_running) at a time.
    pub max_running: u64,
    /// Tasks that run and hold a permit.
    pub running: u64,
    /// Tasks whose runs hold no permit: they await durable handles, or a permit to begin or resume.
    pub suspended: u64,
    /// Tasks that it has claimed.
    pub claimed: u64,
    /// Runs that have succeeded.
    pub completed: u64,
    /// Runs that have failed, and whose tasks are tried again.
    pub retried: u64,
    /// Runs whose tasks have asked to run later, that have ended to [wait](crate::durable::TaskContext::sleep), or that must not wait for
    /// another task.
    pub snoozed: u64,
    /// Runs that have made their task a dead letter.
    pub died: u64,
    /// Runs that were given back.
    pub released: u64,
    /// Runs that have panicked. They are also counted in `retried` or `died`.
    pub panicked: u64,
    /// Runs that have exceeded their [timeout](crate::durable::DurableTask::TIMEOUT) and were asked to stop. They are also counted by how
    /// they ended, for example in `completed` or `retried`.
    pub timed_out: u64,
    /// Runs whose verdict the store rejected because another worker had claimed the task.
    pub rejected: u64,
    /// Leases that were lost.
    pub leases_lost: u64,
    /// The number of times that no permit became free for 30 s while this process awaited tasks that wait for a worker.
    /// A likely cause: runs await handles in Tokio tasks that they have spawned, and so keep their permits.
    pub stalled_waits: u64,
    /// Runs whose tasks were not woken when a [signal](crate::durable::TaskContext::signal) or the end of a child arrived, and ran only
    /// after six hours, or when a sleep or a timeout was over. This is 0 unless rows of the store were lost.
    pub late_wakes: u64,
    /// Tasks that it has stored for [schedules](crate::durable::DurableClient::schedule), whether or not it runs them. Those of
    /// [`fire_now`](crate::durable::Schedules::fire_now) are not counted.
    pub fired: u64,
    /// Requests to the store that took effect.
    pub turns: u64,
    /// Requests that the store did not answer, or refused.
    pub failures: u64,
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) max_running: Number,
    pub(crate) running: Number,
    pub(crate) suspended: Number,
    pub(crate) claimed: Number,
    pub(crate) completed: Number,
    pub(crate) retried: Number,
    pub(crate) snoozed: Number,
    pub(crate) died: Number,
    pub(crate) released: Number,
    pub(crate) panicked: Number,
    pub(crate) timed_out: Number,
    pub(crate) rejected: Number,
    pub(crate) leases_lost: Number,
    pub(crate) stalled_waits: Number,
    pub(crate) late_wakes: Number,
    pub(crate) fired: Number,
    pub(crate) turns: Number,
    pub(crate) failures: Number,
    pub(crate) types: TypeTally,
}

impl Tally {
    pub(crate) fn new(max_running: usize, names: Vec<&'static str>) -> Self {
        Self {
            max_running: Number::new(max_running),
            types: TypeTally::new(names),
            ..Self::default()
        }
    }

    /// Counts a verdict that the store has accepted.
    pub(crate) fn count(&self, verdict: &Verdict) {
        let number = match verdict.split().0 {
            Verdict::Done(_) => &self.completed,
            Verdict::Retry { .. } => &self.retried,
            Verdict::Snooze { .. } | Verdict::Suspend { .. } => &self.snoozed,
            Verdict::Dead { .. } => &self.died,
            Verdict::Release | Verdict::HoldGroup { .. } => &self.released,
        };
        number.add(1);
    }

    pub(crate) fn read(&self) -> Metrics {
        let get = |number: &Number| number.get() as u64;
        Metrics {
            max_running: get(&self.max_running),
            running: get(&self.running),
            suspended: get(&self.suspended),
            claimed: get(&self.claimed),
            completed: get(&self.completed),
            retried: get(&self.retried),
            snoozed: get(&self.snoozed),
            died: get(&self.died),
            released: get(&self.released),
            panicked: get(&self.panicked),
            timed_out: get(&self.timed_out),
            rejected: get(&self.rejected),
            leases_lost: get(&self.leases_lost),
            stalled_waits: get(&self.stalled_waits),
            late_wakes: get(&self.late_wakes),
            fired: get(&self.fired),
            turns: get(&self.turns),
            failures: get(&self.failures),
        }
    }
}
