//! What a pool has done so far.

use std::time::Duration;

use super::shared::Shared;

/// What a [`ComputePool`](crate::ComputePool) has done so far, and does now.
///
/// The numbers are read one after another while the pool works. A task that ran is counted before its handle is
/// ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// One for each thread.
    pub lanes: Vec<LaneMetrics>,
    /// Tasks that were not accepted, because the pool was full or closed.
    pub rejected: u64,
    /// Tasks that [`shutdown_now`](crate::ComputePool::shutdown_now) has dropped.
    pub dropped: u64,
}

/// What one thread has done so far, and does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneMetrics {
    /// Tasks that the thread has run, or runs.
    pub executed: u64,
    /// Of those, tasks that have panicked.
    pub panicked: u64,
    /// Tasks that were aborted before they started, counted when the thread reaches them.
    pub cancelled: u64,
    /// Tasks that the thread has taken from the lanes of others.
    pub stolen: u64,
    /// How often the thread has gone to sleep.
    pub parked: u64,
    /// How often it was woken.
    pub woken: u64,
    /// Tasks that wait in the lane.
    pub backlog: usize,
    /// Whether the thread sleeps.
    pub is_parked: bool,
    /// For how long the present task has been running: seen every 5 ms, and 0 for shorter ones. A large
    /// number says that a task blocks the thread, and belongs on a
    /// [`BlockingPool`](crate::BlockingPool).
    pub running_for: Duration,
}

impl Metrics {
    pub(super) fn of(shared: &Shared) -> Self {
        let lane = |lane| LaneMetrics::of(shared, lane);
        Self {
            lanes: (0..shared.lanes.len()).map(lane).collect(),
            rejected: shared.rejected.get() as u64,
            dropped: shared.dropped.get() as u64,
        }
    }

    /// Tasks that all threads together have run, or run.
    pub fn executed(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.executed).sum()
    }

    /// Tasks that wait.
    pub fn backlog(&self) -> usize {
        self.lanes.iter().map(|lane| lane.backlog).sum()
    }

    /// For how long the task has been running that has been running longest.
    pub fn longest_running(&self) -> Duration {
        let running = self.lanes.iter().map(|lane| lane.running_for);
        running.max().unwrap_or_default()
    }
}

impl LaneMetrics {
    fn of(shared: &Shared, number: usize) -> Self {
        let lane = &shared.lanes[number];
        let tally = lane.tally();
        let cancelled = tally.cancelled.get();
        let others = cancelled.wrapping_add(tally.turns.get());
        let is_parked = lane.is_parked();
        let parked = tally.parked.get() as u64;
        Self {
            executed: tally.ran.get().saturating_sub(others) as u64,
            panicked: tally.ended.panicked(),
            cancelled: cancelled as u64,
            stolen: tally.stolen.get() as u64,
            parked,
            // It wakes as often as it sleeps, but for this time.
            woken: parked - u64::from(is_parked && parked > 0),
            backlog: lane.backlog(),
            is_parked,
            running_for: shared.running_for(number),
        }
    }
}
