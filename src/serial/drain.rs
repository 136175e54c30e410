//! Running what is queued: by a submitter, up to a limit, and then by somebody else.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::builder::DrainOn;
use super::core::{Core, Owner, Queued};
use super::cost::JobCost;
use super::exclusive::By;
use crate::join::{self, ExecutorScope, Spawn, Work};
use crate::sync::Arc;

/// How many queued jobs a drain runs, and for how long, before it lets others use its thread.
const DRAIN_JOBS: usize = 64;
const DRAIN_TIME: Duration = Duration::from_micros(100);

/// Reading the clock costs as much as a short job, so it is read once in so many.
const JOBS_PER_CLOCK: usize = 4;

impl<S: Send + 'static> Owner<'_, S> {
    /// The end of a job that ran inline: gives the executor free, or runs what others have queued
    /// meanwhile, up to the capture limit.
    #[inline]
    pub(super) fn finish(self) {
        if let Err(owner) = self.release() {
            owner.capture(0);
        }
    }

    /// Runs a job that was packed to be queued, and ends as one that ran inline.
    pub(super) fn run_first(mut self, job: Queued<S>) {
        self.run_queued(job);
        self.core().counters.inline.add(1);
        self.finish();
    }

    /// Runs what is queued on the submitter's thread, up to the capture limit and so many more as are its
    /// own, and hands the rest over; if nobody takes it, runs it here.
    #[cold]
    pub(super) fn capture(self, own: usize) {
        let core = self.core();
        let mut budget = Budget {
            jobs: capture_limit(core).saturating_add(own),
            ..Budget::new(core.options.capture_time)
        };
        let drained = self.drain(&mut budget, true, &mut By::Captor);
        budget.tell(&core.cost);
        let Err(owner) = drained else { return };
        // Better to hold this thread up than to leave jobs lying.
        match Target::of(core) {
            Some(target) => {
                if let Err(work) = owner.hand_over(&target) {
                    core.turn.set_refused(true);
                    work.run();
                }
            }
            None => {
                let budget = &mut Budget::new(Duration::MAX);
                let unlimited = owner.drain(budget, true, &mut By::Last);
                debug_assert!(unlimited.is_ok());
            }
        }
    }

    /// Leaves the queue to the target; if that refuses it, the drain comes back. Dropping it cancels
    /// what is queued.
    pub(super) fn hand_over(self, target: &Target) -> Result<(), Work> {
        self.core().counters.handed_over.add(1);
        self.core().cost.pause();
        self.core().turn.set_refused(false);
        target.spawn_work(Work::future(self.into_drain()))
    }

    /// Leaves the queue, with one job of this thread, to the outermost job that runs here.
    pub(super) fn defer(self) {
        self.core().cost.pause();
        let drain = self.into_drain();
        join::defer(Work::future(async move { drain.capture(1) }));
    }

    fn into_drain(self) -> Drain<S> {
        Drain(Some(Arc::clone(self.put_down())))
    }

    /// Runs queued jobs until nothing is left, and then gives the executor free; or until the budget
    /// is spent or a job waits, and then hands ownership back.
    fn drain(
        mut self,
        budget: &mut Budget,
        captured: bool,
        by: &mut By<'_, '_>,
    ) -> Result<(), Self> {
        if !self.tick(by) {
            return Err(self);
        }
        loop {
            while self.has_queued() {
                if !budget.spend() {
                    return Err(self);
                }
                if let By::Captor = by {
                    match self.next_closure() {
                        Some(job) => {
                            self.count(captured);
                            self.run_queued(job);
                        }
                        None if self.has_queued() => return Err(self),
                        None => {}
                    }
                } else if let Some(job) = self.next() {
                    self.count(captured);
                    if job.is_blocking() {
                        self.run_queued(job);
                    } else {
                        self.set_turn(job);
                        if !self.tick(by) {
                            return Err(self);
                        }
                    }
                }
            }
            match self.release() {
                Ok(()) => return Ok(()),
                Err(owner) => self = owner,
            }
        }
    }

