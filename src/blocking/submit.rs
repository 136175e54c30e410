//! How a pool accepts tasks.

use std::io;
use std::panic::Location;

use super::parker::wake;
use super::samples::toss;
use super::shared::Shared;
use super::state::Source;
use super::task::{Body, Closure, Foreign, Guard, InRuntime, PoolTask, TaskGuard};
use super::worker::again;
use crate::inbox::FifoList;
use crate::join::{Id, JoinHandle, Origin, RunContext, TrySpawnError, Work};
use crate::semaphore::TryAcquireError;
use crate::sync::Arc;
use crate::task::{Fault, JoinRef, Task};

/// Submits tasks to a pool: the pool itself, or a bulkhead of it.
pub(super) trait Submit {
    fn shared(&self) -> &Arc<Shared>;

    /// Submits the body of a task that holds a permit.
    fn submit<B: Body>(&self, body: B) -> Result<JoinRef<B::Output>, TrySpawnError<B>>;

    /// Submits a closure that holds a permit, and that the caller spawned at `location`.
    #[inline]
    fn submit_closure<F, R>(
        &self,
        f: F,
        location: &Location<'_>,
    ) -> Result<JoinHandle<R>, TrySpawnError<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let (shared, id) = (self.shared(), Id::next());
        let closure = Closure::new(f, shared, id, location);
        let submitted = match shared.options.runtime_of_submitter() {
            None => self
                .submit(closure)
                .map_err(|refused| refused.map(Closure::into_inner)),
            Some(runtime) => {
                let into_inner = |body: InRuntime<Closure<F>>| body.into_inner().into_inner();
                let submitted = self.submit(InRuntime::new(closure, runtime));
                submitted.map_err(|refused| refused.map(into_inner))
            }
        };
        submitted.map(|join_ref| join_handle(shared, id, join_ref))
    }

    /// Submits work of another part of the crate that holds a permit.
    fn submit_work(&self, work: Work) -> Result<(), Work> {
        let work = Foreign(work);
        let refused = match self.shared().options.runtime_of_submitter() {
            None => self.submit(work).err().map(TrySpawnError::into_inner),
            Some(runtime) => {
                let submitted = self.submit(InRuntime::new(work, runtime));
                submitted
                    .err()
                    .map(|refused| refused.into_inner().into_inner())
            }
        };
        refused.map_or(Ok(()), |Foreign(work)| Err(work))
    }
}

/// The handle of a task of a pool.
pub(super) fn join_handle<R>(shared: &Arc<Shared>, id: Id, join_ref: JoinRef<R>) -> JoinHandle<R> {
    JoinHandle::with_origin(id, join_ref, Origin::pool(Shared::id(shared)))
}

/// Why a task was not accepted that found no permit.
pub(super) fn not_acquired<F>(error: TryAcquireError, f: F) -> TrySpawnError<F> {
    match error {
        TryAcquireError::Full => TrySpawnError::full(f),
        TryAcquireError::Closed => TrySpawnError::closed(f),
    }
}

/// Tasks that were not accepted, and the reason.
struct RefusedTasks {
    tasks: FifoList<Task<RunContext>>,
    /// The system's error if it has refused a thread; `None` if the pool is closed.
    error: Option<io::Error>,
}

/// Submits a task that holds a permit of the pool. If it is refused, its permit is released.
#[inline]
pub(super) fn submit<B: Body, G: Guard>(
    shared: &Arc<Shared>,
    task: PoolTask<B, G>,
    source: Source,
) -> Result<JoinRef<B::Output>, TrySpawnError<B>> {
    let (task, join_ref) = Task::joinable(task);
    match accept_one(shared, task, source) {
        Ok(()) => Ok(join_ref),
        // SAFETY: the task was made above.
        Err(refused) => Err(unsafe { take_back::<B, G>(refused) }.remove(0)),
    }
}

