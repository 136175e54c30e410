//! The tasks of a bulkhead.
//!
//! A task waits in the bulkhead's queue until it may run. Then a *carrier*, which is a task of the pool, takes it to a
//! thread. When the carrier ends, it sends the next task.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::task::Poll;

use crate::blocking::metrics::Metrics;
use crate::blocking::pool::BlockingPool;
use crate::blocking::queue::TaskQueue;
use crate::blocking::runtime::TaskRuntime;
use crate::blocking::shared::Shared;
use crate::blocking::state::Source;
use crate::blocking::submit::{Submit, not_acquired, submit, take_back_one};
use crate::blocking::task::{Body, Guard, PoolTask, Running};
use crate::join::{Closed, RunContext, TrySpawnError};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, Mutex, MutexGuard, Number, lock};
use crate::task::{Fault, JoinRef, Ran, Task};

/// The state that the clones of a bulkhead and its tasks share.
pub(super) struct Core {
    pub(super) pool: BlockingPool,
    max_running: usize,
    queue_capacity: usize,
    /// Counts the tasks that are accepted and have not ended.
    semaphore: Semaphore,
    /// The number of tasks accepted so far. A task may end before it is counted here.
    accepted: Number,
    state: Mutex<State>,
}

struct State {
    /// Tasks that the pool has not received yet.
    queue: TaskQueue,
    /// Tasks that the pool has received, and whose carrier has not ended.
    sent: usize,
    /// The number of those that have run. Counted before their outcomes are visible.
    ended: usize,
    completed: u64,
    panicked: u64,
    cancelled: u64,
    rejected: u64,
}

/// Tasks that hold a permit of the bulkhead, and one of the pool.
pub(super) struct Reserved<'a>(pub(super) &'a Arc<Core>);

impl Submit for Reserved<'_> {
    fn shared(&self) -> &Arc<Shared> {
        self.0.shared()
    }

    fn submit<B: Body>(&self, body: B) -> Result<JoinRef<B::Output>, TrySpawnError<B>> {
        Core::submit(self.0, body, PoolPermit::Acquired)
    }
}

/// The permit of the pool for a task of a bulkhead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolPermit {
    ToAcquire,
    Acquired,
}

impl Core {
    pub(super) fn new(pool: BlockingPool, max_running: usize, queue_capacity: usize) -> Self {
        Self {
            pool,
            max_running,
            queue_capacity,
            semaphore: Semaphore::new(max_running.saturating_add(queue_capacity)),
            accepted: Number::new(0),
            state: Mutex::new(State {
                queue: TaskQueue::new(),
                sent: 0,
                ended: 0,
                completed: 0,
                panicked: 0,
                cancelled: 0,
                rejected: 0,
            }),
        }
    }

    pub(super) fn metrics(&self) -> Metrics {
        let state = self.state();
        let ended = state.completed + state.panicked + state.cancelled;
        Metrics {
            busy: (state.sent - state.ended) as u64,
            queued: state.queue.waiting() as u64,
            submitted: ended.max(self.accepted.get() as u64),
            completed: state.completed,
            panicked: state.panicked,
            cancelled: state.cancelled,
            rejected: state.rejected,
            max_threads: self.max_running as u64,
            queue_capacity: Some(self.queue_capacity as u64),
            ..Metrics::default()
        }
    }

