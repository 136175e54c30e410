//! The way of a job into the executor: it runs inline, is queued, or is rejected.

use std::io;

use super::core::{CLOSED, JobTask, POISONED, refusal};
use super::executor::SerialExecutor;
use super::job::{QueuePermit, Run, pack, unpack};
use super::level::Level;
use super::owner::{Owner, Pushed};
use super::target::{NO_TARGET, Target};
use crate::inbox::{Head, Tags};
use crate::join::{Id, JoinHandle, MAX_NESTED_JOBS, NestedJob, Origin, TrySpawnError};
use crate::semaphore::TryAcquireError;
use crate::task::{Fault, JoinRef, Outcome};

/// A handle does not spin for a job behind more jobs than this.
const MAX_QUEUE_FOR_SPINNING: usize = 32;

/// Why a job is not accepted.
#[derive(Clone, Copy)]
pub(super) enum Rejection {
    Full,
    Closed,
    Poisoned,
    /// Nothing can run the job.
    NoTarget,
}

impl Rejection {
    /// The rejection by a word with these tags.
    pub(super) fn by(tags: Tags) -> Self {
        match !tags.has(CLOSED) && tags.has(POISONED) {
            true => Self::Poisoned,
            false => Self::Closed,
        }
    }

    fn with_job<J>(self, job: J) -> TrySpawnError<J> {
        match self {
            Self::Full => TrySpawnError::full(job),
            Self::Closed => TrySpawnError::closed(job),
            Self::Poisoned => TrySpawnError::poisoned(job),
            Self::NoTarget => TrySpawnError::no_thread(job, io::Error::other(NO_TARGET)),
        }
    }
}

impl From<TryAcquireError> for Rejection {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::Full => Self::Full,
            TryAcquireError::Closed => Self::Closed,
        }
    }
}

// ===== inline, or else queued =====

