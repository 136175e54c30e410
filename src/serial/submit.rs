//! How a job gets into the queue, when it does not run at once.

use std::io;
use std::mem::ManuallyDrop;
use std::task::{Context, Poll};

use super::SerialExecutor;
use super::core::{CLOSED, Lent, Owner, POISONED, Pushed, Queued, refusal};
use super::drain::Target;
use super::exclusive::NOWHERE;
use super::queue::Level;
use crate::inbox::{Head, Tags};
use crate::join::{Id, JoinHandle, MAX_NESTED_JOBS, NestedJob, Origin, TrySpawnError};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::Arc;
use crate::task::{Fault, Job, JoinRef, Outcome, Task};

/// Behind more jobs than this it does not pay to wait awake.
const FEW: usize = 32;

/// A place in the queue of an executor that has a [capacity](super::Builder::capacity).
pub(super) struct Place(Arc<Semaphore>);

impl Place {
    /// Takes a place that is there, or, if `unasked`, one that is not.
    pub(super) fn enter(
        room: &Arc<Semaphore>,
        unasked: impl FnOnce() -> bool,
    ) -> Result<Self, TryAcquireError> {
        match room.try_acquire() {
            Err(TryAcquireError::Full) if unasked() => room.acquire_over_limit(),
            other => other?,
        }
        Ok(Self(Arc::clone(room)))
    }

    /// Waits for a place.
    pub(super) async fn wait(room: &Arc<Semaphore>) -> Result<Self, TryAcquireError> {
        room.acquire().await?;
        Ok(Self(Arc::clone(room)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A job, as the executor runs it. Whoever submits one may get it back.
pub(super) trait Run<S>: Send + 'static {
    type Output: Send + 'static;

    fn run(self, lent: &mut Lent<S>) -> Self::Output;
}

/// A job that changes the state, and no more.
pub(super) struct Plain<F>(pub(super) F);

impl<S, F, R> Run<S> for Plain<F>
where
    F: FnOnce(&mut S) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;

    #[inline]
    fn run(self, lent: &mut Lent<S>) -> R {
        lent.run(self.0)
    }
}

/// What is queued: a job, and its place if there is a bound.
struct Submitted<J, P> {
    job: J,
    /// Given back when the job begins; or dropped after it: who learns of the free place finds the
    /// captures gone.
    place: P,
}

impl<S, J, P> Job<Lent<S>> for Submitted<J, P>
where
    S: 'static,
    J: Run<S>,
    P: Send + 'static,
{
    type Output = J::Output;
    type Signal = ();
    const BLOCKING: bool = true;

    #[inline]
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        lent: &mut Lent<S>,
        _: &mut Context<'_>,
    ) -> Poll<J::Output> {
        // SAFETY: the caller says that the job has not been dropped, and takes it as dropped now.
        let Self { job, place } = unsafe { ManuallyDrop::take(job) };
        drop(place);
        Poll::Ready(job.run(lent))
    }
}

impl<S: Send + 'static> SerialExecutor<S> {
    /// Runs a job at once, or queues it.
    ///
    /// What is seldom returns less than a handle: so that of a job that ran is made in registers.
    #[inline]
    pub(super) fn run_or_queue<J>(&self, level: Level, job: J) -> JoinHandle<J::Output>
    where
        J: Run<S>,
    {
        if !self.core.options.inline {
            return self.handle(self.post_or_drop(level, job));
        }
        let owner = match Owner::acquire(&self.core) {
            Ok(owner) => owner,
            Err(seen) => match self.acquire_soon(seen) {
                Ok(owner) => owner,
                Err(seen) => {
                    let queued = self.queue_or_drop(level, job, seen);
                    return self.handle_soon(queued, self.is_soon());
                }
            },
        };
        self.run_acquired(owner, level, job)
    }