    /// Acquires a permit of the bulkhead.
    pub(super) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.semaphore.try_acquire()
    }

    /// Waits for a permit of the bulkhead, and for one of the pool.
    pub(super) async fn acquire_both(&self) -> Result<(), Closed> {
        self.acquire().await?;
        let acquired = BulkheadPermit(self);
        self.shared().acquire().await?;
        mem::forget(acquired);
        Ok(())
    }

    pub(super) fn release_both(&self) {
        self.shared().release();
        self.semaphore.release();
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.pool.shared()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits for a permit of the bulkhead, but not once the pool is closed.
    async fn acquire(&self) -> Result<(), Closed> {
        let mut acquired = pin!(self.semaphore.acquire());
        let mut closes = pin!(self.shared().close_begins());
        poll_fn(|cx| {
            if let Poll::Ready(acquired) = acquired.as_mut().poll(cx) {
                return Poll::Ready(acquired.map_err(|_| Closed::new(())));
            }
            closes.as_mut().poll(cx).map(|()| Err(Closed::new(())))
        })
        .await
    }

    pub(super) fn submit<B: Body>(
        this: &Arc<Self>,
        body: B,
        permit: PoolPermit,
    ) -> Result<JoinRef<B::Output>, TrySpawnError<B>> {
        let guard = BulkheadGuard(Some(Arc::clone(this)));
        let (task, join_ref) = Task::joinable(PoolTask { body, guard });
        match Self::queue_or_send(this, task, permit) {
            Ok(()) => {
                this.accepted.add(1);
                Ok(join_ref)
            }
            Err(refused) => {
                this.state().rejected += 1;
                // SAFETY: the task was made above.
                Err(refused.map(|task| unsafe { take_back_one::<B, BulkheadGuard>(task) }))
            }
        }
    }

    /// Sends a task to the pool, or queues it here.
    fn queue_or_send(
        this: &Arc<Self>,
        task: Task<RunContext>,
        permit: PoolPermit,
    ) -> Result<(), TrySpawnError<Task<RunContext>>> {
        let shared = this.shared();
        let mut state = this.state();
        if state.sent < this.max_running {
            state.sent += 1;
            drop(state);
            let sent = match permit {
                PoolPermit::Acquired => Self::send(this, task, Source::Caller),
                PoolPermit::ToAcquire => match shared.try_acquire() {
                    Ok(()) => Self::send(this, task, Source::Caller),
                    Err(error) => {
                        shared.reject(1);
                        Err(not_acquired(error, task))
                    }
                },
            };
            return sent.inspect_err(|_| Self::send_next(this, false));
        }
        if shared.is_closed() {
            drop(state);
            permit.release(shared);
            shared.reject(1);
            return Err(TrySpawnError::closed(task));
        }
        state.queue.push_back(task);
        drop(state);
        // The carrier that will send it acquires another.
        permit.release(shared);
        Ok(())
    }

    /// Sends a task to the pool, of which it holds a permit.
    fn send(
        this: &Arc<Self>,
        task: Task<RunContext>,
        source: Source,
    ) -> Result<(), TrySpawnError<Task<RunContext>>> {
        let shared = this.shared();
        let carrier = PoolTask {
            body: Carrier::new(this, task),
            guard: CarrierGuard(Some(Arc::clone(shared))),
        };
        match submit(shared, carrier, source) {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.map(Carrier::into_task)),
        }
    }

    /// A carrier has ended. Its task is counted in `ended` if it `has_run`. Sends the next task to the pool.
    fn send_next(this: &Arc<Self>, mut has_run: bool) {
        loop {
            let mut state = this.state();
            state.ended -= usize::from(mem::take(&mut has_run));
            let Some(task) = state.queue.pop() else {
                state.sent -= 1;
                return;
            };
            drop(state);
            // The task was accepted earlier, so it is not refused if the pool is full.
            this.shared().acquire_over_limit();
            match Self::send(this, task, Source::Bulkhead) {
                Ok(()) => return,
                Err(refused) => {
                    let (task, fault) = match refused {
                        // The pool has aborted all tasks that waited.
                        refused if refused.is_closed() => {
                            (refused.into_inner(), Fault::cancelled())
                        }
                        refused => refused.into_fault(),
                    };
                    task.fail(fault);
                    this.remove_cancelled();
                }
            }
        }
    }

    /// A task that the pool has not started was cancelled, or runs elsewhere.
    fn add_cancelled(&self, mut state: MutexGuard<'_, State>) {
        state.queue.add_cancelled();
        let (swept, count) = state.queue.sweep(|_| {});
        drop(state);
        if count > 0 {
            self.shared().lock().totals().submitted += count as u64;
        }
        drop(swept);
    }

    /// A carrier has come across such a task.
    fn remove_cancelled(&self) {
        self.state().queue.remove_cancelled();
    }

    /// Counts a task that was not accepted, in the pool, too.
    pub(super) fn reject(&self) {
        self.state().rejected += 1;
        self.shared().reject(1);
    }
}

/// A permit of a bulkhead. Dropping it releases the permit.
struct BulkheadPermit<'a>(&'a Core);

