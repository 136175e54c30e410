//! The threads of a pool: how they are created, take tasks, wait, and exit.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Instant;

use super::options::Limits;
use super::parker::{Parker, wake};
use super::runtime;
use super::samples::{Sample, Times};
use super::shared::Shared;
use super::state::State;
use super::stopwatch::Stopwatch;
use super::waits::Wait;
use crate::join::{PoolThread, RunContext, RunCounts, enter_pool};
use crate::sync::{Arc, MutexGuard, thread};
use crate::task::{Abort, Fault, Ran, Task, flush};
use crate::timer::{self, Tick};

/// The number of threads that a starting thread creates before it runs a task, so that they double.
const CREATED_BY_ONE: usize = 2;

/// The lock of the state, which was released meanwhile, and the error if no thread was created.
pub(super) type Started<'a> = Result<MutexGuard<'a, State>, (MutexGuard<'a, State>, io::Error)>;

// ===== Creation =====

impl Shared {
    /// Creates a thread. The lock is released meanwhile, since that takes long.
    pub(super) fn start_thread<'a>(
        this: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> Started<'a> {
        let number = state.begin_start();
        drop(state);
        let started = spawn_thread(this, number);
        let mut state = this.state();
        match started {
            Ok(()) => Ok(state),
            Err(error) => {
                state.refused();
                Err((state, error))
            }
        }
    }

    /// Creates threads that are needed, on behalf of a thread that exists.
    pub(super) fn grow<'a>(
        this: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        for _ in 0..CREATED_BY_ONE {
            if !state.must_start(usize::MAX, 0, &this.options) {
                break;
            }
            state = Self::start_or_fail_queued(this, state);
        }
        match state.arm(&this.options) {
            None => state,
            due => {
                drop(state);
                Self::arm(this, due);
                this.state()
            }
        }
    }

    /// Creates core threads that are missing, and returns their number.
    pub(super) fn prestart(this: &Arc<Self>) -> io::Result<usize> {
        let mut state = this.state();
        // Threads that exit meanwhile are not replaced: a keep-alive may be shorter than all this takes.
        let missing = state.missing_core();
        for started in 0..missing {
            if state.missing_core() == 0 {
                return Ok(started);
            }
            state = match Self::start_thread(this, state) {
                Ok(state) => state,
                Err((state, error)) => {
                    let mut state = Self::fail_queued_if_alone(this, state, &error);
                    // Tasks that were queued for the refused thread wait for those that exist.
                    let due = state.arm(&this.options);
                    drop(state);
                    Self::arm(this, due);
                    return Err(error);
                }
            };
        }
        Ok(missing)
    }

    /// Changes the limits. Idle threads wake to apply them.
    pub(super) fn set_limits(this: &Arc<Self>, change: impl FnOnce(&mut Limits)) -> io::Result<()> {
        let mut state = this.state();
        let mut limits = state.limits().clone();
        change(&mut limits);
        limits.check()?;
        this.set_permits(limits.max_threads);
        state.set_limits(limits);
        let woken = state.wake_all();
        drop(Self::grow(this, state));
        wake(woken);
        this.notify_waiters();
        Ok(())
    }

    /// Arms the timer for this pool, whose state requires it.
    pub(super) fn arm(this: &Arc<Self>, due: Option<Instant>) {
        let Some(due) = due else { return };
        if timer::arm(due, this).is_err() {
            // The system refuses the timer its thread, and would refuse the pool one. The next task tries again.
            this.state().disarm();
        }
    }

    fn start_or_fail_queued<'a>(
        this: &'a Arc<Self>,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        match Self::start_thread(this, state) {
            Ok(state) => state,
            Err((state, error)) => Self::fail_queued_if_alone(this, state, &error),
        }
    }

    /// If there is no thread at all, rejects the tasks that were queued for the refused one.
    fn fail_queued_if_alone<'a>(
        this: &'a Arc<Self>,
        state: MutexGuard<'a, State>,
        error: &io::Error,
    ) -> MutexGuard<'a, State> {
        if state.is_staffed() {
            return state;
        }
        this.fail_queued(state, || Fault::rejected(again(error)));
        this.state()
    }
}

