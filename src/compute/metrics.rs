//! The metrics of a pool.

use std::time::Duration;

use super::shared::Shared;

/// What a [`ComputePool`](crate::ComputePool) has done so far, and does now.
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
    /// Tasks that were aborted before they started, by a handle or by a shutdown.
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
    /// Tasks that have returned on the thread, or run now.
    pub completed: u64,
    /// Tasks that have panicked on the thread.
    pub panicked: u64,
    /// Tasks that a handle aborted before they started. They are counted when the thread reaches them.
    pub cancelled: u64,
    /// Tasks that the thread has stolen from others.
    pub stolen: u64,
    /// The number of times that the thread has gone to sleep.
    pub parked: u64,
    /// The number of times that the thread has been woken.
    pub woken: u64,
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
        let lanes: Vec<_> = (0..shared.lanes.len())
            .map(|lane| LaneMetrics::of(shared, lane))
            .collect();
        let sum = |number: fn(&LaneMetrics) -> u64| lanes.iter().map(number).sum();
        Self {
            completed: sum(|lane| lane.completed),
            panicked: sum(|lane| lane.panicked),
            rejected: shared.rejected.get() as u64,
            cancelled: sum(|lane| lane.cancelled) + shared.aborted.get() as u64,
            queued: sum(|lane| lane.queued),
            lanes,
        }
    }

    /// The longest time for which a task that runs now has been running.
    pub fn longest_running(&self) -> Duration {
        let running = self.lanes.iter().map(|lane| lane.running_for);
        running.max().unwrap_or_default()
    }
}

impl LaneMetrics {
    fn of(shared: &Shared, number: usize) -> Self {
        let lane = &shared.lanes[number];
        let counters = lane.counters();
        // Before the number of those that have started, so that their difference is not negative.
        let panicked = counters.outcomes.panicked();
        let cancelled = counters.cancelled.get() as u64;
        let others = cancelled + counters.drains.get() as u64 + panicked;
        let is_parked = lane.is_parked();
        let parked = counters.parked.get() as u64;
        Self {
            completed: (counters.started.get() as u64).saturating_sub(others),
            panicked,
            cancelled,
            stolen: counters.stolen.get() as u64,
            parked,
            // The thread has been woken from each sleep but the present one.
            woken: parked - u64::from(is_parked && parked > 0),
            queued: lane.backlog() as u64,
            is_parked,
            running_for: shared.watchdog().running_for(number, lane),
        }
    }
}
