//! The state, the queue, and the one word that says who owns both.
//!
//! The word is an inbox's head with three tags:
//!
//! | tag | set when | by | cleared by |
//! |---|---|---|---|
//! | `OWNED` | somebody may touch the state and the owner's queue | who acquires: by itself (idle) or with a push | the owner, when nothing is queued |
//! | `CLOSED` | no job is accepted any more | `close` | nobody |
//! | `POISONED` | a job panicked, and jobs are refused | the owner | `clear_poison` |
//!
//! What holds, and why:
//!
//! - *A job is in the inbox only while the executor is owned.* A push sets `OWNED` in the same
//!   compare-and-swap; the owner clears it only by a compare-and-swap from an empty inbox.
//! - *There is one owner.* `OWNED` is set by a compare-and-swap that saw it clear, and whoever did
//!   that is the owner. Handing over changes the thread, not the word. While a job waits, the state,
//!   and nothing else, is its guard's: see `exclusive`.
//! - *Every accepted job is seen by an owner.* It was pushed while `OWNED` was set or by the push
//!   that set it, and that owner cannot release before it has taken it.
//! - *Jobs of one level run in the order of their successful pushes.* The owner runs its queue, which
//!   it took earlier, before those that it takes later; and a job runs inline only when nothing is
//!   queued.
//!
//! Whoever cancels what is queued takes it away without owning the executor: see `queue`.

use std::any::Any;
use std::hint::spin_loop;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::builder::{OnPanic, Options};
use super::cost::JobCost;
use super::exclusive::Turn;
use super::metrics::{Counters, Metrics};
use super::queue::{Level, Queue};
use crate::inbox::{Batch, Head, Inbox, Refused, Tags};
use crate::join::ExecutorId;
use crate::semaphore::Semaphore;
use crate::sync::{Arc, UnsafeCell};
use crate::task::{Fault, JobContext, Task};
use crate::wait_queue::WaitQueue;

pub(super) const OWNED: Tags = Tags::bit(0);
pub(super) const CLOSED: Tags = Tags::bit(1);
pub(super) const POISONED: Tags = Tags::bit(2);

/// A queued job.
pub(super) type Queued<S> = Task<Lent<S>>;

/// What all handles of an executor share.
///
/// In this order: who queues a job writes the first two, which are in one cache line.
#[repr(C)]
pub(super) struct Core<S> {
    inbox: Inbox<Queued<S>>,
    /// The owner's, but for those who cancel: what it has taken from the inbox and not yet run.
    queue: Queue<S>,
    /// The owner's. `None` once it was taken out.
    pub(super) state: UnsafeCell<Option<S>>,
    /// The bound of both.
    pub(super) room: Option<Arc<Semaphore>>,
    /// The job that may wait, if it is the turn of one.
    pub(super) turn: Turn<S>,
    pub(super) options: Options,
    pub(super) counters: Counters,
    pub(super) cost: JobCost,
    /// Told when a closed executor is released.
    pub(super) released: WaitQueue,
}

// SAFETY: the state is accessed by the owner only, one thread at a time, and may move between threads.
unsafe impl<S: Send> Send for Core<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Core<S> {}

impl<S> Core<S> {
    pub(super) fn new(state: S, options: Options) -> Self {
        Self {
            inbox: Inbox::new(),
            state: UnsafeCell::new(Some(state)),
            queue: Queue::new(),
            room: options.capacity.map(|jobs| Arc::new(Semaphore::new(jobs))),
            turn: Turn::new(),
            options,
            counters: Counters::default(),
            cost: JobCost::new(),
            released: WaitQueue::new(),
        }
    }

    /// Which executor it is.
    #[inline]
    pub(super) fn name(&self) -> ExecutorId {
        NonNull::from(self).addr()
    }

    /// Refuses jobs from now on.
    pub(super) fn close(&self) {
        self.inbox.retag(CLOSED, Tags::NONE);
        if let Some(room) = &self.room {
            room.close();
        }
        self.released.notify_all();
    }

    /// Whether the executor is closed, and its last job has ended.
    pub(super) fn has_ended(&self) -> bool {
        // Not a look: what the last job did comes before what the caller does next.
        let tags = self.inbox.retag(Tags::NONE, Tags::NONE).tags;
        tags.has(CLOSED) && !tags.has(OWNED)
    }

    /// Cancels what is queued, and says how many jobs that were.
    pub(super) fn cancel_queued(&self) -> usize {
        self.queue.cancel(&self.inbox)
    }

    /// How many jobs are queued, roughly.
    pub(super) fn queued(&self) -> usize {
        self.queue.lengths().0
    }

    pub(super) fn metrics(&self) -> Metrics {
        let (queue_length, max_queue_length) = self.queue.lengths();
        Metrics {
            queue_length,
            max_queue_length,
            ..self.counters.read()
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inbox.peek().tags.has(CLOSED)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.inbox.peek().tags.has(POISONED)
    }

    /// Runs a job of the owner's; if it panics, poisons the state before the panic goes on, so that
    /// whoever is told of the panic finds the state poisoned.
    #[inline]
    pub(super) fn guard<R>(&self, job: impl FnOnce() -> R) -> R {
        struct Panicked<'a, S>(&'a Core<S>);
        impl<S> Drop for Panicked<'_, S> {
            fn drop(&mut self) {
                self.0.panicked();
            }
        }

