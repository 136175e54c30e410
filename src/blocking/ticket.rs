//! [`Queued`]: what a pool runs, with what it owes the pool.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::task::{Context, Poll};

use super::shared::Shared;
use super::trace::Traced;
use crate::join::{Id, RunContext, Work};
use crate::sync::Arc;
use crate::task::{Job, Ran, Task};

/// Something to run, and the ticket with which it came in.
pub(super) struct Queued<B, T> {
    /// Dropped before the ticket: who learns of the free place finds the captures gone.
    pub(super) body: B,
    pub(super) ticket: T,
}

/// What is run.
pub(super) trait Body: Send + 'static {
    type Output: Send + 'static;

    fn run(self, context: &mut RunContext) -> Self::Output;
}

/// What is due when a task is dropped unrun; or else, when it starts and when it has ended.
pub(super) trait Ticket: Send + 'static {
    /// Dropped when the task has ended, before its outcome can be seen.
    type Place;

    fn start(self, context: &RunContext) -> Self::Place;
}

impl<B: Body, T: Ticket> Job<RunContext> for Queued<B, T> {
    type Output = B::Output;
    type Signal = ();
    const BLOCKING: bool = true;

    #[inline]
    unsafe fn poll(
        job: &mut ManuallyDrop<Self>,
        context: &mut RunContext,
        _: &mut Context<'_>,
    ) -> Poll<Self::Output> {
        // SAFETY: the caller says that the job has not been dropped, and takes it as dropped now.
        let Self { body, ticket } = unsafe { ManuallyDrop::take(job) };
        let _place = ticket.start(context);
        Poll::Ready(body.run(context))
    }
}

/// A user's closure.
pub(super) struct Closure<F> {
    f: Traced<F>,
    id: Id,
}

impl<F> Closure<F> {
    /// It is run as a task of this name, and was submitted in this place.
    #[inline]
    pub(super) fn new(f: F, pool: &str, id: Id, place: &Location<'_>) -> Self {
        Self {
            f: Traced::new(f, pool, id, place),
            id,
        }
    }

    pub(super) fn into_inner(self) -> F {
        self.f.into_inner()
    }
}

impl<F, R> Body for Closure<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;

    #[inline]
    fn run(self, _: &mut RunContext) -> R {
        let _running = self.id.enter();
        self.f.run()
    }
}

/// The work of another part of the crate.
pub(super) struct Foreign(pub(super) Work);

impl Body for Foreign {
    type Output = ();

    fn run(self, context: &mut RunContext) {
        // In the same context, which counts the work before anybody can see how it ended.
        if self.0.run_in(context) == Ran::Cancelled {
            context.note_found_aborted();
        }
        context.skip_accounting();
    }
}

/// The ticket of a task of a pool.
pub(super) struct Entry(Option<Arc<Shared>>);

/// Of one that runs.
pub(super) struct Running(Arc<Shared>);

impl Entry {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Some(Arc::clone(shared)))
    }

    /// The task was not accepted, and whoever says so has given its place back.
    pub(super) fn void(mut self) {
        self.0 = None;
    }
}

impl Ticket for Entry {
    type Place = Option<Running>;

    #[inline]
    fn start(mut self, context: &RunContext) -> Self::Place {
        let shared = self.0.take()?;
        if context.is_by_waiter() {
            shared.state().withdraw();
        }
        shared.options.before_task.call();
        Some(Running(shared))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.withdrawn();
        }
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        self.0.options.after_task.call();
        self.0.give_back();
    }
}

/// Takes what was to run back out of a task that was not accepted.
///
/// # Safety
///
/// The task was made by `Task::joinable`, of a `Queued<B, Entry>`.
pub(super) unsafe fn take_back<B: Body>(task: Task<RunContext>) -> B {
    // SAFETY: as the caller says.
    let queued = unsafe { task.take_back::<Queued<B, Entry>>() };
    let Queued { body, ticket } = queued.expect("nobody has a handle with which to abort it yet");
    ticket.void();
    body
}
