//! The protocol of a serial executor: the state, the queue, and the word that determines which party may touch them.
//!
//! # Words
//!
//! - An executor is *owned* while a thread, a drain or a guard has the right to touch its state and its queue. That
//!   party is its *owner*. An owned executor is *busy*, any other is *idle*.
//! - A job runs *inline* if its submitter acquires an idle executor and runs the job itself. Otherwise it is
//!   *queued*: it is pushed to the *inbox*, from which the owner takes it into its *queue*.
//! - An owner that has finished its own job *captures* what others have queued meanwhile: it runs those jobs on its
//!   thread, up to a limit. Then it *hands over*: it puts the ownership into a *drain*, which is a task on a runtime
//!   or a pool that runs the rest.
//! - An asynchronous job has the state through a *guard*. While it waits, the owner keeps it as its *suspended* job
//!   and runs no other. See `suspended`.
//!
//! # The word
//!
//! It is the head of the inbox, with three tags:
//!
//! | tag | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `OWNED` | the executor is busy | the new owner: alone if the executor is idle, or together with a push | the owner, when nothing is queued |
//! | `CLOSED` | no job is accepted | `close` | nothing |
//! | `POISONED` | a job has panicked, and no job is accepted | the owner | `clear_poison` and `reset` |
//!
//! # Invariants
//!
//! - *The inbox has jobs only while the executor is owned.* A push sets `OWNED` in the same compare-and-swap; the
//!   owner clears it only by a compare-and-swap on an empty inbox.
//! - *There is one owner.* `OWNED` is set by a compare-and-swap that saw it clear, and the party that did so is the
//!   owner. Handing over changes the thread, not the word. While an asynchronous job runs, the state alone belongs
//!   to its guard.
//! - *An owner takes every accepted job.* The job was pushed while `OWNED` was set, or by the push that set it, and
//!   that owner cannot release before it has taken the job.
//! - *Jobs of one level run in the order of their successful pushes.* The owner runs what it took earlier before
//!   what it takes later, and a job runs inline only when nothing is queued.
//!
//! A thread that aborts queued jobs takes them away without owning the executor: see `queue`. Where a job runs, inline or
//! queued, is decided in `enqueue`.

use std::mem;
use std::ptr::NonNull;

use super::cost::JobCost;
use super::metrics::{Counters, Metrics};
use super::options::Options;
use super::queue::Queue;
use super::suspended::Suspended;
use crate::inbox::{Inbox, Tags};
use crate::join::ExecutorId;
use crate::semaphore::Semaphore;
use crate::sync::{Arc, UnsafeCell};
use crate::task::{Fault, JobContext, Task};
use crate::wait_queue::WaitQueue;

pub(super) const OWNED: Tags = Tags::bit(0);
pub(super) const CLOSED: Tags = Tags::bit(1);
pub(super) const POISONED: Tags = Tags::bit(2);

/// Why the state cannot be missing.
pub(super) const STATE_EXISTS: &str = "the state is taken only when no job can come";

/// A job in its cell.
pub(super) type JobTask<S> = Task<Lent<S>>;

/// The state that all handles of an executor share.
///
/// A thread that queues a job writes the first two fields, which share a cache line.
#[repr(C)]
pub(super) struct Core<S> {
    pub(super) inbox: Inbox<JobTask<S>>,
    /// Used by the owner. Other threads may abort the jobs in it.
    pub(super) queue: Queue<Lent<S>>,
    /// Used by the owner. `None` once it was taken out.
    pub(super) state: UnsafeCell<Option<S>>,
    /// Bounds the jobs in the inbox and the queue.
    pub(super) semaphore: Option<Arc<Semaphore>>,
    pub(super) suspended: Suspended<Lent<S>>,
    pub(super) options: Options,
    pub(super) counters: Counters,
    pub(super) cost: JobCost,
    /// Notified when the executor is released, closed, or no longer poisoned.
    pub(super) released: WaitQueue,
}

// SAFETY: the state is accessed by the owner only, one thread at a time, and may move between threads.
unsafe impl<S: Send> Send for Core<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Core<S> {}

impl<S> Core<S> {
    pub(super) fn new(state: S, options: Options) -> Self {
        let capacity = options.queue_capacity;
        Self {
            inbox: Inbox::new(),
            queue: Queue::new(),
            state: UnsafeCell::new(Some(state)),
            semaphore: capacity.map(|jobs| Arc::new(Semaphore::new(jobs))),
            suspended: Suspended::new(),
            options,
            counters: Counters::default(),
            cost: JobCost::new(),
            released: WaitQueue::new(),
        }
    }

    /// Identifies the executor while it exists.
    #[inline]
    pub(super) fn id(&self) -> ExecutorId {
        NonNull::from(self).addr()
    }

