//! A job, and how it is packed into a cell to be queued.

use std::mem::ManuallyDrop;
use std::task::{Context, Poll};

use super::core::{JobTask, Lent};
use super::level::Level;
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::Arc;
use crate::task::{Job, JoinRef, Task};

/// A job as the executor runs it. A submitter may get it back.
pub(super) trait Run<S>: Send + 'static {
    type Output: Send + 'static;

    fn run(self, lent: &mut Lent<S>) -> Self::Output;
}

/// A closure that changes the state.
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

/// The permit of one queued job, if the executor has a [queue capacity](super::Builder::queue_capacity). Dropping it
/// releases the permit.
pub(super) struct QueuePermit(Arc<Semaphore>);

impl QueuePermit {
    /// Acquires a permit. If there is none and `may_exceed` returns `true`, exceeds the limit.
    pub(super) fn acquire(
        semaphore: &Arc<Semaphore>,
        may_exceed: impl FnOnce() -> bool,
    ) -> Result<Self, TryAcquireError> {
        match semaphore.try_acquire() {
            Err(TryAcquireError::Full) if may_exceed() => semaphore.acquire_over_limit(),
            other => other?,
        }
        Ok(Self::adopt(semaphore))
    }

    /// Takes over a permit that was acquired from the semaphore.
    pub(super) fn adopt(semaphore: &Arc<Semaphore>) -> Self {
        Self(Arc::clone(semaphore))
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A job in its cell, with its permit. `P` is `()` without a bound.
struct Packed<J, P> {
    job: J,
    /// Released when the job starts. If the job is dropped unrun, its captures are dropped first, because of the
    /// order of the fields.
    permit: P,
}

impl<S, J, P> Job<Lent<S>> for Packed<J, P>
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
        // SAFETY: the caller guarantees that the job was not dropped, and does not use it after this.
        let Self { job, permit } = unsafe { ManuallyDrop::take(job) };
        drop(permit);
        let output = job.run(lent);
        lent.core().counters.packed_returned.add(1);
        Poll::Ready(output)
    }
}

/// Packs a job into a cell.
pub(super) fn pack<S, J, P>(level: Level, job: J, permit: P) -> (JobTask<S>, JoinRef<J::Output>)
where
    S: 'static,
    J: Run<S>,
    P: Send + 'static,
{
    Task::joinable_with_bits(level.user_bits(), Packed { job, permit })
}

/// Takes a job out of its cell. There is no handle of it yet.
///
/// # Safety
///
/// `pack` has created the cell, with these types.
pub(super) unsafe fn unpack<S, J, P>(task: JobTask<S>) -> J
where
    S: 'static,
    J: Run<S>,
    P: Send + 'static,
{
    // SAFETY: as the caller guarantees.
    let packed = unsafe { task.take_back::<Packed<J, P>>() };
    packed.expect("there was no handle to abort it").job
}
