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
//!   that is the owner. Handing over changes the thread, not the word.
//! - *Every accepted job is seen by an owner.* It was pushed while `OWNED` was set or by the push
//!   that set it, and that owner cannot release before it has taken it.
//! - *Jobs run in the order of their successful pushes.* The owner runs its queue, which it took
//!   earlier, before it takes again; and a job runs inline only when nothing is queued.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::builder::{OnPanic, Options};
use super::metrics::Counters;
use crate::inbox::{Batch, Chain, Inbox, Seen, Tags};
use crate::sync::{Arc, Notify, UnsafeCell};
use crate::task::{Fault, Lend, Task};
use crate::unwind::contain;

pub(super) const OWNED: Tags = Tags::bit(0);
pub(super) const CLOSED: Tags = Tags::bit(1);
pub(super) const POISONED: Tags = Tags::bit(2);

/// A queued job.
pub(super) type Queued<S> = Task<Lent<S>>;

/// What all handles of an executor share.
pub(super) struct Core<S> {
    inbox: Inbox<Queued<S>>,
    /// The owner's. `None` once it was taken out.
    state: UnsafeCell<Option<S>>,
    /// The owner's: what it has taken from the inbox and not yet run.
    queue: UnsafeCell<Chain<Queued<S>>>,
    pub(super) options: Options,
    pub(super) counters: Counters,
    /// Told when a closed executor is released.
    pub(super) released: Notify,
}

// SAFETY: state and queue are accessed by the owner only, one thread at a time, and both may move
// between threads.
unsafe impl<S: Send> Send for Core<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Core<S> {}

impl<S> Core<S> {
    pub(super) fn new(state: S, options: Options) -> Self {
        Self {
            inbox: Inbox::new(),
            state: UnsafeCell::new(Some(state)),
            queue: UnsafeCell::new(Chain::new()),
            options,
            counters: Counters::default(),
            released: Notify::new(),
        }
    }

    /// Refuses jobs from now on.
    pub(super) fn close(&self) {
        self.inbox.retag(CLOSED, Tags::NONE);
        contain(|| self.released.notify_waiters());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inbox.peek().tags.has(CLOSED)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.inbox.peek().tags.has(POISONED)
    }

    pub(super) fn clear_poison(&self) -> bool {
        self.inbox.retag(Tags::NONE, POISONED).tags.has(POISONED)
    }

    pub(super) fn is_owned(&self) -> bool {
        self.inbox.peek().tags.has(OWNED)
    }

