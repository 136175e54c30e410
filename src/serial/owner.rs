//! [`Owner`]: acquiring an executor, and releasing it. See `core` for the protocol.

use std::any::Any;
use std::hint::spin_loop;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::core::{CLOSED, Core, JobTask, Lent, OWNED, POISONED, STATE_EXISTS, refusal};
use super::cost::JobCost;
use super::level::Level;
use super::suspended::AsyncJob;
use crate::inbox::{Batch, Head, Refused, Tags};
use crate::sync::Arc;
use crate::task::Fault;

/// The evidence that the caller owns the executor.
///
/// Dropping it instead of releasing it aborts the queued jobs. A drain that is dropped ends in this way.
#[must_use]
pub(super) struct Owner<'a, S>(&'a Arc<Core<S>>);

/// The result of pushing a job.
pub(super) enum Pushed<'a, S> {
    /// The owner will run it.
    Queued,
    /// The executor was idle. The caller owns it now, with the job in the inbox.
    Acquired(Owner<'a, S>),
}

// ===== acquiring =====

impl<'a, S> Owner<'a, S> {
    /// Acquires an executor that is idle, open and not poisoned.
    #[inline]
    pub(super) fn acquire(core: &'a Arc<Core<S>>) -> Result<Self, Head> {
        core.inbox.exchange_empty(Tags::NONE, OWNED)?;
        Ok(Self(core))
    }

    /// Spins for a moment for an executor whose jobs are shorter than it takes to queue one.
    pub(super) fn spin_acquire(core: &'a Arc<Core<S>>, mut seen: Head) -> Result<Self, Head> {
        for spins in JobCost::BACKOFF {
            (0..spins).for_each(|_| spin_loop());
            for _ in 0..JobCost::CHECKS {
                seen = core.inbox.peek();
                if refusal(seen.tags).is_some() {
                    return Err(seen);
                }
                if seen.empty && !seen.tags.has(OWNED) {
                    match Self::acquire(core) {
                        Ok(owner) => {
                            core.cost.record_acquired();
                            return Ok(owner);
                        }
                        Err(now) => seen = now,
                    }
                }
                spin_loop();
            }
        }
        core.cost.record_timed_out();
        Err(seen)
    }

    /// Acquires an executor that is closed and idle.
    pub(super) fn acquire_closed(core: &'a Arc<Core<S>>) -> Result<Self, Head> {
        let mut seen = core.inbox.peek();
        // With the tags that are there: `POISONED` may change at any time.
        while seen.empty && seen.tags.has(CLOSED) && !seen.tags.has(OWNED) {
            match core.inbox.exchange_empty(seen.tags, seen.tags.with(OWNED)) {
                Ok(()) => return Ok(Self(core)),
                Err(actual) => seen = actual,
            }
        }
        Err(seen)
    }

    /// Acquires an executor that is poisoned, open and idle, and clears the poison.
    pub(super) fn acquire_poisoned(core: &'a Arc<Core<S>>) -> Result<Self, Head> {
        core.inbox.exchange_empty(POISONED, OWNED)?;
        Ok(Self(core))
    }

    /// Takes up the ownership that [`put_down`](Self::put_down) has put down.
    ///
    /// # Safety
    ///
    /// The ownership was put down, and passed to the caller.
    pub(super) unsafe fn resume(core: &'a Arc<Core<S>>) -> Self {
        Self(core)
    }

    /// Puts the ownership down without releasing it.
    pub(super) fn put_down(self) -> &'a Arc<Core<S>> {
        let core = self.0;
        mem::forget(self);
        core
    }

    pub(super) fn core(&self) -> &'a Arc<Core<S>> {
        self.0
    }
}

// ===== pushing =====

/// A job that was refused, and the tags that say why.
type NotPushed<S> = (JobTask<S>, Tags);

impl<'a, S> Owner<'a, S> {
    /// Queues a job, and acquires the executor if it is idle.
    pub(super) fn push(
        core: &'a Arc<Core<S>>,
        level: Level,
        job: JobTask<S>,
    ) -> Result<Pushed<'a, S>, NotPushed<S>> {
        core.queue.announce(level);
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            refusal(seen.tags).is_none().then(|| seen.tags.with(OWNED))
        });
        match pushed {
            Ok(seen) if seen.tags.has(OWNED) => Ok(Pushed::Queued),
            Ok(_) => Ok(Pushed::Acquired(Self(core))),
            Err(refused) => Err(take_back(core, refused)),
        }
    }

    /// Queues a job if the executor is busy.
    pub(super) fn push_if_owned(
        core: &'a Arc<Core<S>>,
        level: Level,
        job: JobTask<S>,
    ) -> Result<(), NotPushed<S>> {
        core.queue.announce(level);
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            (seen.tags.has(OWNED) && refusal(seen.tags).is_none()).then_some(seen.tags)
        });
        pushed.map(drop).map_err(|refused| take_back(core, refused))
    }

    /// Queues a job if the executor is busy; acquires it and calls `run` with the job if it is idle.
    pub(super) fn push_or_run(
        core: &'a Arc<Core<S>>,
        level: Level,
        mut job: JobTask<S>,
        run: impl FnOnce(Self, JobTask<S>),
    ) -> Result<(), NotPushed<S>> {
        loop {
            let (back, tags) = match Self::push_if_owned(core, level, job) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            if refusal(tags).is_some() {
                return Err((back, tags));
            }
            job = back;
            if let Ok(owner) = Self::acquire(core) {
                run(owner, job);
                return Ok(());
            }
        }
    }

    /// Queues a job past the word: this owner has accepted it, and nothing else is queued.
    pub(super) fn push_first(&mut self, level: Level, job: JobTask<S>) {
        self.0.queue.announce(level);
        self.0.queue.push(job);
    }
}

