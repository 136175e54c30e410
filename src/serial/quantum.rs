//! [`Quantum`]: how much a drain or a submitter runs before it lets others use its thread.

use std::time::{Duration, Instant};

use super::cost::JobCost;

/// The queued jobs that a drain runs in one poll.
const DRAIN_JOBS: usize = 64;
/// The time for which a drain runs queued jobs in one poll.
const DRAIN_TIME: Duration = Duration::from_micros(100);

/// Reading the clock costs as much as a short job, so it is read once for this many jobs.
const JOBS_PER_CLOCK: usize = 4;

/// A number of jobs and a time. It ends with whichever is spent first.
pub(super) struct Quantum {
    jobs: usize,
    time: Duration,
    started: Option<Instant>,
    spent: usize,
}

impl Quantum {
    pub(super) fn new(jobs: usize, time: Duration) -> Self {
        Self {
            jobs,
            time,
            started: None,
            spent: 0,
        }
    }

    /// The quantum of one poll of a drain.
    pub(super) fn of_drain() -> Self {
        Self::new(DRAIN_JOBS, DRAIN_TIME)
    }

    pub(super) fn unlimited() -> Self {
        Self::new(usize::MAX, Duration::MAX)
    }

    /// Takes one job out of the quantum. Returns `false` if it is spent.
    pub(super) fn spend(&mut self) -> bool {
        if self.jobs == 0 || (self.spent.is_multiple_of(JOBS_PER_CLOCK) && self.is_over()) {
            return false;
        }
        self.jobs -= 1;
        self.spent += 1;
        true
    }

    /// Records how long the jobs took.
    pub(super) fn record(&self, cost: &JobCost) {
        if let (Some(started), 1..) = (self.started, self.spent) {
            cost.record(self.spent, started.elapsed());
        }
    }

    fn is_over(&mut self) -> bool {
        let started = *self.started.get_or_insert_with(Instant::now);
        self.spent > 0 && started.elapsed() >= self.time
    }
}
