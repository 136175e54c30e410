//! [`Shared`]: what all handles and all threads of a pool share.

use std::num::NonZeroUsize;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::metrics::Metrics;
use super::options::Options;
use super::parker::wake;
use super::samples::Sample;
use super::state::State;
use crate::inbox::{Batch, Inbox, Tags};
use crate::join::{Closed, RunContext};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, Mutex, MutexGuard, Weak, cyclic, lock};
use crate::task::{Fault, Task};
use crate::wait_queue::WaitQueue;

/// The state that all handles and all threads of a pool share.
pub(super) struct Shared {
    pub(super) options: Options,
    /// The pool itself, for the timer, which has no other reference to it.
    pub(super) this: Weak<Self>,
    /// Counts the tasks that are accepted and have not ended, if there is a bound.
    semaphore: Option<Semaphore>,
    /// Tasks that were accepted without the lock.
    ///
    /// The inbox is *open* while a task needs nothing but to be queued (`State::needs_only_queue`). Only the holder of
    /// the lock opens and closes it.
    inbox: Padded<Inbox<Task<RunContext>>>,
    state: Padded<Mutex<State>>,
    /// Notified when the pool is closed, when it is idle, and when it has terminated.
    changes: WaitQueue,
}

/// A value in cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

// No user code runs under the lock or while the inbox changes, so a panic of user code cannot leave a partial change.
impl<T> UnwindSafe for Padded<T> {}
impl<T> RefUnwindSafe for Padded<T> {}

/// The inbox is open.
const OPEN: Tags = Tags::bit(0);

impl Shared {
    pub(super) fn new(options: Options) -> Arc<Self> {
        let limits = options.limits.clone();
        let capacity = options.queue_capacity;
        let semaphore =
            capacity.map(|tasks| Semaphore::new(tasks.saturating_add(limits.max_threads)));
        cyclic(|this| Self {
            options,
            this,
            semaphore,
            inbox: Padded(Inbox::new()),
            state: Padded(Mutex::new(State::new(limits))),
            changes: WaitQueue::new(),
        })
    }

