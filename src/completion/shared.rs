//! The state that the two ends of a stream share: the queue, the limits, and the runners.

use std::fmt::{self, DebugStruct};
use std::future::Future;

use super::in_place;
use super::queue::{CompletionQueue, QueueEntry, ReadCell};
use super::slot::Slot;
#[cfg(feature = "tracing")]
use super::stall::StallWatch;
use super::wrapped::Wrapped;
use crate::join::{AbortHandle, Id, JoinError, RunContext};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, Number};
use crate::task::{Abort, Job, Task};

/// The state that the two ends of a stream share.
pub(super) struct Shared<T, K> {
    pub(super) queue: Arc<CompletionQueue<T, K>>,
    /// Limits the jobs that have not been read, including those that are being submitted.
    outstanding: Semaphore,
    /// The number of jobs that were read and not released. Only the reader changes it.
    read: Number,
    /// The numbers of jobs that were read so far, by outcome. Only the reader changes them.
    completed: Number,
    panicked: Number,
    cancelled: Number,
    /// The number of submissions that were refused.
    rejected: Number,
    /// `true` if futures are polled once where they are submitted.
    pub(super) poll_in_place: bool,
    #[cfg(feature = "tracing")]
    stall: Arc<StallWatch<T, K>>,
}

impl<T, K> Shared<T, K> {
    pub(super) fn new(max_running: usize, max_outstanding: usize, spill_threshold: usize) -> Self {
        let queue = CompletionQueue::new(max_running, spill_threshold);
        Self {
            #[cfg(feature = "tracing")]
            stall: StallWatch::new(&queue),
            queue,
            outstanding: Semaphore::new(max_outstanding),
            read: Number::new(0),
            completed: Number::new(0),
            panicked: Number::new(0),
            cancelled: Number::new(0),
            rejected: Number::new(0),
            poll_in_place: false,
        }
    }

    pub(super) fn polling_in_place(self, poll_in_place: bool) -> Self {
        Self {
            poll_in_place,
            ..self
        }
    }

    /// Accepts no more jobs.
    pub(super) fn close(&self) {
        self.queue.jobs().close();
        self.outstanding.close();
        self.queue.running.close();
        // The reader may be waiting for a job that now cannot come.
        self.queue.wake_reader();
    }

    /// The number of jobs that are not released, and `true` if the stream is closed.
    pub(super) fn len(&self) -> (usize, bool) {
        let jobs = self.queue.jobs();
        (jobs.len(), jobs.is_closed())
    }

    /// Makes room for another job, because one was read.
    pub(super) fn count_read(&self) {
        // First, so that a submitter that gets the permit never sees more jobs in flight than the limit.
        self.read.add_own(1);
        self.outstanding.release();
    }

    /// Counts a job that was read by its outcome.
    pub(super) fn count_outcome(&self, outcome: &Result<T, JoinError>) {
        let number = match outcome {
            Ok(_) => &self.completed,
            Err(error) if error.is_panic() => &self.panicked,
            Err(_) => &self.cancelled,
        };
        number.add_own(1);
    }

    /// Counts a refused submission.
    #[cold]
    fn count_rejected(&self) {
        self.rejected.add(1);
    }

    /// Releases jobs that were read: these, and a number of spilled ones.
    pub(super) fn release(&self, read: impl Iterator<Item = ReadCell<T, K>>, spilled: usize) {
        let mut jobs = self.queue.jobs();
        for cell in read {
            jobs.release_cell(cell);
        }
        jobs.release_spilled(spilled);
        // Under the lock, so that `in_flight` sees both changes or neither.
        self.read.set(0);
    }

    /// The number of jobs that were accepted and not read.
    pub(super) fn in_flight(&self) -> usize {
        let jobs = self.queue.jobs();
        jobs.len().saturating_sub(self.read.get())
    }