/// Submits the bodies of tasks that hold permits of the pool, with one synchronisation for all of them. Returns their
/// handles.
pub(super) fn submit_batch<B: Body>(
    shared: &Arc<Shared>,
    bodies: impl ExactSizeIterator<Item = (Id, B)>,
) -> Vec<JoinHandle<B::Output>> {
    let (mut tasks, mut handles) = (FifoList::new(), Vec::with_capacity(bodies.len()));
    for (id, body) in bodies {
        let guard = TaskGuard::new(shared);
        let (task, join_ref) = Task::joinable(PoolTask { body, guard });
        tasks.push_back(task);
        handles.push(join_handle(shared, id, join_ref));
    }
    if handles.is_empty() {
        return handles;
    }
    match accept(shared, tasks, handles.len(), false, Source::Caller) {
        Ok(()) => handles,
        Err(refused) => {
            // SAFETY: the tasks were made above.
            let refused = unsafe { take_back::<B, TaskGuard>(refused) };
            refused.into_iter().map(JoinHandle::refused).collect()
        }
    }
}

/// Queues a task that holds a permit, and makes sure that a thread will run it.
#[inline]
fn accept_one(
    this: &Arc<Shared>,
    task: Task<RunContext>,
    source: Source,
) -> Result<(), RefusedTasks> {
    let is_chosen = toss();
    if is_chosen {
        return accept(this, task.into(), 1, true, source);
    }
    match this.try_push(task) {
        // The source does not matter here: while the inbox is open, the pool is not closed.
        Ok(()) => Ok(()),
        Err(task) => accept(this, task.into_fifo(), 1, false, source),
    }
}

/// Queues tasks as `accept_one` does. If there is only one, `is_chosen` determines whether it is in the sample.
fn accept(
    this: &Arc<Shared>,
    mut tasks: FifoList<Task<RunContext>>,
    count: usize,
    is_chosen: bool,
    source: Source,
) -> Result<(), RefusedTasks> {
    // The inbox may stay open: while it is open, these tasks need nothing but to be queued, like those in it.
    let mut state = this.lock();
    this.empty_inbox(&mut state);
    // Asks again until no thread is needed: by the time that the lock is back, the new thread may have taken another
    // task, or have exited.
    loop {
        if !state.accepts(source) {
            drop(state);
            return Err(refuse(this, tasks, count, source, None));
        }
        if !state.must_start(1, count, &this.options) {
            break;
        }
        state = match Shared::start_thread(this, state) {
            Err((state, error)) if !state.is_staffed() => {
                this.fail_queued(state, || Fault::rejected(again(&error)));
                return Err(refuse(this, tasks, count, source, Some(error)));
            }
            Ok(state) | Err((state, _)) => state,
        };
    }
    state.push(&mut tasks, count, is_chosen);
    let woken = state.wake_one();
    let due = state.arm(&this.options);
    this.open_inbox(&mut state);
    drop(state);
    wake(woken);
    Shared::arm(this, due);
    Ok(())
}

/// Releases the permits of tasks that are not accepted, and counts them.
#[cold]
fn refuse(
    this: &Shared,
    tasks: FifoList<Task<RunContext>>,
    count: usize,
    source: Source,
    error: Option<io::Error>,
) -> RefusedTasks {
    for _ in 0..count {
        this.release();
    }
    match source {
        Source::Caller => this.reject(count),
        // It was accepted earlier. The caller drops it, which counts it as cancelled.
        Source::Bulkhead => this.lock().totals().submitted += count as u64,
    }
    RefusedTasks { tasks, error }
}

/// Takes the bodies out of tasks that were not accepted.
///
/// # Safety
///
/// The tasks were made by `Task::joinable`, each of a `PoolTask<B, G>`.
unsafe fn take_back<B: Body, G: Guard>(refused: RefusedTasks) -> Vec<TrySpawnError<B>> {
    let RefusedTasks { mut tasks, error } = refused;
    let mut all = Vec::new();
    while let Some(task) = tasks.pop_front() {
        // SAFETY: as the caller promises.
        let body = unsafe { take_back_one::<B, G>(task) };
        all.push(match &error {
            None => TrySpawnError::closed(body),
            Some(error) => TrySpawnError::no_thread(body, again(error)),
        });
    }
    all
}

/// Takes the body out of a task that was not accepted.
///
/// # Safety
///
/// The task was made by `Task::joinable`, of a `PoolTask<B, G>`.
pub(super) unsafe fn take_back_one<B: Body, G: Guard>(task: Task<RunContext>) -> B {
    // SAFETY: as the caller promises.
    let task = unsafe { task.take_back::<PoolTask<B, G>>() };
    let PoolTask { body, guard } = task.expect("no handle that could abort it exists yet");
    guard.disarm();
    body
}
