//! [`Shared`]: what the workers of a pool share.
//!
//! A worker is awake as long as anything is queued in its lane, so no task depends on this file: it brings other workers
//! in where one is not enough, and ends the pool. `PROTOCOL.md` argues that no worker sleeps while it is needed.

use super::keys::Keys;
use super::lane::Lane;
use super::options::{MAX_THREADS, Options};
use super::watchdog::LaneWatchdog;
use crate::inbox::FifoList;
use crate::join::RunContext;
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, AtomicBool, AtomicUsize, MODEL, Number, Ordering};
use crate::task::{Fault, Task};
use crate::timer::{self, Watchdog};
use crate::wait_queue::WaitQueue;

/// A worker searches, or was called to.
const SEARCHING: usize = 1;
/// One worker that sleeps, or is about to.
const SLEEPER: usize = 1 << 1;
/// Counts each time that a worker goes to sleep. It wraps around.
const SLEEP_ROUND: usize = SLEEPER * (MAX_THREADS + 1);

/// A backlog that takes longer is worth waking a worker for: about what a wake-up costs.
const WAKE_NS: usize = if MODEL { 1 } else { 50_000 };

pub(super) struct Shared {
    pub(super) lanes: Box<[Lane]>,
    pub(super) keys: Keys,
    pub(super) options: Options,
    /// Counts the outstanding tasks of a bounded pool.
    pub(super) semaphore: Option<Arc<Semaphore>>,
    pub(super) rejected: Number,
    /// Tasks that `shutdown_now` has dropped.
    pub(super) aborted: Number,
    /// `[ sleep_round | sleepers | SEARCHING ]`
    sleep: AtomicUsize,
    /// The lane at which the next new submitter begins.
    pub(super) next: Number,
    watchdog: LaneWatchdog,
    /// Queued tasks are to be dropped.
    aborting: AtomicBool,
    /// The parties that may hold tasks: threads that have not exited, and calls of `abort_queued`.
    threads: AtomicUsize,
    closed_waiters: WaitQueue,
    idle_waiters: WaitQueue,
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        let threads = options.threads;
        let semaphore = options.max_outstanding.map(Semaphore::new).map(Arc::new);
        Self {
            lanes: (0..threads).map(|_| Lane::new()).collect(),
            keys: Keys::new(threads),
            options,
            semaphore,
            rejected: Number::new(0),
            aborted: Number::new(0),
            sleep: AtomicUsize::new(0),
            next: Number::new(0),
            watchdog: LaneWatchdog::new(threads),
            aborting: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            closed_waiters: WaitQueue::new(),
            idle_waiters: WaitQueue::new(),
        }
    }

    /// The context in which tasks run.
    pub(super) fn context(&self) -> RunContext {
        let context = self
            .semaphore
            .clone()
            .map_or_else(RunContext::default, RunContext::releasing);
        context.on_panic(self.options.panic_handler())
    }

    #[inline]
    pub(super) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.semaphore
            .as_ref()
            .map_or(Ok(()), |semaphore| semaphore.try_acquire())
    }

    /// Acquires a permit for a task that the bound does not concern.
    pub(super) fn acquire_over_limit(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.acquire_over_limit();
        }
    }

    /// Releases the permit of a task that has not run.
    pub(super) fn release_permit(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.release();
        }
    }
}

/// Sleeping and searching.
impl Shared {
    /// Wakes a worker to steal from `lane`, where `others` tasks wait beside the stealable ones, if that is worth it and
    /// nobody searches.
    pub(super) fn share(&self, lane: usize, others: usize, published: bool) {
        if self.lanes[lane].expected_backlog(others) < WAKE_NS {
            return;
        }
        let sleep = if published {
            // Ordering: Release, after the tasks became stealable, pairs with the Acquire in `begin_sleep`; Acquire with
            // its Release. One of the two is first: this sees the sleeper, or the sleeper sees the tasks.
            self.sleep.fetch_or(0, Ordering::AcqRel)
        } else {
            self.sleep.load(Ordering::Relaxed)
        };
        if sleepers(sleep) > 0 && sleep & SEARCHING == 0 {
            self.call_to_search(lane + 1);
        }
    }

    /// Wakes a sleeping worker to search. Returns `false` if none sleeps. If one searches already, that is enough.
    #[cold]
    pub(super) fn call_to_search(&self, first: usize) -> bool {
        if !self.begin_search() {
            return true;
        }
        let lanes = self.lanes.len();
        let called = (first..first + lanes).any(|lane| self.lanes[lane % lanes].call());
        if !called {
            self.end_search();
        }
        called
    }

    /// Takes the right to search. Returns `false` if another worker has it.
    pub(super) fn begin_search(&self) -> bool {
        // Relaxed is enough: the right to search gives access to nothing.
        self.sleep.fetch_or(SEARCHING, Ordering::Relaxed) & SEARCHING == 0
    }

    pub(super) fn end_search(&self) {
        self.sleep.fetch_and(!SEARCHING, Ordering::Relaxed);
    }

    /// Counts a worker that goes to sleep. If it has searched in vain, it gives the right to search back and checks
    /// again: returns `true` if there is something to steal after all.
    pub(super) fn begin_sleep(&self, searched: bool) -> bool {
        let searcher = if searched { SEARCHING } else { 0 };
        // Ordering: AcqRel, see `share` and `is_idle`.
        self.sleep
            .fetch_add(SLEEP_ROUND + SLEEPER - searcher, Ordering::AcqRel);
        searched && self.lanes.iter().any(Lane::has_stealable) && self.begin_search()
    }