impl<S: Send + 'static> SerialExecutor<S> {
    /// Runs a job inline, or queues it.
    ///
    /// The rare paths return less than a handle, so that the handle of a job that ran is created in registers.
    #[inline]
    pub(super) fn run_or_queue<J>(&self, level: Level, job: J) -> JoinHandle<J::Output>
    where
        J: Run<S>,
    {
        if !self.core.options.inline {
            return self.handle(self.post_or_fail(level, job));
        }
        let owner = match Owner::acquire(&self.core) {
            Ok(owner) => owner,
            Err(seen) => match self.spin_acquire(seen) {
                Ok(owner) => owner,
                Err(seen) => {
                    let queued = self.queue_or_fail(level, job, seen);
                    return self.handle_of(queued, self.is_worth_spinning());
                }
            },
        };
        self.run_acquired(owner, level, job)
    }

    /// Acquires an executor that was busy, if it pays to spin.
    #[cold]
    fn spin_acquire(&self, seen: Head) -> Result<Owner<'_, S>, Head> {
        let pays = refusal(seen.tags).is_none()
            && self.core.cost.is_below_queueing()
            && !self.is_current();
        match pays {
            true => Owner::spin_acquire(&self.core, seen),
            false => Err(seen),
        }
    }

    /// Returns `true` if it pays to spin for a job that has just been queued.
    #[cold]
    fn is_worth_spinning(&self) -> bool {
        self.core.queue_length() <= MAX_QUEUE_FOR_SPINNING && self.core.cost.is_worth_spinning()
    }

    #[cold]
    fn queue_or_fail<J>(
        &self,
        level: Level,
        job: J,
        seen: Head,
    ) -> Result<JoinRef<J::Output>, Fault>
    where
        J: Run<S>,
    {
        let queued = self.queue(level, job, seen);
        queued.map_err(TrySpawnError::drop_task)
    }

    #[cold]
    fn post_or_fail<J>(&self, level: Level, job: J) -> Result<JoinRef<J::Output>, Fault>
    where
        J: Run<S>,
    {
        self.post_job(level, job).map_err(TrySpawnError::drop_task)
    }

    /// Runs a job of an executor that was idle, unless too many jobs are nested on this thread.
    #[inline]
    pub(super) fn run_acquired<J>(
        &self,
        owner: Owner<'_, S>,
        level: Level,
        job: J,
    ) -> JoinHandle<J::Output>
    where
        J: Run<S>,
    {
        let outcome = match NestedJob::enter(self.core.id(), MAX_NESTED_JOBS) {
            Some(_depth) => run_inline(owner, job),
            None => return self.handle(Ok(run_deferred(owner, level, job))),
        };
        // After the drop of `NestedJob`: otherwise the handle would have to be kept in memory meanwhile.
        JoinHandle::ready(outcome)
    }

    /// Queues a job of an executor whose word was `seen`.
    pub(super) fn queue<J>(
        &self,
        level: Level,
        job: J,
        seen: Head,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
    {
        if refusal(seen.tags).is_some() {
            return Err(self.reject(job, Rejection::by(seen.tags)));
        }
        match self.acquire_queue_permit() {
            Ok(None) => self.push(level, job, ()),
            Ok(Some(permit)) => self.push(level, job, permit),
            Err(error) => Err(self.reject(job, error.into())),
        }
    }

    /// Queues a job that has its permit, or runs it if the executor is idle by now.
    pub(super) fn push<J, P>(
        &self,
        level: Level,
        job: J,
        permit: P,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
        P: Send + 'static,
    {
        let (task, join_ref) = pack(level, job, permit);
        let run =
            |mut owner: Owner<'_, S>, task| match NestedJob::enter(self.core.id(), MAX_NESTED_JOBS)
            {
                Some(_depth) => owner.run_packed_inline(task),
                None => {
                    owner.push_first(level, task);
                    owner.defer();
                }
            };
        match Owner::push_or_run(&self.core, level, task, run) {
            Ok(()) => Ok(join_ref),
            Err((task, tags)) => {
                // SAFETY: packed above, with these types.
                let job = unsafe { unpack::<_, J, P>(task) };
                Err(self.reject(job, Rejection::by(tags)))
            }
        }
    }
}

#[inline]
fn run_inline<S, J>(mut owner: Owner<'_, S>, job: J) -> Outcome<J::Output>
where
    S: Send + 'static,
    J: Run<S>,
{
    let result = owner.run_direct(|lent| job.run(lent));
    owner.finish();
    result.map_err(Fault::panicked)
}

/// Leaves a job of an idle executor to the outermost job on this thread, because too many are nested.
#[cold]
fn run_deferred<S, J>(mut owner: Owner<'_, S>, level: Level, job: J) -> JoinRef<J::Output>
where
    S: Send + 'static,
    J: Run<S>,
{
    let (task, join_ref) = pack(level, job, ());
    owner.push_first(level, task);
    owner.defer();
    join_ref
}

// ===== not on this thread =====

impl<S: Send + 'static> SerialExecutor<S> {
    /// Queues a job that must not run on this thread.
    pub(super) fn post_job<J>(
        &self,
        level: Level,
        job: J,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
    {
        match self.acquire_queue_permit() {
            Ok(None) => self.post_permitted(level, job, ()),
            Ok(Some(permit)) => self.post_permitted(level, job, permit),
            Err(error) => Err(self.reject(job, error.into())),
        }
    }

    /// Queues a job that has its permit and must not run on this thread.
    pub(super) fn post_permitted<J, P>(
        &self,
        level: Level,
        job: J,
        permit: P,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
        P: Send + 'static,
    {
        let target = self.target_if_idle();
        let (task, join_ref) = pack(level, job, permit);
        match self.post_task(level, task, target) {
            Ok(()) => Ok(join_ref),
            Err((task, why)) => {
                // SAFETY: packed above, with these types.
                let job = unsafe { unpack::<_, J, P>(task) };
                Err(self.reject(job, why))
            }
        }
    }

    /// The target of a job that must not run on this thread, unless the executor is busy.
    pub(super) fn target_if_idle(&self) -> Option<Target> {
        match self.core.is_owned() {
            true => None,
            false => Target::of(&self.core),
        }
    }

    /// Queues a task that must not run on this thread.
    pub(super) fn post_task(
        &self,
        level: Level,
        task: JobTask<S>,
        target: Option<Target>,
    ) -> Result<(), (JobTask<S>, Rejection)> {
        let task = match target {
            Some(target) => return self.post_on(level, task, &target),
            None => match Owner::push_if_owned(&self.core, level, task) {
                Ok(()) => return Ok(()),
                Err((task, tags)) if refusal(tags).is_some() => {
                    return Err((task, Rejection::by(tags)));
                }
                Err((task, _)) => task,
            },
        };
        // It has become idle.
        match Target::of(&self.core) {
            Some(target) => self.post_on(level, task, &target),
            None => Err((task, Rejection::NoTarget)),
        }
    }

    fn post_on(
        &self,
        level: Level,
        task: JobTask<S>,
        target: &Target,
    ) -> Result<(), (JobTask<S>, Rejection)> {
        match Owner::push(&self.core, level, task) {
            Ok(Pushed::Queued) => Ok(()),
            Ok(Pushed::Acquired(owner)) => {
                // A drain that is refused is dropped: it must not run on this thread.
                drop(owner.hand_over(target));
                Ok(())
            }
            Err((task, tags)) => Err((task, Rejection::by(tags))),
        }
    }
}

// ===== permits, handles, rejections =====

impl<S: Send + 'static> SerialExecutor<S> {
    /// Acquires a permit of the queue. `None` if the queue has no bound. A job that submits to its own executor may
    /// exceed the bound.
    pub(super) fn acquire_queue_permit(&self) -> Result<Option<QueuePermit>, TryAcquireError> {
        let Some(semaphore) = &self.core.semaphore else {
            return Ok(None);
        };
        QueuePermit::acquire(semaphore, || self.is_current()).map(Some)
    }

    /// Counts a job that is not accepted.
    pub(super) fn reject<J>(&self, job: J, why: Rejection) -> TrySpawnError<J> {
        self.core.counters.rejected.add(1);
        why.with_job(job)
    }

    /// Ends a packed job that is not accepted.
    pub(super) fn reject_task(&self, task: JobTask<S>, why: Rejection) {
        task.fail(self.reject((), why).drop_task());
    }

    /// The handle of a job that was queued or rejected.
    #[inline(always)]
    pub(super) fn handle<R: 'static>(&self, queued: Result<JoinRef<R>, Fault>) -> JoinHandle<R> {
        self.handle_of(queued, false)
    }

    /// As `handle`. If `spins`, the first poll of the handle spins for a moment.
    #[inline(always)]
    fn handle_of<R: 'static>(
        &self,
        queued: Result<JoinRef<R>, Fault>,
        spins: bool,
    ) -> JoinHandle<R> {
        match queued {
            Ok(join_ref) => {
                let origin = Origin::serial(self.core.id(), spins);
                JoinHandle::with_origin(Id::next(), join_ref, origin)
            }
            Err(fault) => JoinHandle::failed(fault),
        }
    }
}
