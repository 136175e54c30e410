//! Running what is queued: by a submitter up to a limit, then by a drain. See `core` for the words.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::{Core, JobTask, Lent};
use super::owner::Owner;
use super::quantum::Quantum;
use super::suspended::AsyncJob;
use super::target::{NO_TARGET, Target};
use crate::join::{self, ExecutorScope, Work};
use crate::sync::Arc;
use crate::task::Fault;

/// The party that runs the queue. It determines what happens to an asynchronous job.
enum Drainer<'a, 'b> {
    /// A submitter that can hand over: it leaves the job in the queue.
    Submitter,
    /// A thread that must not wait and cannot hand over: it rejects the job.
    LastResort,
    /// A task, or a thread of a pool: it polls the job.
    Drain(&'a mut Context<'b>),
}

// ===== a submitter =====

impl<S: Send + 'static> Owner<'_, S> {
    /// Ends a job that ran inline: releases the executor, or captures what others have queued meanwhile.
    #[inline]
    pub(super) fn finish(self) {
        if let Err(owner) = self.release() {
            owner.capture(0);
        }
    }

    /// Runs a packed job as one that runs inline.
    pub(super) fn run_packed_inline(mut self, job: JobTask<S>) {
        self.run_packed(job);
        self.core().counters.packed_inline.add(1);
        self.finish();
    }

    /// Runs queued jobs on this thread, up to the capture limit and `own` more, and hands the rest over. If no
    /// target accepts it, runs the rest as well.
    #[cold]
    fn capture(self, own: usize) {
        let core = self.core();
        let jobs = capture_limit(core).saturating_add(own);
        let mut quantum = Quantum::new(jobs, core.options.capture_time);
        let drained = self.drain(&mut quantum, true, &mut Drainer::Submitter);
        quantum.record(&core.cost);
        let Err(owner) = drained else { return };
        // To delay this thread is better than to leave jobs behind.
        match Target::of(core) {
            Some(target) => {
                if let Err(drain) = owner.hand_over(&target) {
                    core.suspended.set_drain_refused(true);
                    drain.run();
                }
            }
            None => {
                let drained =
                    owner.drain(&mut Quantum::unlimited(), true, &mut Drainer::LastResort);
                debug_assert!(drained.is_ok());
            }
        }
    }

    /// Hands the queue over. A target that refuses returns the drain. Dropping it aborts the queued jobs.
    pub(super) fn hand_over(self, target: &Target) -> Result<(), Work> {
        self.core().counters.handed_over.add(1);
        self.core().cost.pause();
        self.core().suspended.set_drain_refused(false);
        target.spawn_work(Work::future(self.into_drain()))
    }

    /// Leaves the queue, with one job of this thread in it, to the outermost job on this thread.
    pub(super) fn defer(self) {
        self.core().cost.pause();
        let drain = self.into_drain();
        join::defer(Work::future(async move { drain.capture(1) }));
    }

    fn into_drain(self) -> Drain<S> {
        Drain(Some(Arc::clone(self.put_down())))
    }
}

/// The number of jobs of others that may run on this thread now.
///
/// None inside a job of another executor, if there is a target: one of them may wait for that executor, and only
/// here it would wait in vain.
fn capture_limit<S>(core: &Core<S>) -> usize {
    match join::is_inside_other(core.id()) && Target::of(core).is_some() {
        true => 0,
        false => core.options.capture_jobs,
    }
}

// ===== running =====

impl<S: Send + 'static> Owner<'_, S> {
    /// Runs queued jobs until none is left, and releases the executor. Returns the ownership if the quantum is spent
    /// or a job is suspended.
    fn drain(
        mut self,
        quantum: &mut Quantum,
        captured: bool,
        runner: &mut Drainer<'_, '_>,
    ) -> Result<(), Self> {
        if !self.advance_suspended(runner) {
            return Err(self);
        }
        loop {
            while self.has_queued() {
                if !quantum.spend() || !self.run_next(captured, runner) {
                    return Err(self);
                }
            }
            match self.release() {
                Ok(()) => return Ok(()),
                Err(owner) => self = owner,
            }
        }
    }