    fn count(&self, captured: bool) {
        let counters = &self.core().counters;
        counters.queued.add(1);
        counters.captured.add(usize::from(captured));
    }
}

/// How many jobs of others may run on this thread now. None inside jobs of other executors, if there is somebody
/// to take them: one of them might wait for such an executor, and nowhere else would that be in vain.
fn capture_limit<S>(core: &Core<S>) -> usize {
    match join::is_inside_other(core.name()) && Target::of(core).is_some() {
        true => 0,
        false => core.options.capture_jobs,
    }
}

/// What a drain may spend before it lets others go on.
struct Budget {
    jobs: usize,
    time: Duration,
    started: Option<Instant>,
    spent: usize,
}

impl Budget {
    /// A budget of time only.
    fn new(time: Duration) -> Self {
        Self {
            jobs: usize::MAX,
            time,
            started: None,
            spent: 0,
        }
    }

    /// Takes one job out of the budget; `false`: it is spent.
    fn spend(&mut self) -> bool {
        if self.jobs == 0 || (self.spent.is_multiple_of(JOBS_PER_CLOCK) && self.is_late()) {
            return false;
        }
        self.jobs -= 1;
        self.spent += 1;
        true
    }

    /// Tells how long the jobs took.
    fn tell(&self, cost: &JobCost) {
        if let (Some(started), 1..) = (self.started, self.spent) {
            cost.measured(self.spent, started.elapsed());
        }
    }

    fn is_late(&mut self) -> bool {
        let started = *self.started.get_or_insert_with(Instant::now);
        self.spent > 0 && started.elapsed() >= self.time
    }
}

/// Where a queue is handed over to.
pub(super) enum Target {
    Given(DrainOn),
    Current(Handle),
}

impl Target {
    pub(super) fn of<S>(core: &Core<S>) -> Option<Self> {
        match &core.options.drain_on {
            Some(spawn) => Some(Self::Given(spawn.clone())),
            None => {
                let here = Handle::try_current().ok();
                here.or_else(|| core.turn.runtime()).map(Self::Current)
            }
        }
    }

    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        match self {
            Self::Given(target) => target.spawn_work(work),
            Self::Current(handle) => handle.spawn_work(work),
        }
    }
}

/// The ownership of an executor on its way to, and in, a Tokio task or a pool.
///
/// Dropping it, as a runtime does that is shut down, cancels what is queued.
struct Drain<S>(Option<Arc<Core<S>>>);

impl<S: Send + 'static> Drain<S> {
    /// As [`Owner::capture`], on the thread that calls it.
    fn capture(mut self, own: usize) {
        if let Some(core) = self.0.take() {
            let _inside = ExecutorScope::drain(core.name());
            core.cost.resume();
            // SAFETY: ownership was put down for this drain when it was made.
            unsafe { Owner::resume(&core) }.capture(own);
        }
    }
}

impl<S: Send + 'static> Future for Drain<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(core) = self.0.take() else {
            return Poll::Ready(());
        };
        let _inside = ExecutorScope::drain(core.name());
        // SAFETY: ownership was put down for this drain, when it was made or at the last poll.
        let owner = unsafe { Owner::resume(&core) };
        core.cost.resume();
        let mut budget = Budget {
            jobs: DRAIN_JOBS,
            ..Budget::new(DRAIN_TIME)
        };
        let by = &mut match core.turn.is_refused() {
            true => By::Last,
            false => By::Drain(cx),
        };
        let drained = owner.drain(&mut budget, false, by).map_err(|mut owner| {
            let suspended = owner.is_suspended();
            owner.put_down();
            suspended
        });
        budget.tell(&core.cost);
        let Err(suspended) = drained else {
            return Poll::Ready(());
        };
        core.cost.pause();
        self.0 = Some(core);
        if !suspended {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<S> Drop for Drain<S> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            let _inside = ExecutorScope::drain(core.name());
            core.cost.resume();
            // SAFETY: as in `poll`.
            drop(unsafe { Owner::resume(&core) });
        }
    }
}