impl Tick for Shared {
    fn tick(&self, _: Instant) -> Option<Instant> {
        let this = self.this.upgrade()?;
        let mut state = this.state();
        for _ in 0..state.tick(&self.options) {
            state = Self::start_or_fail_queued(&this, state);
        }
        let due = state.due(&self.options);
        if due.is_none() {
            state.disarm();
        }
        due
    }
}

/// Creates a thread that was counted as starting.
fn spawn_thread(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{number}", shared.options.name));
    if let Some(bytes) = shared.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    let shared = Arc::clone(shared);
    builder.spawn(move || run_thread(&shared, number)).map(drop)
}

/// The same error once more.
pub(super) fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

// ===== Life =====

fn run_thread(shared: &Arc<Shared>, number: usize) {
    runtime::start_thread(shared.options.runtime.clone());
    let host = Rc::new(WorkerHost::new(shared, number));
    let in_pool = enter_pool(Rc::clone(&host) as Rc<dyn PoolThread>);
    BlockingWorker::new(shared, &host).take_tasks();
    runtime::enter(runtime::TaskRuntime::Pool, false);
    shared.options.on_thread_stop.call();
    drop(in_pool);
    runtime::end_thread();
    let mut state = shared.state();
    host.unblock(&mut state);
    state.end_exit(&host.counts);
    shared.unlock(state);
}

/// A thread of a pool, while it is counted among those of the pool.
struct BlockingWorker<'a> {
    shared: &'a Arc<Shared>,
    host: &'a WorkerHost,
    context: RunContext,
    parker: Arc<Parker>,
    stopwatch: Stopwatch,
}

impl<'a> BlockingWorker<'a> {
    fn new(shared: &'a Arc<Shared>, host: &'a WorkerHost) -> Self {
        Self {
            shared,
            host,
            context: host.run_context(),
            parker: Arc::new(Parker::new()),
            stopwatch: Stopwatch::new(),
        }
    }

    /// Takes tasks until the thread is no longer counted.
    fn take_tasks(mut self) {
        let mut state = self.begin();
        self.stopwatch = Stopwatch::new();
        // Checked before each task: a thread beyond the maximum takes none, even if it was just created or woken.
        while !state.has_excess_thread() {
            if let Some((task, sample)) = self.shared.pop(&mut state) {
                state = self.run(state, task, sample);
                continue;
            }
            self.end_lap(&mut state);
            if state.is_closed() {
                break;
            }
            let Some(woken) = self.wait(state) else {
                return;
            };
            state = woken;
            state.thread_waited(self.stopwatch.restart());
        }
        self.end_lap(&mut state);
        // A thread that is one too many exits while others may run tasks that have become long.
        self.shared.close_inbox(&mut state);
        state.begin_exit();
        let woken = state.wake_some();
        self.shared.unlock(state);
        wake(woken.into_iter().flatten());
    }