impl Drop for BulkheadPermit<'_> {
    fn drop(&mut self) {
        self.0.semaphore.release();
    }
}

impl PoolPermit {
    /// Releases it, if it was acquired.
    fn release(self, shared: &Shared) {
        if self == Self::Acquired {
            shared.release();
        }
    }
}

// ===== The guards of a task =====

/// Accounts for a task of a bulkhead.
struct BulkheadGuard(Option<Arc<Core>>);

/// Accounts for a task of a bulkhead that runs.
struct RunningInBulkhead {
    core: Arc<Core>,
    /// A carrier has taken it to its thread, and has left it the permit of the pool.
    is_carried: bool,
    ran: Ran,
}

impl Guard for BulkheadGuard {
    type Running = Option<RunningInBulkhead>;

    fn start(mut self, context: &RunContext) -> Self::Running {
        let core = self.0.take()?;
        let is_carried = !context.is_by_waiter();
        if !is_carried {
            core.add_cancelled(core.state());
        }
        core.shared().options.before_task.call();
        Some(RunningInBulkhead {
            core,
            is_carried,
            ran: Ran::Panicked,
        })
    }

    fn disarm(mut self) {
        if let Some(core) = self.0.take() {
            core.semaphore.release();
        }
    }
}

/// A task that was accepted is cancelled.
impl Drop for BulkheadGuard {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.semaphore.release();
            core.shared().state().count_cancelled();
            let mut state = core.state();
            state.cancelled += 1;
            core.add_cancelled(state);
        }
    }
}

impl Running for Option<RunningInBulkhead> {
    fn ended(&mut self, ran: Ran) {
        if let Some(running) = self {
            running.ran = ran;
        }
    }
}

impl Drop for RunningInBulkhead {
    fn drop(&mut self) {
        let shared = self.core.shared();
        shared.options.after_task.call();
        if self.is_carried {
            shared.release();
        }
        let mut state = self.core.state();
        state.ended += usize::from(self.is_carried);
        match self.ran {
            Ran::Returned => state.completed += 1,
            Ran::Panicked => state.panicked += 1,
            Ran::Cancelled => state.cancelled += 1,
        }
        drop(state);
        self.core.semaphore.release();
    }
}

// ===== Carriers =====

/// Takes a task of a bulkhead to a thread of the pool.
struct Carrier {
    task: Option<Task<RunContext>>,
    /// Receives the end of the carrier; `None` if the pool has not accepted it.
    core: Option<Arc<Core>>,
    has_run: bool,
}

impl Carrier {
    fn new(core: &Arc<Core>, task: Task<RunContext>) -> Self {
        Self {
            task: Some(task),
            core: Some(Arc::clone(core)),
            has_run: false,
        }
    }

    /// The task of a carrier that was not accepted.
    fn into_task(mut self) -> Task<RunContext> {
        self.core = None;
        self.task
            .take()
            .expect("a carrier that has not run has its task")
    }
}

impl Body for Carrier {
    type Output = ();

    fn runtime(&mut self) -> TaskRuntime {
        TaskRuntime::Any
    }

    fn run(mut self, context: &mut RunContext) -> ((), Ran) {
        let (Some(task), Some(core)) = (self.task.take(), &self.core) else {
            return ((), Ran::Cancelled);
        };
        // In the same context, which counts the task before its outcome is visible.
        let ran = task.run(context);
        if ran == Ran::Cancelled {
            // The canceller has counted it, and could not know where it was.
            core.remove_cancelled();
            core.shared().release();
        } else {
            self.has_run = true;
        }
        context.skip_accounting();
        ((), ran)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let Some(core) = &self.core else { return };
        if let Some(task) = self.task.take() {
            drop(task);
            core.remove_cancelled();
        }
        Core::send_next(core, self.has_run);
    }
}

/// Accounts for a carrier: it holds the permit of the pool, which the task takes over when it starts.
struct CarrierGuard(Option<Arc<Shared>>);

impl Guard for CarrierGuard {
    type Running = ();

    fn start(mut self, _: &RunContext) {
        self.0 = None;
    }

    /// The pool has released the permit.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Running for () {}

/// The pool has cancelled the carrier, whose task is counted.
impl Drop for CarrierGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.release();
            shared.state().add_cancelled();
        }
    }
}
