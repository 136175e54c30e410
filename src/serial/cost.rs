//! [`JobCost`]: whether it pays to spin for a moment while the executor is busy.
//!
//! To queue a job costs more than many jobs take, and to wait for it in a task costs much more: the task is parked,
//! and runs again behind others. So while jobs are very short, a thread spins:
//!
//! - before it queues a job, if jobs take less time than queueing one. It [backs off](JobCost::BACKOFF), as spin
//!   locks do, and then checks whether the executor is idle;
//! - at the first poll of the handle of a queued job, if jobs take a few microseconds at most.
//!
//! It does so only while a thread runs jobs, not while they wait for a task to start or for an asynchronous job.
//! All numbers here are hints: an outdated one costs some time and never correctness.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::thread::available_parallelism;
use crate::sync::{MODEL, Number};

/// Jobs that take less than this are shorter than queueing one.
const QUEUEING: Duration = Duration::from_nanos(300);
/// Jobs that take less than this are worth spinning for.
const WORTH_SPINNING: Duration = Duration::from_micros(2);
/// The most that one sample counts: a preempted thread says nothing about jobs.
const MAX_SAMPLE: Duration = Duration::from_micros(4);

/// A moving average of how long a job takes.
pub(super) struct JobCost {
    /// `false`: threads never spin.
    may_spin: bool,
    mean_ns: Number,
    /// 1 while jobs are queued and no thread runs them.
    paused: Number,
}

impl JobCost {
    /// The spins of each round before the checks. One takes 10 to 70 ns.
    pub(super) const BACKOFF: [u32; 2] = [32, 64];
    /// The checks of each round.
    pub(super) const CHECKS: u32 = 8;

    pub(super) fn new() -> Self {
        Self {
            may_spin: !MODEL && is_multiprocessor(),
            mean_ns: Number::new(0),
            paused: Number::new(0),
        }
    }

    /// Records that `jobs` jobs took `time` together.
    pub(super) fn record(&self, jobs: usize, time: Duration) {
        let job = time.as_nanos() as usize / jobs.max(1);
        let mean = (3 * self.mean_ns.get() + job.min(MAX_SAMPLE.as_nanos() as usize)) / 4;
        self.mean_ns.set(mean);
    }

    /// Records that a thread which spun for the executor acquired it.
    pub(super) fn record_acquired(&self) {
        self.record(1, QUEUEING / 2);
    }

    /// Records that a thread spun for the executor in vain.
    ///
    /// Once may be chance, if the owner's thread was preempted. After three times in a row no thread spins any
    /// more, however short jobs were.
    pub(super) fn record_timed_out(&self) {
        self.record(1, 2 * QUEUEING);
    }

    /// From now on no thread runs jobs, although some are queued.
    pub(super) fn pause(&self) {
        self.paused.set(1);
    }

    /// From now on a thread runs jobs again.
    pub(super) fn resume(&self) {
        self.paused.set(0);
    }

    /// Returns `true` if it pays to spin for the executor before a job is queued.
    pub(super) fn is_below_queueing(&self) -> bool {
        self.is_below(QUEUEING)
    }

    /// Returns `true` if it pays to spin for a job that is queued.
    pub(super) fn is_worth_spinning(&self) -> bool {
        self.is_below(WORTH_SPINNING)
    }

    fn is_below(&self, limit: Duration) -> bool {
        self.may_spin && self.paused.get() == 0 && self.mean_ns.get() < limit.as_nanos() as usize
    }
}

/// Returns `true` if this machine has more than one processor. With one, a spinning thread delays the owner.
fn is_multiprocessor() -> bool {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get)) > 1
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
impl JobCost {
    pub(super) fn mean_ns(&self) -> usize {
        self.mean_ns.get()
    }

    pub(super) fn set_mean_ns(&self, mean: usize) {
        self.mean_ns.set(mean);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.get() != 0
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    use super::*;

    /// As on a machine with more than one processor.
    fn cost() -> JobCost {
        JobCost {
            may_spin: true,
            ..JobCost::new()
        }
    }

    #[test]
    fn three_timeouts_end_the_spinning_and_one_does_not() {
        for mean in [0, 100, QUEUEING.as_nanos() as usize / 2] {
            let cost = cost();
            cost.mean_ns.set(mean);
            cost.record_timed_out();
            assert!(cost.is_below_queueing(), "{mean} ns");
            (1..3).for_each(|_| cost.record_timed_out());
            assert!(!cost.is_below_queueing(), "{mean} ns");
            assert!(cost.is_worth_spinning(), "{mean} ns");
        }
    }

    #[test]
    fn acquisitions_resume_the_spinning() {
        let cost = cost();
        (0..100).for_each(|_| cost.record_timed_out());
        assert!(!cost.is_below_queueing());
        (0..4).for_each(|_| cost.record_acquired());
        assert!(cost.is_below_queueing());
        // With one timeout in ten, it never ends.
        for _ in 0..100 {
            (0..9).for_each(|_| cost.record_acquired());
            cost.record_timed_out();
            assert!(cost.is_below_queueing());
        }
    }

    #[test]
    fn no_thread_spins_while_no_thread_runs_jobs() {
        let cost = cost();
        assert!(cost.is_below_queueing() && cost.is_worth_spinning());
        cost.pause();
        assert!(!cost.is_below_queueing() && !cost.is_worth_spinning());
        cost.resume();
        assert!(cost.is_below_queueing() && cost.is_worth_spinning());
    }

    #[test]
    fn no_thread_spins_on_one_processor() {
        let cost = JobCost {
            may_spin: false,
            ..JobCost::new()
        };
        assert!(!cost.is_below_queueing() && !cost.is_worth_spinning());
    }

    #[test]
    fn one_long_job_counts_as_a_few_microseconds() {
        let cost = cost();
        cost.record(1, Duration::from_secs(1));
        assert!(!cost.is_below_queueing() && cost.is_worth_spinning());
        (0..3).for_each(|_| cost.record(1, Duration::from_secs(1)));
        assert!(!cost.is_worth_spinning());
        // 10 ns each.
        (0..20).for_each(|_| cost.record(100, Duration::from_micros(1)));
        assert!(cost.is_below_queueing());
    }
}