    /// Locks the state, and closes the inbox: until the lock is released, all tasks are in the queue.
    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        self.close_inbox(&mut state);
        state
    }

    /// Locks the state without closing the inbox. The caller closes it before a queued task needs a new or woken thread.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state.0)
    }

    /// Identifies the pool, for as long as it has a task.
    pub(super) fn id(this: &Arc<Self>) -> NonZeroUsize {
        let address = std::ptr::from_ref::<Self>(this).addr();
        NonZeroUsize::new(address).expect("no reference is null")
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut state = self.lock();
        self.empty_inbox(&mut state);
        Metrics {
            queue_capacity: self.options.queue_capacity.map(|tasks| tasks as u64),
            ..state.metrics()
        }
    }

    // ===== The inbox =====

    /// Queues a task without the lock. Returns it if the inbox is closed.
    #[inline]
    pub(super) fn try_push(&self, task: Task<RunContext>) -> Result<(), Batch<Task<RunContext>>> {
        let if_open = |tags: Tags| tags.has(OPEN).then_some(tags);
        let pushed = self
            .inbox
            .0
            .push(Batch::of(task), |head| if_open(head.tags));
        match pushed {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.batch),
        }
    }

    /// Moves the tasks of the inbox to the queue.
    #[inline]
    pub(super) fn empty_inbox(&self, state: &mut State) {
        let (mut tasks, count) = self.inbox.0.detach().take_newest(usize::MAX);
        state.push_untimed(&mut tasks, count);
    }

    #[inline]
    pub(super) fn close_inbox(&self, state: &mut State) {
        if state.set_open(false) {
            // Closes the inbox first, so that a later push fails.
            self.inbox.0.retag(Tags::NONE, OPEN);
            self.empty_inbox(state);
        }
    }

    /// Opens the inbox if a task needs nothing but to be queued.
    #[inline]
    pub(super) fn open_inbox(&self, state: &mut State) {
        if state.needs_only_queue() && !state.set_open(true) {
            self.inbox.0.retag(OPEN, Tags::NONE);
        }
    }

    /// Takes the next task, for the calling thread to run. Closes the inbox if there is none.
    #[inline]
    pub(super) fn pop(&self, state: &mut State) -> Option<(Task<RunContext>, Option<Sample>)> {
        if !state.has_queued() {
            self.empty_inbox(state);
        }
        if !state.has_queued() {
            self.close_inbox(state);
        }
        state.pop()
    }

    // ===== Permits =====

    /// Acquires a permit for a task, if the pool is bounded.
    #[inline]
    pub(super) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.semaphore
            .as_ref()
            .map_or(Ok(()), Semaphore::try_acquire)
    }

    /// Acquires a permit even if that exceeds the limit.
    pub(super) fn acquire_over_limit(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.acquire_over_limit();
        }
    }

    /// Waits for a permit, if the pool is bounded.
    pub(super) async fn acquire(&self) -> Result<(), Closed> {
        match &self.semaphore {
            // Waiting fails only if the semaphore is closed.
            Some(semaphore) => semaphore.acquire().await.map_err(|_| Closed::new(())),
            None if self.is_closed() => Err(Closed::new(())),
            None => Ok(()),
        }
    }

    #[inline]
    pub(super) fn release(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.release();
        }
    }

    /// Changes the bound. Waiters are notified separately, without the lock of the state.
    pub(super) fn set_permits(&self, max_threads: usize) {
        if let (Some(semaphore), Some(capacity)) = (&self.semaphore, self.options.queue_capacity) {
            semaphore.set_limit(capacity.saturating_add(max_threads));
        }
    }

    pub(super) fn notify_waiters(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.notify_all();
        }
    }

    // ===== Tasks that do not run =====

    /// Counts tasks that were not accepted.
    pub(super) fn reject(&self, count: usize) {
        self.lock().totals().rejected += count as u64;
    }

    /// A queued task was cancelled, and its captures are dropped.
    #[cold]
    pub(super) fn cancelled(&self) {
        self.release();
        let mut state = self.state();
        state.add_cancelled();
        state.count_cancelled();
        let swept = state.sweep();
        self.unlock(state);
        drop(swept);
    }

    /// Cancels the task that has waited longest, and acquires a permit for another in its place. Returns `false` if
    /// no task waits.
    ///
    /// The permit is acquired over the limit. If it had to be one that was released, another caller might be faster,
    /// and this one would have to cancel the next task, and so on.
    pub(super) fn replace_oldest(&self) -> bool {
        loop {
            let oldest = self.state().pop_to_cancel();
            let Some(oldest) = oldest else { return false };
            self.acquire_over_limit();
            if oldest.fail(Fault::cancelled()) {
                return true;
            }
            // The task was aborted meanwhile, which released its permit to any other task.
            self.release();
        }
    }

    /// Ends all tasks that are queued, and releases the lock. Returns how many were not aborted before.
    pub(super) fn fail_queued(
        &self,
        mut state: MutexGuard<'_, State>,
        fault: impl Fn() -> Fault,
    ) -> usize {
        let mut queued = state.pop_all_to_cancel();
        self.unlock(state);
        let tasks = std::iter::from_fn(|| queued.pop_front());
        tasks
            .map(|task: Task<_>| task.fail(fault()))
            .filter(|failed| *failed)
            .count()
    }

    // ===== The end =====

    /// Accepts no more tasks. Threads exit when everything that is queued has run.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.close();
        let woken = state.wake_all();
        drop(state);
        wake(woken);
        if let Some(semaphore) = &self.semaphore {
            semaphore.close();
        }
        self.changes.notify_all();
    }

    /// Aborts all queued tasks, and has bulkheads abort theirs. Returns how many were queued.
    pub(super) fn abort_queued(&self) -> usize {
        let mut state = self.state();
        state.set_aborted();
        self.fail_queued(state, Fault::cancelled)
    }

    /// Releases the lock, and notifies futures that wait for the state that has been reached.
    pub(super) fn unlock(&self, state: MutexGuard<'_, State>) {
        let must_notify = state.is_terminated() || state.must_notify_idle();
        drop(state);
        if must_notify {
            self.changes.notify_all();
        }
    }

    /// Waits until the pool is closed.
    pub(super) async fn close_begins(&self) {
        self.wait_for(State::is_closed).await;
    }

    /// Waits until the pool is closed and its last thread has exited.
    pub(super) async fn closed(&self) {
        self.wait_for(State::is_terminated).await;
    }

    /// Waits until no task is queued or runs.
    pub(super) async fn idle(&self) {
        let _waiter = IdleWaiter::new(self);
        self.wait_for(State::is_idle).await;
    }

    async fn wait_for(&self, condition: impl Fn(&State) -> bool) {
        let look = || condition(&self.state()).then_some(());
        self.changes.wait(look).await;
    }
}

/// A future that waits until the pool is idle: without one, threads do not notify.
struct IdleWaiter<'a>(&'a Shared);

impl<'a> IdleWaiter<'a> {
    fn new(shared: &'a Shared) -> Self {
        *shared.state().idle_waiters() += 1;
        Self(shared)
    }
}

impl Drop for IdleWaiter<'_> {
    fn drop(&mut self) {
        *self.0.state().idle_waiters() -= 1;
    }
}