    /// Acquires an executor that was busy, if it is worth waiting for.
    #[cold]
    fn acquire_soon(&self, seen: Head) -> Result<Owner<'_, S>, Head> {
        let pays = refusal(seen.tags).is_none() && self.core.cost.is_brief() && !self.is_current();
        match pays {
            true => Owner::acquire_soon(&self.core, seen),
            false => Err(seen),
        }
    }

    /// Whether a job that has just been queued will have run soon.
    #[cold]
    fn is_soon(&self) -> bool {
        self.core.queued() <= FEW && self.core.cost.is_short()
    }

    #[cold]
    fn queue_or_drop<J>(
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
    fn post_or_drop<J>(&self, level: Level, job: J) -> Result<JoinRef<J::Output>, Fault>
    where
        J: Run<S>,
    {
        self.post_at(level, job).map_err(TrySpawnError::drop_task)
    }

    /// Runs a job of an executor that was idle, unless too many jobs are running inside one another.
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
        let outcome = match NestedJob::enter(self.core.name(), MAX_NESTED_JOBS) {
            Some(_depth) => run_inline(owner, job),
            None => return self.handle(Ok(run_later(owner, level, job))),
        };
        // Not before what `NestedJob` does in the end: the handle would wait for that in memory.
        JoinHandle::ready(outcome)
    }

    /// Queues a job of an executor whose word said this.
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
            return Err(refused(job, seen.tags));
        }
        match self.enter() {
            None => self.push(level, job, ()),
            Some(Ok(place)) => self.push(level, job, place),
            Some(Err(no_room)) => Err(not_entered(job, no_room)),
        }
    }

    /// Queues a job, which has entered, or runs it if the executor is idle by now.
    pub(super) fn push<J, P>(
        &self,
        level: Level,
        job: J,
        place: P,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
        P: Send + 'static,
    {
        let (task, join_ref) = package(level, job, place);
        let run = |mut owner: Owner<'_, S>, task| match NestedJob::enter(
            self.core.name(),
            MAX_NESTED_JOBS,
        ) {
            Some(_depth) => owner.run_first(task),
            None => {
                owner.push_first(level, task);
                owner.defer();
            }
        };
        match Owner::push_or(&self.core, level, task, run) {
            Ok(()) => Ok(join_ref),
            // SAFETY: `package` has made it of this.
            Err((task, tags)) => Err(refused(unsafe { unpack::<_, J, P>(task) }, tags)),
        }
    }

    /// Queues a job that must not run here.
    pub(super) fn post_at<J>(
        &self,
        level: Level,
        job: J,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
    {
        match self.enter() {
            None => self.post_in(level, job, ()),
            Some(Ok(place)) => self.post_in(level, job, place),
            Some(Err(no_room)) => Err(not_entered(job, no_room)),
        }
    }

    /// Queues a job, which has entered, and must not run here.
    pub(super) fn post_in<J, P>(
        &self,
        level: Level,
        job: J,
        place: P,
    ) -> Result<JoinRef<J::Output>, TrySpawnError<J>>
    where
        J: Run<S>,
        P: Send + 'static,
    {
        let target = self.target();
        let (task, join_ref) = package(level, job, place);
        match self.post_to(level, task, target) {
            Ok(()) => Ok(join_ref),
            // SAFETY: `package` has made it of this.
            Err((task, why)) => Err(why.into_error(unsafe { unpack::<_, J, P>(task) })),
        }
    }

    /// Where a job goes that must not run here, unless the executor is busy.
    pub(super) fn target(&self) -> Option<Target> {
        match self.core.is_owned() {
            true => None,
            false => Target::of(&self.core),
        }
    }

    /// Pushes a job that must not run here.
    pub(super) fn post_to(
        &self,
        level: Level,
        task: Queued<S>,
        target: Option<Target>,
    ) -> Result<(), (Queued<S>, NotPosted)> {
        let task = match target {
            Some(target) => return self.post_on(level, task, &target),
            None => match Owner::push_if_owned(&self.core, level, task) {
                Ok(()) => return Ok(()),
                Err((task, tags)) if refusal(tags).is_some() => {
                    return Err((task, NotPosted::Refused(tags)));
                }
                Err((task, _)) => task,
            },
        };
        // It is idle by now.
        match Target::of(&self.core) {
            Some(target) => self.post_on(level, task, &target),
            None => Err((task, NotPosted::Nowhere)),
        }
    }

    fn post_on(
        &self,
        level: Level,
        task: Queued<S>,
        target: &Target,
    ) -> Result<(), (Queued<S>, NotPosted)> {
        match Owner::push(&self.core, level, task) {
            Ok(Pushed::Queued) => Ok(()),
            // Not here, whatever happens: a drain that is refused is dropped.
            Ok(Pushed::Acquired(owner)) => {
                drop(owner.hand_over(target));
                Ok(())
            }
            Err((task, tags)) => Err((task, NotPosted::Refused(tags))),
        }
    }

    /// Takes a place, if there is a bound. What a job submits to its own executor always gets one.
    pub(super) fn enter(&self) -> Option<Result<Place, TryAcquireError>> {
        let room = self.core.room.as_ref()?;
        Some(Place::enter(room, || self.is_current()))
    }

    /// The handle of a job that was queued, or was refused.
    #[inline(always)]
    pub(super) fn handle<R: 'static>(&self, queued: Result<JoinRef<R>, Fault>) -> JoinHandle<R> {
        self.handle_soon(queued, false)
    }

    /// The same; `soon`: few wait before it, and jobs are short.
    #[inline(always)]
    fn handle_soon<R: 'static>(
        &self,
        queued: Result<JoinRef<R>, Fault>,
        soon: bool,
    ) -> JoinHandle<R> {
        match queued {
            Ok(join_ref) => {
                let home = Origin::serial(self.core.name(), soon);
                JoinHandle::with_origin(Id::next(), join_ref, home)
            }
            Err(fault) => JoinHandle::failed(fault),
        }
    }
}