    /// The numbers of jobs, in flight and so far.
    pub(super) fn counts(&self) -> JobCounts {
        let jobs = self.queue.jobs();
        let read = self.read.get();
        JobCounts {
            in_flight: jobs.len().saturating_sub(read) as u64,
            submitted: jobs.accepted(),
            read: jobs.released() + read as u64,
            completed: self.completed.get() as u64,
            panicked: self.panicked.get() as u64,
            cancelled: self.cancelled.get() as u64,
            rejected: self.rejected.get() as u64,
        }
    }

    /// The number of jobs that have finished and were not read. Approximate while jobs come and go.
    pub(super) fn ready(&self) -> usize {
        let running = self.queue.running.count();
        self.in_flight().saturating_sub(running)
    }

    /// Aborts a job. Returns `false` if it has finished or is unknown.
    pub(super) fn abort(&self, id: Id) -> bool {
        let abort = self.queue.jobs().abort_of(id);
        abort.is_some_and(|abort| abort_unfinished(&abort))
    }

    /// Aborts all jobs, and returns how many of them had not finished.
    pub(super) fn abort_all(&self) -> usize {
        let all: Vec<_> = self.queue.jobs().aborts().collect();
        all.iter().filter(|abort| abort_unfinished(abort)).count()
    }

    /// Closes the stream because its reader, which has released what it read, goes away. Drops the completions that
    /// have arrived or will. Returns the means to abort the jobs.
    pub(super) fn detach_reader(&self) -> impl Iterator<Item = Abort> + use<T, K> {
        self.close();
        self.queue.seal();
        let mut jobs = self.queue.jobs();
        let (aborts, spill) = jobs.take_all();
        let spare = jobs.take_spare();
        drop(jobs);
        drop((spill, spare));
        aborts
    }

    pub(super) fn fmt_fields(&self, f: &mut DebugStruct<'_, '_>) -> fmt::Result {
        let (_, closed) = self.len();
        f.field("running", &self.queue.running.count())
            .field("outstanding", &self.in_flight())
            .field("closed", &closed)
            .finish()
    }

    /// The number of items that cost the reader one unit of its cooperative budget.
    pub(super) fn items_per_unit(&self) -> u32 {
        match self.poll_in_place {
            true => in_place::JOBS_PER_UNIT,
            false => 1,
        }
    }

    /// Consumes the budget of the task that submits a job, if jobs are polled in place.
    pub(super) async fn consume_budget(&self) {
        if self.poll_in_place {
            in_place::consume_budget().await;
        }
    }

    /// Tells that the reader has polled the stream.
    #[inline]
    pub(super) fn note_poll(&self) {
        #[cfg(feature = "tracing")]
        self.stall.note_poll();
    }
}

impl<T: Send + 'static, K: Send + 'static> Shared<T, K> {
    /// Acquires a permit of each limit, if both are free now.
    pub(super) fn try_reserve(&self) -> Result<Reservation<'_, T, K>, TryAcquireError> {
        self.try_acquire_both()
            .inspect_err(|_| self.count_rejected())
    }

    fn try_acquire_both(&self) -> Result<Reservation<'_, T, K>, TryAcquireError> {
        self.outstanding.try_acquire()?;
        let mut reservation = Reservation {
            shared: self,
            running: false,
        };
        self.queue.running.try_acquire()?;
        reservation.running = true;
        Ok(reservation)
    }

    /// Waits for a permit of each limit. Fails if the stream is closed.
    pub(super) async fn reserve(&self) -> Result<Reservation<'_, T, K>, TryAcquireError> {
        let reserved = match self.try_acquire_both() {
            // A permit that was acquired has been released again: the limits are waited for in their order.
            Err(TryAcquireError::Full) => {
                #[cfg(feature = "tracing")]
                let _waiting = StallWatch::wait(&self.stall);
                self.acquire_both().await
            }
            other => other,
        };
        reserved.inspect_err(|_| self.count_rejected())
    }

    async fn acquire_both(&self) -> Result<Reservation<'_, T, K>, TryAcquireError> {
        self.outstanding.acquire().await?;
        let mut reservation = Reservation {
            shared: self,
            running: false,
        };
        self.queue.running.acquire().await?;
        reservation.running = true;
        Ok(reservation)
    }
}