    /// Counts a worker that wakes.
    pub(super) fn end_sleep(&self) {
        // Ordering: Acquire pairs with the Release in `is_idle`: what this worker does now comes after that check.
        self.sleep.fetch_sub(SLEEPER, Ordering::Acquire);
    }

    /// Wakes the tasks that wait for the pool to be idle. Called by a worker that goes to sleep.
    pub(super) fn notify_idle(&self) {
        if self.idle_waiters.has_waiters() {
            self.idle_waiters.notify_all();
        }
    }

    /// Returns `true` if there was a moment during the call at which no task was outstanding.
    pub(super) fn is_idle(&self) -> bool {
        // All workers sleep at the first read, and the second one returns the same sleep round: so none has run in between,
        // and a task that was queued at first would still be queued when its lane or its key is checked.
        // Ordering: AcqRel. Acquire pairs with the Release in `begin_sleep`, for what the workers did; Release with the
        // Acquire in `end_sleep`: a worker that wakes after the second read does not change what the checks saw.
        let before = self.sleep.fetch_or(0, Ordering::AcqRel);
        sleepers(before) == self.lanes.len()
            && self.lanes.iter().all(Lane::is_idle)
            && self.keys.are_idle()
            && self.sleep.fetch_or(0, Ordering::AcqRel) & !SEARCHING == before & !SEARCHING
    }

    /// Waits until no task is outstanding.
    pub(super) async fn idle(&self) {
        let check = || (self.is_idle() || !self.has_threads()).then_some(());
        self.idle_waiters.wait(check).await;
    }
}

/// The timer.
impl Shared {
    /// Has the timer check the lanes from now on.
    pub(super) fn arm_watchdog(this: &Arc<Self>) {
        if this.watchdog.arm() && timer::watch(this).is_err() {
            // Without a timer, tasks may wait behind a long one.
            this.watchdog.arming_failed();
        }
    }

    pub(super) fn watchdog(&self) -> &LaneWatchdog {
        &self.watchdog
    }
}

impl Watchdog for Shared {
    fn check(&self) -> bool {
        let checked = self.watchdog.check(&self.lanes);
        if checked.needs_help && !self.call_to_search(0) {
            self.watchdog.want_help();
        }
        match checked.is_busy {
            true => self.has_threads(),
            false => !self.watchdog.disarm(&self.lanes),
        }
    }
}

/// Closing.
impl Shared {
    /// Accepts no more tasks. Queued tasks still run.
    pub(super) fn close(&self) {
        if let Some(semaphore) = &self.semaphore {
            semaphore.close();
        }
        self.lanes.iter().for_each(Lane::seal);
    }

    /// Returns `true` if the worker of a lane may exit: no task can come into its lane, and none is left for which it
    /// could be needed.
    pub(super) fn is_over(&self, lane: usize) -> bool {
        // Lanes are sealed one after the other: the seal of another lane says nothing about this one.
        self.lanes[lane].is_sealed() && !self.lanes.iter().any(Lane::has_queued)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes[0].is_sealed()
    }

    /// Closes, and drops all queued tasks. Returns their number.
    pub(super) fn abort_queued(&self) -> usize {
        let before = self.aborted.get();
        // This call holds tasks, as a thread does: the pool is not closed before they are gone.
        self.add_thread();
        // Relaxed is enough: a worker that does not see it yet runs some more tasks.
        self.aborting.store(true, Ordering::Relaxed);
        self.close();
        for (list, _) in self.lanes.iter().flat_map(Lane::take_all) {
            self.drop_all(list);
        }
        for lane in &self.lanes {
            self.drop_all(lane.pinned().take());
        }
        self.keys.take_all().for_each(|list| self.drop_all(list));
        let aborted = self.aborted.get().wrapping_sub(before);
        self.remove_thread();
        aborted
    }

    #[inline]
    pub(super) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::Relaxed)
    }

    fn drop_all(&self, mut tasks: FifoList<Task<RunContext>>) {
        while let Some(task) = tasks.pop_front() {
            self.drop_task(task);
        }
    }

    /// Drops a task without running it.
    pub(super) fn drop_task(&self, task: Task<RunContext>) {
        // First, as when a task ends: a caller that sees the outcome finds the permit released.
        self.release_permit();
        if task.fail(Fault::cancelled()) {
            self.aborted.add(1);
        }
    }

    /// Reverses what `drop_task` has counted, for a task that was not submitted.
    pub(super) fn uncount_dropped(&self) {
        self.aborted.subtract(1);
        self.acquire_over_limit();
    }

    /// Counts a thread that is about to be created.
    pub(super) fn add_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a thread that exits, or that was not created.
    pub(super) fn remove_thread(&self) {
        // Ordering: Release, and Acquire in `closed`: what the threads did comes before the end.
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.closed_waiters.notify_all();
            self.idle_waiters.notify_all();
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }

    /// Waits until the pool is closed and all of its tasks have ended.
    pub(super) async fn closed(&self) {
        // Ordering: Acquire pairs with the Release in `remove_thread`.
        let check = || (self.threads.load(Ordering::Acquire) == 0).then_some(());
        self.closed_waiters.wait(check).await;
    }
}

/// The number of workers that sleep.
fn sleepers(sleep: usize) -> usize {
    sleep / SLEEPER % (MAX_THREADS + 1)
}