    /// Runs the next queued job. Returns `false` if it waits, or is left to another runner.
    fn run_next(&mut self, captured: bool, runner: &mut Drainer<'_, '_>) -> bool {
        let submitter = matches!(runner, Drainer::Submitter);
        let next = match submitter {
            true => self.next_closure(),
            false => self.next(),
        };
        let Some(job) = next else {
            // Nothing is left if it was aborted meanwhile.
            return !(submitter && self.has_queued());
        };
        let counters = &self.core().counters;
        counters.queued.add(1);
        counters.captured.add(usize::from(captured));
        if job.is_blocking() {
            self.run_packed(job);
            return true;
        }
        self.suspend(AsyncJob {
            task: job,
            started: false,
        });
        self.advance_suspended(runner)
    }

    /// Advances the suspended job as far as this runner can. Returns `true` if none is left.
    fn advance_suspended(&mut self, runner: &mut Drainer<'_, '_>) -> bool {
        if !self.is_suspended() {
            return true;
        }
        match runner {
            Drainer::Submitter => false,
            Drainer::LastResort => {
                self.fail_suspended(|| Fault::rejected(io::Error::other(NO_TARGET)));
                // A runner that must not wait has not started the job, so there is no guard.
                !self.core().suspended.is_held()
            }
            Drainer::Drain(cx) => self.poll_suspended(cx).is_ready(),
        }
    }

    /// Polls the suspended job, and then waits for its guard.
    fn poll_suspended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(job) = self.take_suspended()
            && let Err(job) = self.poll_job(job, cx)
        {
            self.suspend(job);
            return Poll::Pending;
        }
        self.core().suspended.poll_released(cx)
    }

    /// Polls a job, and returns it if it is pending.
    fn poll_job(
        &mut self,
        job: AsyncJob<Lent<S>>,
        cx: &mut Context<'_>,
    ) -> Result<(), AsyncJob<Lent<S>>> {
        let AsyncJob { task, started } = job;
        if !started && self.core().is_poisoned() {
            task.fail(Fault::poisoned());
            return Ok(());
        }
        if !started && !task.claim() {
            return Ok(());
        }
        // SAFETY: claimed above, now or at an earlier poll.
        match unsafe { task.poll_claimed_or_return(&mut self.lent(), cx) } {
            Ok(_) => Ok(()),
            Err(task) => Err(AsyncJob {
                task,
                started: true,
            }),
        }
    }
}

// ===== the drain =====

/// The ownership of an executor on its way to, and in, a task of a runtime or a pool.
///
/// A runtime that shuts down drops it, which aborts the queued jobs.
struct Drain<S>(Option<Arc<Core<S>>>);

impl<S: Send + 'static> Drain<S> {
    /// Captures on the thread that calls this: see [`Owner::capture`].
    fn capture(mut self, own: usize) {
        if let Some(core) = self.0.take() {
            let _inside = ExecutorScope::drain(core.id());
            core.cost.resume();
            // SAFETY: the ownership was put down for this drain when it was created.
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
        let _inside = ExecutorScope::drain(core.id());
        // SAFETY: the ownership was put down for this drain, when it was created or at the last poll.
        let owner = unsafe { Owner::resume(&core) };
        core.cost.resume();
        let mut quantum = Quantum::of_drain();
        let runner = &mut match core.suspended.is_drain_refused() {
            true => Drainer::LastResort,
            false => Drainer::Drain(cx),
        };
        let drained = owner
            .drain(&mut quantum, false, runner)
            .map_err(|mut owner| {
                let suspended = owner.is_suspended();
                owner.put_down();
                suspended
            });
        quantum.record(&core.cost);
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
            let _inside = ExecutorScope::drain(core.id());
            core.cost.resume();
            // SAFETY: as in `poll`.
            drop(unsafe { Owner::resume(&core) });
        }
    }
}