/// The numbers of jobs of a stream.
pub(super) struct JobCounts {
    pub(super) in_flight: u64,
    pub(super) submitted: u64,
    pub(super) read: u64,
    pub(super) completed: u64,
    pub(super) panicked: u64,
    pub(super) cancelled: u64,
    pub(super) rejected: u64,
}

/// Aborts a job. Returns `false` if it has finished.
fn abort_unfinished(abort: &Abort) -> bool {
    let finished = abort.is_complete();
    if !finished {
        abort.abort();
    }
    !finished
}

/// A permit of each limit, for one job. Dropping it releases the permits.
pub(super) struct Reservation<'a, T, K> {
    shared: &'a Shared<T, K>,
    /// `true` if the permit of the running jobs is acquired too.
    running: bool,
}

/// The value that the submitter of a job receives.
pub(super) trait Receipt {
    fn new(id: Id, abort: &Abort) -> Self;
}

impl Receipt for Id {
    fn new(id: Id, _: &Abort) -> Self {
        id
    }
}

impl Receipt for AbortHandle {
    fn new(id: Id, abort: &Abort) -> Self {
        Self::new(id, Some(abort.clone()))
    }
}

impl<'a, T, K> Reservation<'a, T, K> {
    /// The permits that were [kept](Self::keep) before.
    pub(super) fn kept(shared: &'a Shared<T, K>) -> Self {
        Self {
            shared,
            running: true,
        }
    }

    /// Keeps the permits acquired.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl<'a, T: Send + 'static, K: Send + 'static> Reservation<'a, T, K> {
    pub(super) fn shared(&self) -> &'a Shared<T, K> {
        self.shared
    }

    /// Accepts a job that lies in its cell. Returns it if the stream was closed meanwhile.
    pub(super) fn job<R, J>(self, tag: K, job: J) -> Result<(R, Task<RunContext>), (K, J)>
    where
        R: Receipt,
        J: Job<RunContext, Output = T>,
    {
        self.accept(tag, job, |entry, job| {
            let id = entry.id();
            let (task, abort) = entry.job(job);
            ((R::new(id, &abort), task), id, abort)
        })
    }

    /// Accepts a future that the caller runs.
    pub(super) fn wrap<R, F>(self, tag: K, future: F) -> Result<(R, Wrapped<F, K>), (K, F)>
    where
        R: Receipt,
        F: Future<Output = T>,
    {
        self.accept(tag, future, |entry, future| {
            let id = entry.id();
            let (wrapped, abort) = Wrapped::new(entry, future);
            ((R::new(id, &abort), wrapped), id, abort)
        })
    }

    /// Accepts the promise of a completion.
    pub(super) fn slot(self, tag: K) -> Result<Slot<T, K>, K> {
        let make = |entry, ()| {
            let (slot, abort) = Slot::new(entry);
            let id = slot.id();
            (slot, id, abort)
        };
        self.accept(tag, (), make).map_err(|(tag, ())| tag)
    }

    fn accept<J, R>(
        self,
        tag: K,
        job: J,
        make: impl FnOnce(QueueEntry<T, K>, J) -> (R, Id, Abort),
    ) -> Result<R, (K, J)> {
        let queue = &self.shared.queue;
        let mut jobs = queue.jobs();
        if jobs.is_closed() {
            self.shared.count_rejected();
            return Err((tag, job));
        }
        let of_job = jobs.reference_to(queue);
        let accepted = jobs.accept(|key| {
            let entry = QueueEntry::new(of_job, tag, key);
            make(entry, job)
        });
        // The permits now belong to the job, which releases them when it completes and when it is read.
        self.keep();
        Ok(accepted)
    }
}

impl<T, K> Drop for Reservation<'_, T, K> {
    fn drop(&mut self) {
        if self.running {
            self.shared.queue.running.release();
        }
        self.shared.outstanding.release();
    }
}