/// The one job of a batch that was refused.
fn take_back<S>(core: &Core<S>, refused: Refused<JobTask<S>>) -> NotPushed<S> {
    core.queue.retract();
    let job = refused.batch.into_fifo().pop_front();
    (job.expect("it was pushed alone"), refused.head.tags)
}

// ===== running =====

impl<S> Owner<'_, S> {
    /// Runs a job that was not packed into a cell.
    #[inline]
    pub(super) fn run_direct<R>(
        &mut self,
        job: impl FnOnce(&mut Lent<S>) -> R,
    ) -> Result<R, Box<dyn Any + Send>> {
        let mut lent = self.lent();
        let result = catch_unwind(AssertUnwindSafe(|| job(&mut lent)));
        self.0.counters.count_direct(result.is_err());
        result
    }

    /// Runs a packed job, or fails it if the state is poisoned.
    pub(super) fn run_packed(&mut self, job: JobTask<S>) {
        if self.0.is_poisoned() {
            job.fail(Fault::poisoned());
        } else {
            job.run(&mut self.lent());
        }
    }

    /// Returns the state in the form in which the owner lends it to a job.
    #[inline]
    pub(super) fn lent(&mut self) -> Lent<S> {
        // SAFETY: this is the owner, which uses it for one job at a time and stays the owner meanwhile.
        unsafe { Lent::new(self.0) }
    }

    /// Takes the next queued job.
    pub(super) fn next(&mut self) -> Option<JobTask<S>> {
        self.0.queue.pop_if(&self.0.inbox, |_| true)
    }

    /// Takes the next queued job, unless it is asynchronous.
    pub(super) fn next_closure(&mut self) -> Option<JobTask<S>> {
        self.0.queue.pop_if(&self.0.inbox, JobTask::is_blocking)
    }

    /// Returns `true` if a job is queued. `release` detects a job that is pushed later.
    pub(super) fn has_queued(&mut self) -> bool {
        !self.0.queue.is_empty() || !self.0.inbox.peek().empty
    }

    /// Takes the state out.
    pub(super) fn take_state(&mut self) -> Option<S> {
        // SAFETY: the state is the owner's, and no job runs.
        self.0.state.with_mut(|state| unsafe { (*state).take() })
    }

    /// Replaces the state, which exists because the executor is open.
    pub(super) fn replace_state(&mut self, state: S) -> S {
        // SAFETY: the state is the owner's, and no job runs.
        let old = self
            .0
            .state
            .with_mut(|old| unsafe { (*old).replace(state) });
        old.expect(STATE_EXISTS)
    }
}

// ===== the suspended job =====

impl<S> Owner<'_, S> {
    /// Makes an asynchronous job the one whose turn it is.
    pub(super) fn suspend(&mut self, job: AsyncJob<Lent<S>>) {
        self.with_suspended(|suspended| *suspended = Some(job));
    }

    /// Takes the suspended job, if there is one.
    pub(super) fn take_suspended(&mut self) -> Option<AsyncJob<Lent<S>>> {
        self.with_suspended(Option::take)
    }

    /// Returns `true` if there is an asynchronous job or a guard to wait for.
    pub(super) fn is_suspended(&mut self) -> bool {
        self.with_suspended(|job| job.is_some()) || self.0.suspended.is_held()
    }

    /// Ends the suspended job, and drops its future.
    pub(super) fn fail_suspended(&mut self, why: impl FnOnce() -> Fault) {
        let Some(AsyncJob { task, started }) = self.take_suspended() else {
            return;
        };
        if started {
            // SAFETY: claimed when it started.
            unsafe { task.fail_claimed(why()) };
        } else {
            task.fail(why());
        }
    }

    fn with_suspended<R>(&mut self, f: impl FnOnce(&mut Option<AsyncJob<Lent<S>>>) -> R) -> R {
        // SAFETY: this is the owner, and no caller in this file has `f` call this again.
        unsafe { self.0.suspended.with_job(f) }
    }
}

// ===== releasing =====

impl<S> Owner<'_, S> {
    /// Releases the executor, if nothing is queued.
    #[inline]
    pub(super) fn release(self) -> Result<(), Self> {
        // The word is nearly always this one, so it is not read first.
        if self.0.queue.is_empty() && self.0.inbox.exchange_empty(OWNED, Tags::NONE).is_ok() {
            // The ownership is put down first, because a panic in a waker must not drop an `Owner`.
            let core = self.put_down();
            if core.released.has_waiters() {
                core.released.notify_all();
            }
            return Ok(());
        }
        self.release_slowly()
    }

    #[cold]
    fn release_slowly(self) -> Result<(), Self> {
        let mut seen = self.0.inbox.peek();
        while seen.empty && self.0.queue.is_empty() {
            let free = seen.tags.without(OWNED);
            match self.0.inbox.exchange_empty(seen.tags, free) {
                Ok(()) => {
                    self.put_down().released.notify_all();
                    return Ok(());
                }
                Err(actual) => seen = actual,
            }
        }
        Err(self)
    }
}

impl<S> Drop for Owner<'_, S> {
    fn drop(&mut self) {
        self.fail_suspended(Fault::cancelled);
        loop {
            while let Some(job) = self.next() {
                job.fail(Fault::cancelled());
            }
            // Before `orphan`, after which the guard may be dropped at any time, and ends the pause.
            self.0.cost.pause();
            if self.0.suspended.orphan() {
                return;
            }
            self.0.cost.resume();
            match Self(self.0).release() {
                Ok(()) => return,
                Err(owner) => mem::forget(owner),
            }
        }
    }
}