    /// Accepts no more jobs.
    pub(super) fn close(&self) {
        self.inbox.retag(CLOSED, Tags::NONE);
        if let Some(semaphore) = &self.semaphore {
            semaphore.close();
        }
        self.released.notify_all();
    }

    /// Returns `true` if the executor is closed and its last job has ended.
    pub(super) fn has_ended(&self) -> bool {
        // A read-modify-write: what the last job did happens before what the caller does next.
        let tags = self.inbox.retag(Tags::NONE, Tags::NONE).tags;
        tags.has(CLOSED) && !tags.has(OWNED)
    }

    /// Returns `true` if no job is queued or running.
    ///
    /// A waiter is counted before this read-modify-write, and an owner checks for waiters after the one that releases the
    /// executor. So the waiter sees the release, or the owner sees the waiter.
    pub(super) fn is_idle(&self) -> bool {
        !self.inbox.retag(Tags::NONE, Tags::NONE).tags.has(OWNED)
    }

    /// Aborts the queued jobs, and returns their number.
    pub(super) fn abort_queued(&self) -> usize {
        self.queue.abort_all(&self.inbox)
    }

    /// About how many jobs are queued.
    pub(super) fn queue_length(&self) -> usize {
        self.queue.lengths().0
    }

    pub(super) fn metrics(&self) -> Metrics {
        let (queue_length, max_queue_length) = self.queue.lengths();
        let tags = self.inbox.peek().tags;
        Metrics {
            is_busy: tags.has(OWNED),
            is_poisoned: tags.has(POISONED),
            ..self.counters.read(queue_length, max_queue_length)
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inbox.peek().tags.has(CLOSED)
    }

    pub(super) fn is_owned(&self) -> bool {
        self.inbox.peek().tags.has(OWNED)
    }

    // ===== panics =====

    pub(super) fn is_poisoned(&self) -> bool {
        self.inbox.peek().tags.has(POISONED)
    }

    /// Runs a job of the owner. If the job panics, this poisons the state before the panic is propagated, so
    /// that a caller which learns of the panic finds the state poisoned.
    #[inline]
    pub(super) fn guard<R>(&self, job: impl FnOnce() -> R) -> R {
        struct Panicked<'a, S>(&'a Core<S>);
        impl<S> Drop for Panicked<'_, S> {
            fn drop(&mut self) {
                self.0.count_panic();
            }
        }

        let panicked = Panicked(self);
        let output = job();
        mem::forget(panicked);
        output
    }

    fn count_panic(&self) {
        self.counters.panicked.add(1);
        self.apply_on_panic();
    }

    /// Poisons the state, unless the options forbid it.
    pub(super) fn apply_on_panic(&self) {
        if self.options.poison_on_panic {
            self.poison();
        }
    }

    /// Accepts no jobs until `clear_poison` or `reset`.
    pub(super) fn poison(&self) {
        self.inbox.retag(POISONED, Tags::NONE);
    }

    pub(super) fn clear_poison(&self) -> bool {
        let was_poisoned = self.inbox.retag(Tags::NONE, POISONED).tags.has(POISONED);
        if was_poisoned {
            // A `reset` that waits has nothing to do any more.
            self.released.notify_all();
        }
        was_poisoned
    }
}

/// Why a word with these tags accepts no job, if it does not.
pub(super) fn refusal(tags: Tags) -> Option<Fault> {
    if tags.has(CLOSED) {
        Some(Fault::closed())
    } else if tags.has(POISONED) {
        Some(Fault::poisoned())
    } else {
        None
    }
}

/// The state, which the owner lends to a job while the job runs.
pub(super) struct Lent<S>(*const Core<S>);

impl<S: 'static> JobContext for Lent<S> {}

impl<S> Lent<S> {
    /// # Safety
    ///
    /// The caller owns the executor, and keeps the ownership and the core while it uses this for one job.
    #[inline]
    pub(super) unsafe fn new(core: &Arc<Core<S>>) -> Self {
        Self(Arc::as_ptr(core))
    }

    pub(super) fn core(&self) -> &Core<S> {
        // SAFETY: the owner, which created this value, holds the core while the job runs.
        unsafe { &*self.0 }
    }

    /// Runs a job under the [guard](Core::guard).
    #[inline]
    pub(super) fn run<R>(&mut self, job: impl FnOnce(&mut S) -> R) -> R {
        let core = self.core();
        core.guard(|| {
            core.state.with_mut(|state| {
                // SAFETY: the state is the owner's, which runs one job at a time.
                let state = unsafe { &mut *state };
                job(state.as_mut().expect(STATE_EXISTS))
            })
        })
    }
}