    /// Helps to create threads, and runs the hook.
    fn begin(&self) -> MutexGuard<'a, State> {
        let mut state = self.shared.state();
        state.begin_hook(&self.host.counts);
        state = Shared::grow(self.shared, state);
        if self.shared.options.on_thread_start.is_set() {
            drop(state);
            self.shared.options.on_thread_start.call();
            state = self.shared.state();
            self.host.unblock(&mut state);
        }
        state.end_start();
        state
    }

    /// Runs a task without the lock, after waking other threads if there is more to do.
    fn run(
        &mut self,
        mut state: MutexGuard<'a, State>,
        task: Task<RunContext>,
        sample: Option<Sample>,
    ) -> MutexGuard<'a, State> {
        if !state.needs_only_queue() {
            // Tasks are long now, so each one is timed.
            self.shared.close_inbox(&mut state);
        }
        if state.must_wake() {
            self.unlock_and_wake(state);
        } else {
            self.shared.open_inbox(&mut state);
            drop(state);
        }
        let timed = sample.map(|sample| (sample, self.stopwatch.start()));
        self.host.counts.begin();
        let ran = task.run(&mut self.context);
        self.host.counts.end();
        let times = self.stop(timed);
        let mut state = self.shared.lock();
        self.host.unblock(&mut state);
        state.lap_ended(self.stopwatch.take_lap());
        if ran == Ran::Cancelled {
            // The canceller has counted it.
            state.remove_cancelled();
            return state;
        }
        state.task_ended(times);
        if self.context.take_found_aborted() {
            state.count_cancelled();
        }
        state
    }

    /// Releases the lock, and wakes the threads for which there is more to do.
    #[inline(never)]
    fn unlock_and_wake(&self, mut state: MutexGuard<'_, State>) {
        let woken = state.wake_some();
        self.shared.open_inbox(&mut state);
        drop(state);
        wake(woken.into_iter().flatten());
    }

    /// Stops the time of a task, if it is timed.
    #[inline]
    fn stop(&mut self, timed: Option<(Sample, Instant)>) -> Option<Times> {
        let Some((sample, started)) = timed else {
            self.stopwatch.skip();
            return None;
        };
        let ended = self.stopwatch.end();
        Some(Times {
            sample,
            started,
            ended,
        })
    }

    /// Ends the current lap, and records it.
    fn end_lap(&mut self, state: &mut State) {
        self.stopwatch.end_lap();
        state.lap_ended(self.stopwatch.take_lap());
    }

    /// Waits for a task, and returns with the lock; `None` if the keep-alive has passed without a task, and the thread
    /// is no longer counted. The stopwatch was read just now.
    fn wait(&self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        let (shared, parker) = (self.shared, &self.parker);
        let keep_alive = state.keep_alive();
        let mut deadline = keep_alive.and_then(|time| self.stopwatch.time().checked_add(time));
        parker.prepare();
        state.park(parker);
        shared.unlock(state);
        // An idle thread holds back no memory that other threads have allocated.
        flush();
        loop {
            let woken = parker.park(deadline);
            let mut state = shared.state();
            // The thread that wakes this one decides so under the lock: look there, and not at the clock.
            if woken || !state.is_parked(parker) || state.has_queued() || state.is_closed() {
                state.unpark(parker);
                return Some(state);
            }
            if state.keep_alive().is_some() {
                state.unpark(parker);
                state.begin_exit();
                shared.unlock(state);
                return None;
            }
            // The core threads are too few without this one.
            deadline = None;
        }
    }
}

// ===== Waits inside tasks =====

/// A thread of a pool, as its tasks see it.
struct WorkerHost {
    shared: Arc<Shared>,
    /// The number of the thread.
    number: usize,
    counts: Arc<RunCounts>,
    /// The address of the task that the running task has waited for last, if any. The state keeps that task, so the
    /// address is not used again.
    awaited: Cell<Option<NonZeroUsize>>,
}

impl WorkerHost {
    fn new(shared: &Arc<Shared>, number: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            number,
            counts: Arc::default(),
            awaited: Cell::new(None),
        }
    }

    /// The task that may have waited has ended.
    fn unblock(&self, state: &mut State) {
        if self.awaited.take().is_some() {
            state.unblock(self.number);
        }
    }
}

impl PoolThread for WorkerHost {
    fn pool_id(&self) -> NonZeroUsize {
        Shared::id(&self.shared)
    }

    fn run_context(&self) -> RunContext {
        RunContext::default().counting(Arc::clone(&self.counts))
    }

    fn prepare_to_wait(&self, awaited: Abort, must_compensate: bool) -> bool {
        let address = awaited.address();
        if self.awaited.get() == Some(address) {
            return true;
        }
        let mut state = self.shared.state();
        let may_wait = state.block(Wait {
            thread: self.number,
            awaited,
            must_compensate,
        });
        if may_wait {
            self.awaited.set(Some(address));
            drop(Shared::grow(&self.shared, state));
        }
        may_wait
    }
}
