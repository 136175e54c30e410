//! [`JobCost`]: whether it pays to wait a moment for an executor that is busy.
//!
//! To queue a job costs more than many a job takes, and to wait for it in a task much more: the task is put
//! away, and comes back behind others. So who comes to a busy executor waits awake, if it will be short:
//!
//! - for the executor itself, if jobs take less than queueing one does: it [keeps away](JobCost::BREAKS) for a
//!   while, as spin locks do, and then looks whether it can run its job at once;
//! - for the job that it has queued, at the first poll of its handle, if jobs take a few microseconds at most.
//!
//! Only while somebody runs jobs: not while they wait for a task to come for them, nor for a job that waits
//! itself. What it goes by is hints. To act on an old one costs some time, and is never wrong.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::thread::available_parallelism;
use crate::sync::{MODEL, Number};

/// Jobs that take less than this are shorter than queueing one.
const BRIEF: Duration = Duration::from_nanos(300);
/// Jobs that take less than this are worth waiting for.
const SHORT: Duration = Duration::from_micros(2);
/// One measurement says this at most: a thread that was preempted says nothing about jobs.
const MOST: Duration = Duration::from_micros(4);

/// What submitters of an executor go by.
pub(super) struct JobCost {
    /// Whether to wait at all.
    awake: bool,
    /// How many nanoseconds a job took of late.
    job: Number,
    /// Not 0: nobody runs jobs, though there are some.
    idle: Number,
}

impl JobCost {
    /// How often a submitter turns round, with pauses of the processor, before it looks; and then again.
    /// A pause takes 10 to 70 ns.
    pub(super) const BREAKS: [u32; 2] = [32, 64];
    /// And how often it looks each time.
    pub(super) const LOOKS: u32 = 8;

    pub(super) fn new() -> Self {
        Self {
            awake: !MODEL && has_company(),
            job: Number::new(0),
            idle: Number::new(0),
        }
    }

    /// So many jobs took so long.
    pub(super) fn measured(&self, jobs: usize, time: Duration) {
        let job = time.as_nanos() as usize / jobs.max(1);
        let mean = (3 * self.job.get() + job.min(MOST.as_nanos() as usize)) / 4;
        self.job.set(mean);
    }

    /// Somebody waited for the executor, and got it.
    pub(super) fn in_time(&self) {
        self.measured(1, BRIEF / 2);
    }

    /// Somebody waited in vain for the executor. Once may be chance: its thread was preempted. After three
    /// times in a row nobody waits, however brief jobs were.
    pub(super) fn in_vain(&self) {
        self.measured(1, 2 * BRIEF);
    }

    /// Jobs are left to somebody who has yet to come.
    pub(super) fn pause(&self) {
        self.idle.set(1);
    }

    /// He has come.
    pub(super) fn resume(&self) {
        self.idle.set(0);
    }

    /// Whether to wait for the executor before queueing a job.
    pub(super) fn is_brief(&self) -> bool {
        self.is_less_than(BRIEF)
    }

    /// Whether to wait for a job that is queued.
    pub(super) fn is_short(&self) -> bool {
        self.is_less_than(SHORT)
    }

    fn is_less_than(&self, limit: Duration) -> bool {
        self.awake && self.idle.get() == 0 && self.job.get() < limit.as_nanos() as usize
    }
}

