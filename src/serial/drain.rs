//! Running what is queued: by a submitter, up to a limit, and then by somebody else.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::builder::DrainOn;
use super::core::{Core, Owner};
use super::nesting;
use crate::join::{Spawn, Work};
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

    /// Runs what is queued on the submitter's thread, `own` jobs and others up to the capture
    /// limit, and hands the rest over; if nobody takes it, runs it here.
    #[cold]
    pub(super) fn capture(self, own: usize) {
        let options = &self.core().options;
        let mut budget = Budget {
            own,
            jobs: options.capture_jobs,
            ..Budget::new(options.capture_time)
        };
        let Err(owner) = self.drain(&mut budget, true) else {
            return;
        };
        match Target::of(owner.core()) {
            Some(target) => owner.hand_over(&target).unwrap_or_else(Work::run),
            None => {
                // Better to hold this thread up than to leave jobs lying.
                let unlimited = owner.drain(&mut Budget::new(Duration::MAX), true);
                debug_assert!(unlimited.is_ok());
            }
        }
    }

    /// Leaves the queue to the target; if that refuses it, the drain comes back. Dropping it cancels
    /// what is queued.
    pub(super) fn hand_over(self, target: &Target) -> Result<(), Work> {
        self.core().counters.handed_over.add(1);
        target.spawn(Work::future(self.into_drain()))
    }

    /// Leaves the queue, with one job of this thread, to the outermost job that runs here: see
    /// [`nesting`].
    pub(super) fn defer(self) {
        let drain = self.into_drain();
        nesting::defer(Work::future(async move { drain.capture(1) }));
    }

    fn into_drain(self) -> Drain<S> {
        Drain(Some(Arc::clone(self.put_down())))
    }

    /// Runs queued jobs until nothing is left, and then gives the executor free; or until the budget
    /// is spent, and then hands ownership back.
    fn drain(mut self, budget: &mut Budget, captured: bool) -> Result<(), Self> {
        loop {
            while self.has_queued() {
                let own = budget.own > 0;
                if !budget.spend() {
                    return Err(self);
                }
                self.count(captured && !own);
                if let Some(job) = self.next() {
                    self.run_queued(job);
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

/// What a drain may spend before it lets others go on.
struct Budget {
    /// Jobs that are not limited: the submitter's.
    own: usize,
    jobs: usize,
    time: Duration,
    started: Option<Instant>,
    spent: usize,
}

impl Budget {
    /// A budget of time only.
    fn new(time: Duration) -> Self {
        Self {
            own: 0,
            jobs: usize::MAX,
            time,
            started: None,
            spent: 0,
        }
    }

    /// Takes one job out of the budget; `false`: it is spent.
    fn spend(&mut self) -> bool {
        if self.own > 0 {
            self.own -= 1;
            return true;
        }
        if self.jobs == 0 || (self.spent.is_multiple_of(JOBS_PER_CLOCK) && self.is_late()) {
            return false;
        }
        self.jobs -= 1;
        self.spent += 1;
        true
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
            None => Handle::try_current().ok().map(Self::Current),
        }
    }

    fn spawn(&self, work: Work) -> Result<(), Work> {
        match self {
            Self::Given(target) => target.spawn(work),
            Self::Current(handle) => Spawn::spawn(handle, work),
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
        // SAFETY: ownership was put down for this drain, when it was made or at the last poll.
        let owner = unsafe { Owner::resume(&core) };
        let mut budget = Budget {
            jobs: DRAIN_JOBS,
            ..Budget::new(DRAIN_TIME)
        };
        if owner
            .drain(&mut budget, false)
            .map_err(Owner::put_down)
            .is_ok()
        {
            return Poll::Ready(());
        }
        self.0 = Some(core);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S> Drop for Drain<S> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            // SAFETY: as in `poll`.
            drop(unsafe { Owner::resume(&core) });
        }
    }
}