#[inline]
fn run_inline<S, J>(mut owner: Owner<'_, S>, job: J) -> Outcome<J::Output>
where
    S: Send + 'static,
    J: Run<S>,
{
    let result = owner.run(|lent| job.run(lent));
    owner.core().counters.inline.add(1);
    owner.finish();
    result.map_err(Fault::panicked)
}

/// Leaves a job of an executor that is idle to the outermost job on this thread: too many are running
/// inside one another.
#[cold]
fn run_later<S, J>(mut owner: Owner<'_, S>, level: Level, job: J) -> JoinRef<J::Output>
where
    S: Send + 'static,
    J: Run<S>,
{
    let (task, join_ref) = package(level, job, ());
    owner.push_first(level, task);
    owner.defer();
    join_ref
}

/// Puts a job into a cell.
pub(super) fn package<S, J, P>(level: Level, job: J, place: P) -> (Queued<S>, JoinRef<J::Output>)
where
    S: 'static,
    J: Run<S>,
    P: Send + 'static,
{
    Task::joinable_with_bits(level.mark(), Submitted { job, place })
}

/// Takes a job out of its cell, to which nobody has a handle yet.
///
/// # Safety
///
/// `package` has made the cell, for such a job and such a place.
unsafe fn unpack<S, J, P>(task: Queued<S>) -> J
where
    S: 'static,
    J: Run<S>,
    P: Send + 'static,
{
    // SAFETY: as the caller says.
    let submitted = unsafe { task.take_back::<Submitted<J, P>>() };
    submitted.expect("nobody could abort it").job
}

/// Why a job was not posted.
pub(super) enum NotPosted {
    /// By a word with these tags.
    Refused(Tags),
    /// There is nothing to run it on.
    Nowhere,
}

impl NotPosted {
    fn into_error<J>(self, job: J) -> TrySpawnError<J> {
        match self {
            Self::Refused(tags) => refused(job, tags),
            Self::Nowhere => TrySpawnError::no_thread(job, io::Error::other(NOWHERE)),
        }
    }

    pub(super) fn into_fault(self) -> Fault {
        self.into_error(()).drop_task()
    }
}

/// Ends a job that was refused by a word with these tags.
pub(super) fn fail<S>(task: Queued<S>, tags: Tags) {
    task.fail(refusal(tags).unwrap_or_else(Fault::closed));
}

fn refused<J>(job: J, tags: Tags) -> TrySpawnError<J> {
    if !tags.has(CLOSED) && tags.has(POISONED) {
        TrySpawnError::poisoned(job)
    } else {
        TrySpawnError::closed(job)
    }
}

pub(super) fn not_entered<J>(job: J, no_room: TryAcquireError) -> TrySpawnError<J> {
    match no_room {
        TryAcquireError::Full => TrySpawnError::full(job),
        TryAcquireError::Closed => TrySpawnError::closed(job),
    }
}
