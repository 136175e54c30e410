//! The metrics of a pool.

use std::time::Duration;

use super::shared::Shared;

/// A snapshot of the work of a [`ComputePool`](crate::ComputePool).
///
/// The numbers are read one after the other while the pool works. A task is counted before its handle is ready.
///
/// # Examples
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = throng::ComputePool::new();
/// pool.spawn(|| 6 * 7).await?;
/// let metrics = pool.metrics();
/// assert_eq!((metrics.completed, metrics.panicked, metrics.rejected), (1, 0, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Tasks that have returned, or run now.
    pub completed: u64,
    /// Tasks that have panicked.
    pub panicked: u64,
    /// Tasks that were not accepted, because the pool was full or closed.
    pub rejected: u64,
    /// Tasks that were aborted before they started, by a handle or by a shutdown. Those that a handle aborted are counted
    /// when a thread reaches them.
    pub cancelled: u64,
    /// Tasks that wait.
    pub queued: u64,
    /// One entry for each thread.
    pub lanes: Vec<LaneMetrics>,
}

/// A snapshot of the work of one thread of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneMetrics {
    /// Tasks that the thread has stolen from others.
    pub stolen: u64,
    /// Tasks that wait in the lane.
    pub queued: u64,
    /// `true` if the thread sleeps.
    pub is_parked: bool,
    /// The time for which the current task has been running, measured every 5 ms; zero for shorter tasks. A task that
    /// runs long blocks the thread, and belongs on a [`BlockingPool`](crate::BlockingPool).
    pub running_for: Duration,
}

impl Metrics {
    pub(super) fn of(shared: &Shared) -> Self {
        let mut metrics = Self {
            rejected: shared.rejected.get() as u64,
            cancelled: shared.aborted.get() as u64,
            ..Self::default()
        };
        for number in 0..shared.lanes.len() {
            metrics.add_lane(shared, number);
        }
        metrics
    }

    fn add_lane(&mut self, shared: &Shared, number: usize) {
        let lane = &shared.lanes[number];
        let counters = lane.counters();
        // Before the number of those that have started, so that their difference is not negative.
        let panicked = counters.outcomes.panicked();
        let cancelled = counters.cancelled.get() as u64;
        let others = cancelled + counters.drains.get() as u64 + panicked;
        let lane = LaneMetrics {
            stolen: counters.stolen.get() as u64,
            queued: lane.backlog() as u64,
            is_parked: lane.is_parked(),
            running_for: shared.watchdog().running_for(number, lane),
        };
        self.completed += (counters.started.get() as u64).saturating_sub(others);
        self.panicked += panicked;
        self.cancelled += cancelled;
        self.queued += lane.queued;
        self.lanes.push(lane);
    }
}