/// Whether this machine has more than one processor: else whoever waits awake keeps the other from running.
fn has_company() -> bool {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get)) > 1
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};

    use super::super::SerialExecutor;
    use super::super::core::Owner;
    use super::*;
    use crate::inbox::Head;
    use crate::join::{Spawn, Work, sealed};

    /// As on a machine that has more than one processor.
    fn cost() -> JobCost {
        JobCost {
            awake: true,
            ..JobCost::new()
        }
    }

    #[test]
    fn three_waits_in_vain_are_enough_and_one_is_not() {
        for brief in [0, 100, BRIEF.as_nanos() as usize / 2] {
            let cost = cost();
            cost.job.set(brief);
            cost.in_vain();
            assert!(cost.is_brief(), "{brief} ns");
            (1..3).for_each(|_| cost.in_vain());
            assert!(!cost.is_brief(), "{brief} ns");
            assert!(cost.is_short(), "{brief} ns");
        }
    }

    #[test]
    fn waits_that_were_not_in_vain_count() {
        let cost = cost();
        (0..100).for_each(|_| cost.in_vain());
        assert!(!cost.is_brief());
        (0..4).for_each(|_| cost.in_time());
        assert!(cost.is_brief());
        // One in ten is in vain, for ever.
        for _ in 0..100 {
            (0..9).for_each(|_| cost.in_time());
            cost.in_vain();
            assert!(cost.is_brief());
        }
    }

    #[test]
    fn nobody_waits_while_nobody_runs_jobs() {
        let cost = cost();
        assert!(cost.is_brief() && cost.is_short());
        cost.pause();
        assert!(!cost.is_brief() && !cost.is_short());
        cost.resume();
        assert!(cost.is_brief() && cost.is_short());
    }

    #[test]
    fn one_processor_is_not_for_waiting() {
        let alone = JobCost {
            awake: false,
            ..JobCost::new()
        };
        assert!(!alone.is_brief() && !alone.is_short());
    }

    #[test]
    fn one_long_job_says_no_more_than_a_few_microseconds() {
        let cost = cost();
        cost.measured(1, Duration::from_secs(1));
        assert!(!cost.is_brief() && cost.is_short());
        (0..3).for_each(|_| cost.measured(1, Duration::from_secs(1)));
        assert!(!cost.is_short());
        // Of which each took 10 ns.
        (0..20).for_each(|_| cost.measured(100, Duration::from_micros(1)));
        assert!(cost.is_brief());
    }

    /// What the word of a busy executor says.
    fn seen(executor: &SerialExecutor<()>) -> Head {
        Owner::acquire(&executor.core).err().unwrap()
    }

    #[test]
    fn to_wait_for_a_busy_executor_is_in_vain_and_for_one_that_refuses_is_no_wait() {
        let executor = SerialExecutor::new(());
        let core = &executor.core;
        let wait = || Owner::acquire_soon(core, seen(&executor)).is_err();
        let ran = executor.try_run(|()| {
            assert!(wait());
            assert!(core.cost.job.get() > 0, "it was in vain");
            core.cost.job.set(0);
            core.poison();
            assert!(wait());
            assert!(core.clear_poison());
            core.close();
            assert!(wait());
        });
        assert!(ran.is_ok());
        assert_eq!(core.cost.job.get(), 0);
    }

    #[test]
    fn who_waits_for_an_idle_executor_gets_it() {
        let executor = SerialExecutor::new(());
        let busy = executor.try_run(|()| seen(&executor)).ok().unwrap();
        executor.core.cost.job.set(2 * BRIEF.as_nanos() as usize);
        let Ok(owner) = Owner::acquire_soon(&executor.core, busy) else {
            panic!("it is idle");
        };
        assert!(executor.core.cost.job.get() < 2 * BRIEF.as_nanos() as usize);
        owner.finish();
        assert!(!executor.core.is_owned());
    }

    /// Polls each drain so often, on this thread, and then drops it.
    struct Polls(usize);

    impl sealed::Sealed for Polls {}
    impl Spawn for Polls {
        fn spawn_work(&self, mut work: Work) -> Result<(), Work> {
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..self.0 {
                let _ = Pin::new(&mut work).poll(&mut cx);
            }
            Ok(())
        }
    }

    #[test]
    fn a_drain_that_is_dropped_ends_the_pause() {
        let executor = SerialExecutor::builder().drain_on(Polls(0)).build(());
        let posted = executor.post(|()| ());
        assert!(posted.blocking_join().unwrap_err().is_cancelled());
        assert_eq!(executor.core.cost.idle.get(), 0);
    }

    #[test]
    fn a_guard_that_is_left_with_the_executor_ends_the_pause() {
        let executor = SerialExecutor::builder().drain_on(Polls(1)).build(());
        let (keep, kept) = channel();
        let job = executor.submit_async(|guard| async move { keep.send(guard).unwrap() });
        job.blocking_join().unwrap();
        assert_ne!(executor.core.cost.idle.get(), 0);
        drop(kept.recv().unwrap());
        assert!(!executor.core.is_owned());
        assert_eq!(executor.core.cost.idle.get(), 0);
    }
}