    fn panicked(&self) {
        self.counters.panics.add(1);
        if self.options.on_panic == OnPanic::Poison {
            self.inbox.retag(POISONED, Tags::NONE);
        }
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
    pub(super) fn acquire(core: &'a Arc<Core<S>>) -> Result<Self, Seen> {
        core.inbox.exchange_empty(Tags::NONE, OWNED)?;
        Ok(Self(core))
    }

    /// Acquires an executor that is closed and idle.
    pub(super) fn acquire_closed(core: &'a Arc<Core<S>>) -> Result<Self, Seen> {
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

    /// Queues a job, and acquires the executor if nobody owns it.
    pub(super) fn push(core: &'a Arc<Core<S>>, job: Queued<S>) -> Result<Pushed<'a, S>, Fault> {
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            refusal(seen.tags).is_none().then(|| seen.tags.with(OWNED))
        });
        match pushed {
            Ok(seen) if seen.tags.has(OWNED) => Ok(Pushed::Queued),
            Ok(_) => Ok(Pushed::Acquired(Self(core))),
            Err(refused) => Err(fail(refused.batch, refused.seen.tags)),
        }
    }

    /// Queues a job if somebody owns the executor, or if the executor refuses it; else hands the job
    /// back.
    pub(super) fn push_if_owned(core: &'a Arc<Core<S>>, job: Queued<S>) -> Result<(), Queued<S>> {
        let pushed = core.inbox.push(Batch::of(job), |seen| {
            (seen.tags.has(OWNED) && refusal(seen.tags).is_none()).then_some(seen.tags)
        });
        match pushed {
            Ok(_) => Ok(()),
            Err(refused) if refusal(refused.seen.tags).is_some() => {
                fail(refused.batch, refused.seen.tags);
                Ok(())
            }
            Err(refused) => match refused.batch.into_chain().pop_front() {
                Some(job) => Err(job),
                None => Ok(()),
            },
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
        job: impl FnOnce(&mut S) -> R,
    ) -> Result<R, Box<dyn Any + Send>> {
        let mut lent = Lent(Arc::as_ptr(self.0));
        catch_unwind(AssertUnwindSafe(|| lent.run(job)))
    }

    /// Runs a queued job, or fails it if the state is poisoned.
    pub(super) fn run_queued(&mut self, job: Queued<S>) {
        if self.0.is_poisoned() {
            job.fail(Fault::poisoned());
        } else {
            job.run(&mut Lent(Arc::as_ptr(self.0)));
        }
    }

    /// The next queued job.
    pub(super) fn next(&mut self) -> Option<Queued<S>> {
        self.with_queue(|queue, inbox| {
            if queue.is_empty() {
                *queue = inbox.take();
            }
            queue.pop_front()
        })
    }

    /// Whether a job is queued. What is pushed after this, `release` sees.
    pub(super) fn has_queued(&mut self) -> bool {
        self.with_queue(|queue, inbox| !queue.is_empty() || !inbox.peek().empty)
    }

    /// Queues a job behind the others, past the word: it is accepted already.
    pub(super) fn push_back(&mut self, job: Queued<S>) {
        self.with_queue(|queue, _| queue.push_back(job));
    }

    /// Gives the executor free, if nothing is queued.
    #[inline]
    pub(super) fn release(mut self) -> Result<(), Self> {
        let mut seen = self.0.inbox.peek();
        while seen.empty && self.with_queue(|queue, _| queue.is_empty()) {
            match self
                .0
                .inbox
                .exchange_empty(seen.tags, seen.tags.without(OWNED))
            {
                Ok(()) => {
                    // Not ours any more: a stranger's waker that panics must not end this owner.
                    let core = self.put_down();
                    if seen.tags.has(CLOSED) {
                        contain(|| core.released.notify_waiters());
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

    fn with_queue<R>(
        &mut self,
        f: impl FnOnce(&mut Chain<Queued<S>>, &Inbox<Queued<S>>) -> R,
    ) -> R {
        self.0
            .queue
            // SAFETY: the queue is the owner's, and `f` does not reach it otherwise: none runs jobs.
            .with_mut(|queue| f(unsafe { &mut *queue }, &self.0.inbox))
    }
}

impl<S> Drop for Owner<'_, S> {
    fn drop(&mut self) {
        loop {
            while let Some(job) = self.next() {
                job.fail(Fault::cancelled());
            }
            match Self(self.0).release() {
                Ok(()) => return,
                Err(owner) => mem::forget(owner),
            }
        }
    }
}

/// Fails the one job of a batch that was refused, and says why again.
fn fail<S>(batch: Batch<Queued<S>>, tags: Tags) -> Fault {
    let why = || refusal(tags).unwrap_or_else(Fault::closed);
    if let Some(job) = batch.into_chain().pop_front() {
        job.fail(why());
    }
    why()
}

/// What a job is run on: the state, lent by the owner for as long as the job runs.
pub(super) struct Lent<S>(*const Core<S>);

impl<S: 'static> Lend for Lent<S> {}

impl<S> Lent<S> {
    /// Runs a job; if it panics, poisons the state before the panic goes on, so that whoever is told
    /// of the panic finds the state poisoned.
    #[inline]
    pub(super) fn run<R>(&mut self, job: impl FnOnce(&mut S) -> R) -> R {
        struct Panicked<'a, S>(&'a Core<S>);
        impl<S> Drop for Panicked<'_, S> {
            fn drop(&mut self) {
                self.0.panicked();
            }
        }

        // SAFETY: the owner, who made this value, holds the core while the job runs.
        let panicked = Panicked(unsafe { &*self.0 });
        let output = panicked.0.state.with_mut(|state| {
            // SAFETY: the state is the owner's, who runs one job at a time.
            let state = unsafe { &mut *state };
            job(state
                .as_mut()
                .expect("the state is taken only when no job can come"))
        });
        mem::forget(panicked);
        output
    }
}