        let panicked = Panicked(self);
        let output = job();
        mem::forget(panicked);
        output
    }

    pub(super) fn clear_poison(&self) -> bool {
        self.inbox.retag(Tags::NONE, POISONED).tags.has(POISONED)
    }

    pub(super) fn is_owned(&self) -> bool {
        self.inbox.peek().tags.has(OWNED)
    }

    /// The one job of a batch that was refused, and what the word said.
    fn take_back(&self, refused: Refused<Queued<S>>) -> (Queued<S>, Tags) {
        self.queue.does_not_come();
        let job = refused.batch.into_fifo().pop_front();
        (job.expect("it was pushed alone"), refused.head.tags)
    }

    fn panicked(&self) {
        self.counters.panics.add(1);
        self.poison_if_asked();
    }

    /// Follows [`OnPanic`].
    pub(super) fn poison_if_asked(&self) {
        if self.options.on_panic == OnPanic::Poison {
            self.poison();
        }
    }

    /// Refuses jobs until somebody vouches for the state.
    pub(super) fn poison(&self) {
        self.inbox.retag(POISONED, Tags::NONE);
    }
}

/// Why a job with these tags in its way is not accepted.
pub(super) fn refusal(tags: Tags) -> Option<Fault> {
    if tags.has(CLOSED) {
        Some(Fault::closed())
    } else if tags.has(POISONED) {
        Some(Fault::poisoned())
    } else {
        None
    }
}

/// The evidence that the executor is ours.
///
/// Dropping it instead of releasing it cancels what is queued: so ends a drain that is not run.
#[must_use]
pub(super) struct Owner<'a, S>(&'a Arc<Core<S>>);

/// What became of a job that was pushed.
pub(super) enum Pushed<'a, S> {
    /// The owner will run it.
    Queued,
    /// Nobody owned the executor: now the caller does, with the job in the inbox.
    Acquired(Owner<'a, S>),
}

impl<'a, S> Owner<'a, S> {
    /// Acquires an executor that is idle, open and not poisoned.
    #[inline]
    pub(super) fn acquire(core: &'a Arc<Core<S>>) -> Result<Self, Head> {
        core.inbox.exchange_empty(Tags::NONE, OWNED)?;
        Ok(Self(core))
    }

    /// Waits a moment for an executor that is busy with jobs which are shorter than it takes to queue one.
    pub(super) fn acquire_soon(core: &'a Arc<Core<S>>, mut seen: Head) -> Result<Self, Head> {
        for rounds in JobCost::BREAKS {
            (0..rounds).for_each(|_| spin_loop());
            for _ in 0..JobCost::LOOKS {
                seen = core.inbox.peek();
                if refusal(seen.tags).is_some() {
                    return Err(seen);
                }
                if seen.empty && !seen.tags.has(OWNED) {
                    match Self::acquire(core) {
                        Ok(owner) => {
                            core.cost.in_time();
                            return Ok(owner);
                        }
                        Err(now) => seen = now,
                    }
                }
                spin_loop();
            }
        }
        core.cost.in_vain();
        Err(seen)
    }

    /// Acquires an executor that is closed and idle.
    pub(super) fn acquire_closed(core: &'a Arc<Core<S>>) -> Result<Self, Head> {
        let mut seen = core.inbox.peek();
        // On the word that is there: whether it is poisoned may change at any time.
        while seen.empty && seen.tags.has(CLOSED) && !seen.tags.has(OWNED) {
            match core.inbox.exchange_empty(seen.tags, seen.tags.with(OWNED)) {
                Ok(()) => return Ok(Self(core)),
                Err(actual) => seen = actual,
            }
        }
        Err(seen)
    }

