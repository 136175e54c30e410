//! [`PoolTask`]: what a pool runs, with what it owes the pool.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::runtime::{self, TaskRuntime};
use super::shared::Shared;
use super::trace::TaskSpan;
use crate::join::{Id, RunContext, Work};
use crate::sync::Arc;
use crate::task::{Job, Ran};

/// A task of a pool: its body, and the guard that accounts for it.
pub(super) struct PoolTask<B, G> {
    /// Dropped before the guard: a caller that learns of the free permit finds the captures gone.
    pub(super) body: B,
    pub(super) guard: G,
}

/// What a task runs.
pub(super) trait Body: Send + 'static {
    type Output: Send + 'static;

    /// The runtime that it runs in. Called once.
    fn runtime(&mut self) -> TaskRuntime;

    /// Also says how the task ended: a body may contain a panic.
    fn run(self, context: &mut RunContext) -> (Self::Output, Ran);
}

/// Accounts for a task that was submitted. Dropping it counts the task as cancelled, and releases what it holds.
pub(super) trait Guard: Send + 'static {
    /// Dropped when the task has ended, before its outcome is visible.
    type Running: Running;

    /// The task starts.
    fn start(self, context: &RunContext) -> Self::Running;

    /// The task was not accepted, and is not counted.
    fn disarm(self);
}

/// Accounts for a task that runs.
pub(super) trait Running {
    /// The task has ended without a panic of its own code, as `ran` says.
    #[inline]
    fn ended(&mut self, ran: Ran) {
        let _ = ran;
    }
}

impl<B: Body, G: Guard> Job<RunContext> for PoolTask<B, G> {
    type Output = B::Output;
    type Signal = ();
    const BLOCKING: bool = true;

    #[inline]
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        context: &mut RunContext,
        _: &mut Context<'_>,
    ) -> Poll<Self::Output> {
        // SAFETY: the caller promises that the job has not been dropped, and regards it as dropped now.
        let Self { mut body, guard } = unsafe { ManuallyDrop::take(job) };
        let _entered = runtime::enter(body.runtime(), context.is_by_waiter());
        let mut running = guard.start(context);
        let (output, ran) = body.run(context);
        running.ended(ran);
        Poll::Ready(output)
    }
}

// ===== Bodies =====

/// A closure of the user.
pub(super) struct Closure<F> {
    f: F,
    id: Id,
    span: TaskSpan,
}

impl<F> Closure<F> {
    /// The closure is the task `id` of the pool, and was submitted at `location`.
    #[inline]
    pub(super) fn new(f: F, pool: &Shared, id: Id, location: &Location<'_>) -> Self {
        Self {
            f,
            id,
            span: TaskSpan::new::<F>(&pool.options.name, id, location),
        }
    }

    pub(super) fn into_inner(self) -> F {
        self.f
    }
}

impl<F, R> Body for Closure<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;

    #[inline]
    fn runtime(&mut self) -> TaskRuntime {
        TaskRuntime::Pool
    }

    #[inline]
    fn run(self, _: &mut RunContext) -> (R, Ran) {
        let _running = self.id.enter();
        let _entered = self.span.enter();
        ((self.f)(), Ran::Returned)
    }
}

/// Work of another part of the crate.
pub(super) struct Foreign(pub(super) Work);

impl Body for Foreign {
    type Output = ();

    fn runtime(&mut self) -> TaskRuntime {
        TaskRuntime::Pool
    }

    fn run(self, context: &mut RunContext) -> ((), Ran) {
        // In the same context, which counts the work before its outcome is visible.
        let ran = self.0.run_in(context);
        if ran == Ran::Cancelled {
            context.note_found_aborted();
        }
        context.skip_accounting();
        ((), ran)
    }
}

/// A body that runs in the runtime of its submitter, which is not the pool's.
pub(super) struct InRuntime<B> {
    body: B,
    /// Taken when the body starts.
    runtime: Option<Handle>,
}

impl<B> InRuntime<B> {
    pub(super) fn new(body: B, runtime: Handle) -> Self {
        Self {
            body,
            runtime: Some(runtime),
        }
    }

    pub(super) fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for InRuntime<B> {
    type Output = B::Output;

    fn runtime(&mut self) -> TaskRuntime {
        self.runtime
            .take()
            .map_or(TaskRuntime::Pool, TaskRuntime::Submitter)
    }

    fn run(self, context: &mut RunContext) -> (Self::Output, Ran) {
        self.body.run(context)
    }
}

// ===== Guards =====

/// Accounts for a task of a pool.
pub(super) struct TaskGuard(Option<Arc<Shared>>);

/// Accounts for a task of a pool that runs.
pub(super) struct RunningGuard(Option<Arc<Shared>>);

impl TaskGuard {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Some(Arc::clone(shared)))
    }
}

impl Guard for TaskGuard {
    type Running = RunningGuard;

    #[inline]
    fn start(mut self, context: &RunContext) -> RunningGuard {
        let shared = self.0.take();
        if let Some(shared) = &shared {
            if context.is_by_waiter() {
                // The cell is still in the queue.
                shared.state().add_cancelled();
            }
            shared.options.before_task.call();
        }
        RunningGuard(shared)
    }

    /// The caller has released the permit.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for TaskGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.cancelled();
        }
    }
}

impl Running for RunningGuard {}

impl Drop for RunningGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.options.after_task.call();
            shared.release();
        }
    }
}
