//! What the workers of a pool share: their lanes, who rests and who searches, and the end.
//!
//! What is queued in a lane is the business of its worker, which is awake as long as there is
//! anything: no task depends on what is here. What is here brings others in when one worker is not
//! enough. `PROTOCOL.md` argues that nobody sleeps while something is to be done.

use super::builder::Options;
use super::keyed::Keys;
use super::lane::Lane;
use super::watchdog::WatchdogState;
use crate::inbox::FifoList;
use crate::join::RunContext;
use crate::semaphore::Semaphore;
use crate::sync::{Arc, AtomicBool, AtomicUsize, MODEL, Number, Ordering};
use crate::task::{Fault, Task};
use crate::wait_queue::WaitQueue;

/// In `rest`: somebody searches, or has been called to.
const SEARCHING: usize = 1;
/// In `rest`: one worker that sleeps, or is about to.
const RESTING: usize = 2;

/// Work that takes longer than this is worth waking somebody for: about what that takes.
const WAKE_NS: usize = if MODEL { 1 } else { 50_000 };
/// How long a task is taken to run before the first has: long enough to call for help.
const PACE_AT_FIRST: usize = 10_000;

pub(super) struct Shared {
    pub(super) lanes: Box<[Lane]>,
    pub(super) keys: Keys,
    pub(super) options: Options,
    /// Counts the tasks, in a bounded pool.
    pub(super) room: Option<Arc<Semaphore>>,
    pub(super) rejected: Number,
    /// Tasks that a shutdown has dropped.
    pub(super) dropped: Number,
    /// `[ workers that sleep | SEARCHING ]`
    rest: AtomicUsize,
    /// Where the next thread that is new here begins to push.
    pub(super) next: Number,
    pub(super) watchdog: WatchdogState,
    /// Queued tasks are to be dropped.
    cancelling: AtomicBool,
    /// Who may have tasks in hand: threads that have not ended, and who is in `cancel`.
    threads: AtomicUsize,
    terminated: WaitQueue,
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        let threads = options.threads;
        Self {
            lanes: (0..threads).map(|_| Lane::new(PACE_AT_FIRST)).collect(),
            keys: Keys::new(threads),
            room: options
                .capacity
                .map(|tasks| Arc::new(Semaphore::new(tasks))),
            options,
            rejected: Number::new(0),
            dropped: Number::new(0),
            rest: AtomicUsize::new(0),
            next: Number::new(0),
            watchdog: WatchdogState::new(threads),
            cancelling: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            terminated: WaitQueue::new(),
        }
    }

    /// What tasks are run on.
    pub(super) fn context(&self) -> RunContext {
        let context = self
            .room
            .clone()
            .map_or_else(RunContext::default, RunContext::releasing);
        context.on_panic(self.options.panic_handler())
    }
}

/// Who rests, and who searches.
impl Shared {
    /// Wakes somebody to steal from `lane`, where so many `tasks` wait beside the surplus, if that is
    /// worth it and nobody is about to.
    pub(super) fn share(&self, lane: usize, tasks: usize, published: bool) {
        if self.lanes[lane].outlook(tasks) < WAKE_NS {
            return;
        }
        let rest = if published {
            // Ordering: Release, with the surplus before it, pairs with the Acquire in `park`; Acquire
            // with its Release. Whichever comes first, we see who sleeps, or he sees the surplus.
            self.rest.fetch_or(0, Ordering::AcqRel)
        } else {
            self.rest.load(Ordering::Relaxed)
        };
        if rest >= RESTING && rest & SEARCHING == 0 {
            self.call_searcher(lane + 1);
        }
    }

    /// Wakes one who sleeps, to search; `false`: nobody sleeps. If somebody searches already, that is
    /// enough.
    #[cold]
    pub(super) fn call_searcher(&self, first: usize) -> bool {
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

    /// Takes the right to search; `false`: somebody has it.
    pub(super) fn begin_search(&self) -> bool {
        // Relaxed: the right to search gives access to nothing.
        self.rest.fetch_or(SEARCHING, Ordering::Relaxed) & SEARCHING == 0
    }

    pub(super) fn end_search(&self) {
        self.rest.fetch_and(!SEARCHING, Ordering::Relaxed);
    }

    /// Counts a worker that lies down. If it has searched in vain, it gives the right to do so back,
    /// and looks again: `true` if there is something to steal after all.
    pub(super) fn park(&self, searched: bool) -> bool {
        let change = if searched {
            RESTING - SEARCHING
        } else {
            RESTING
        };
        // Ordering: AcqRel, see `share`.
        self.rest.fetch_add(change, Ordering::AcqRel);
        searched && self.lanes.iter().any(Lane::has_surplus) && self.begin_search()
    }

    /// A worker gets up.
    pub(super) fn unpark(&self) {
        self.rest.fetch_sub(RESTING, Ordering::Relaxed);
    }
}

/// The end.
impl Shared {
    /// Accepts nothing from now on. What is queued still runs.
    pub(super) fn close(&self) {
        if let Some(room) = &self.room {
            room.close();
        }
        self.lanes.iter().for_each(Lane::seal);
    }

    /// Whether the worker of a lane may end: nothing can come into its lane any more, and there is nothing
    /// left that it could be needed for.
    pub(super) fn is_over(&self, lane: usize) -> bool {
        // Lanes are sealed one after the other: that another one is says nothing.
        self.lanes[lane].is_sealed() && !self.lanes.iter().any(Lane::has_queued)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes[0].is_sealed()
    }

    /// Closes, and drops what is queued; says how many tasks that were.
    pub(super) fn cancel(&self) -> usize {
        let before = self.dropped.get();
        // As a thread, it has tasks in hand: the pool has not terminated before they are gone.
        self.add_thread();
        // Relaxed is enough: who does not see it yet runs some more.
        self.cancelling.store(true, Ordering::Relaxed);
        self.close();
        for (chain, _) in self.lanes.iter().flat_map(Lane::clear) {
            self.drop_all(chain);
        }
        self.keys.cancel(self);
        let dropped = self.dropped.get().wrapping_sub(before);
        self.remove_thread();
        dropped
    }

    #[inline]
    pub(super) fn is_cancelling(&self) -> bool {
        self.cancelling.load(Ordering::Relaxed)
    }

    /// Drops tasks unrun.
    pub(super) fn drop_all(&self, mut chain: FifoList<Task<RunContext>>) {
        while let Some(task) = chain.pop_front() {
            self.drop_one(task);
        }
    }

    pub(super) fn drop_one(&self, task: Task<RunContext>) {
        // First, as at the end of a task that runs: who learns of it finds its place free.
        self.leave();
        if task.fail(Fault::cancelled()) {
            self.dropped.add(1);
        }
    }

    /// Takes back what `drop_one` did for what nobody has submitted.
    pub(super) fn retract(&self) {
        self.dropped.subtract(1);
        if let Some(room) = &self.room {
            room.acquire_over_limit();
        }
    }

    /// Gives the place of a task back that has not run.
    pub(super) fn leave(&self) {
        if let Some(room) = &self.room {
            room.release();
        }
    }

    /// Counts a thread that is to be created.
    pub(super) fn add_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread ends, or was not created.
    pub(super) fn remove_thread(&self) {
        // Ordering: Release, and Acquire in `terminated`: what the threads did comes before the end.
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.terminated.notify_all();
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }

    pub(super) async fn terminated(&self) {
        // Ordering: Acquire pairs with the Release in `remove_thread`.
        let look = || (self.threads.load(Ordering::Acquire) == 0).then_some(());
        self.terminated.wait(look).await;
    }
}