    /// Queues a job, and acquires the executor if nobody owns it; hands the job back, with the tags
    /// that say why, if it is refused.
    pub(super) fn push(
        core: &'a Arc<Core<S>>,
        level: Level,
        job: Queued<S>,
    ) -> Result<Pushed<'a, S>, (Queued<S>, Tags)> {
        core.queue.comes(level);
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            refusal(seen.tags).is_none().then(|| seen.tags.with(OWNED))
        });
        match pushed {
            Ok(seen) if seen.tags.has(OWNED) => Ok(Pushed::Queued),
            Ok(_) => Ok(Pushed::Acquired(Self(core))),
            Err(refused) => Err(core.take_back(refused)),
        }
    }

    /// Queues a job if somebody owns the executor; else hands it back.
    pub(super) fn push_if_owned(
        core: &'a Arc<Core<S>>,
        level: Level,
        job: Queued<S>,
    ) -> Result<(), (Queued<S>, Tags)> {
        core.queue.comes(level);
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            (seen.tags.has(OWNED) && refusal(seen.tags).is_none()).then_some(seen.tags)
        });
        pushed.map(drop).map_err(|refused| core.take_back(refused))
    }

    /// Queues a job if somebody owns the executor; if nobody does, acquires it, and has `run` run the job;
    /// hands it back, with the tags that say why, if it is refused.
    pub(super) fn push_or(
        core: &'a Arc<Core<S>>,
        level: Level,
        mut job: Queued<S>,
        run: impl FnOnce(Self, Queued<S>),
    ) -> Result<(), (Queued<S>, Tags)> {
        loop {
            let tags = match Self::push_if_owned(core, level, job) {
                Ok(()) => return Ok(()),
                Err((back, tags)) => {
                    job = back;
                    tags
                }
            };
            if refusal(tags).is_some() {
                return Err((job, tags));
            }
            if let Ok(owner) = Self::acquire(core) {
                run(owner, job);
                return Ok(());
            }
        }
    }

    /// Takes ownership up again, in a drain.
    ///
    /// # Safety
    ///
    /// The caller holds the ownership, which was put down by `put_down`.
    pub(super) unsafe fn resume(core: &'a Arc<Core<S>>) -> Self {
        Self(core)
    }

    /// Puts ownership down without releasing it.
    pub(super) fn put_down(self) -> &'a Arc<Core<S>> {
        let core = self.0;
        mem::forget(self);
        core
    }

    pub(super) fn core(&self) -> &'a Arc<Core<S>> {
        self.0
    }

    /// Runs a job on this thread, now.
    #[inline]
    pub(super) fn run<R>(
        &mut self,
        job: impl FnOnce(&mut Lent<S>) -> R,
    ) -> Result<R, Box<dyn Any + Send>> {
        let mut lent = self.lent();
        catch_unwind(AssertUnwindSafe(|| job(&mut lent)))
    }

    /// What the owner lends to a job.
    #[inline]
    pub(super) fn lent(&mut self) -> Lent<S> {
        Lent(Arc::as_ptr(self.0))
    }

    /// Runs a queued job, or fails it if the state is poisoned.
    pub(super) fn run_queued(&mut self, job: Queued<S>) {
        if self.0.is_poisoned() {
            job.fail(Fault::poisoned());
        } else {
            job.run(&mut self.lent());
        }
    }

    /// The next queued job.
    pub(super) fn next(&mut self) -> Option<Queued<S>> {
        self.0.queue.next(&self.0.inbox, |_| true)
    }

    /// The next queued job, if it is not one that may wait: that one stays where it is.
    pub(super) fn next_closure(&mut self) -> Option<Queued<S>> {
        self.0.queue.next(&self.0.inbox, Queued::is_blocking)
    }

    /// Whether a job is queued. What is pushed after this, `release` sees.
    pub(super) fn has_queued(&mut self) -> bool {
        !self.0.queue.is_empty() || !self.0.inbox.peek().empty
    }

    /// Queues a job past the word: it is accepted already, by this owner, who has found nothing queued.
    pub(super) fn push_first(&mut self, level: Level, job: Queued<S>) {
        self.0.queue.comes(level);
        self.0.queue.add(job);
    }

    /// Gives the executor free, if nothing is queued.
    #[inline]
    pub(super) fn release(self) -> Result<(), Self> {
        // What the word says nearly always is not looked up.
        if self.0.queue.is_empty() && self.0.inbox.exchange_empty(OWNED, Tags::NONE).is_ok() {
            self.put_down();
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
                    // Not ours any more: what a stranger's waker does must not end this owner.
                    let core = self.put_down();
                    if seen.tags.has(CLOSED) {
                        core.released.notify_all();
                    }
                    return Ok(());
                }
                Err(actual) => seen = actual,
            }
        }
        Err(self)
    }

    /// Takes the state out.
    pub(super) fn take_state(&mut self) -> Option<S> {
        // SAFETY: the state is the owner's, and no job runs.
        self.0.state.with_mut(|state| unsafe { (*state).take() })
    }
}

impl<S> Drop for Owner<'_, S> {
    fn drop(&mut self) {
        self.end_turn(Fault::cancelled);
        loop {
            while let Some(job) = self.next() {
                job.fail(Fault::cancelled());
            }
            // Not after it: the guard may have gone by then, and with it whoever would end the pause.
            self.0.cost.pause();
            if self.orphan() {
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

/// What a job is run on: the state, lent by the owner for as long as the job runs.
pub(super) struct Lent<S>(*const Core<S>);

impl<S: 'static> JobContext for Lent<S> {}

impl<S> Lent<S> {
    pub(super) fn core(&self) -> &Core<S> {
        // SAFETY: the owner, who made this value, holds the core while the job runs.
        unsafe { &*self.0 }
    }

    /// Runs a job, under the core's [guard](Core::guard).
    #[inline]
    pub(super) fn run<R>(&mut self, job: impl FnOnce(&mut S) -> R) -> R {
        let core = self.core();
        core.guard(|| {
            core.state.with_mut(|state| {
                // SAFETY: the state is the owner's, who runs one job at a time.
                let state = unsafe { &mut *state };
                job(state.as_mut().expect(THERE))
            })
        })
    }
}

/// Why there is a state.
pub(super) const THERE: &str = "the state is taken only when no job can come";
