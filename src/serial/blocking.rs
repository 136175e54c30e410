//! [`SerialExecutor::blocking_run`]: the job lies on the stack of a thread that waits for it, so it may borrow.

use super::enqueue::Rejection;
use super::executor::SerialExecutor;
use super::job::{Plain, pack};
use super::level::Level;
use super::owner::Owner;
use crate::join::{ExecutorScope, Id, JoinError, JoinHandle, prepare_to_wait};
use crate::task::Fault;
use crate::unwind::AbortOnUnwind;

impl<S: Send + 'static> SerialExecutor<S> {
    /// Runs a job on the state, and blocks this thread until the job has ended. The job may borrow.
    ///
    /// For threads that are not async: on a thread that polls tasks it delays all of them, perhaps also the one that
    /// should run the job. An idle executor runs the job at once on this thread. A busy one queues it, even if that
    /// exceeds its [capacity](super::Builder::queue_capacity), because each waiting thread adds only one job.
    ///
    /// # Errors
    ///
    /// - [`is_panic`](JoinError::is_panic) if the job panicked;
    /// - [`is_closed`](JoinError::is_closed) or [`is_poisoned`](JoinError::is_poisoned) if the executor is closed or
    ///   its state poisoned;
    /// - [`is_would_deadlock`](JoinError::is_would_deadlock) inside a job of the same executor;
    /// - [`is_cancelled`](JoinError::is_cancelled) if the job was aborted by
    ///   [`shutdown_now`](Self::shutdown_now), or the runtime that the queue was handed over to has shut down.
    ///
    /// # Examples
    ///
    /// ```
    /// let names = throng::SerialExecutor::new(Vec::new());
    /// let name = String::from("Ada");
    /// let count = names.blocking_run(|names| {
    ///     names.push(name.clone());
    ///     names.len()
    /// });
    /// assert_eq!(count.unwrap(), 1);
    /// ```
    pub fn blocking_run<F, R>(&self, job: F) -> Result<R, JoinError>
    where
        F: FnOnce(&mut S) -> R + Send,
        R: Send,
    {
        let error = |fault| JoinError::new(Id::next(), fault);
        prepare_to_wait(self.core.id()).map_err(error)?;
        let Ok(mut owner) = Owner::acquire(&self.core) else {
            return self.queue_and_block(job);
        };
        let _inside = ExecutorScope::job(self.core.id());
        let result = owner.run_direct(|lent| lent.run(job));
        owner.finish();
        result.map_err(|payload| error(Fault::panicked(payload)))
    }

    fn queue_and_block<F, R>(&self, job: F) -> Result<R, JoinError>
    where
        F: FnOnce(&mut S) -> R + Send,
        R: Send,
    {
        let mut stack_job = StackJob {
            job: Some(job),
            output: None,
        };
        let pointer = StackJobPtr {
            stack_job: (&raw mut stack_job).cast(),
            run: run::<S, F, R>,
        };
        // The party that has the pointer uses this stack frame.
        let must_not_unwind = AbortOnUnwind;
        // SAFETY: this frame stays, and does not touch `stack_job`, until the job has ended. A handle without an
        // `origin` returns from `blocking_join` when the outcome is there and not before, and the party that writes
        // the outcome has run this closure, or has dropped it unrun. The types are those of the line above.
        let job = Plain(move |state: &mut S| unsafe { pointer.run(state) });
        let (task, join_ref) = pack(Level::NORMAL, job, ());
        let run = |owner: Owner<'_, S>, task| {
            let _inside = ExecutorScope::job(self.core.id());
            owner.run_packed_inline(task);
        };
        if let Err((task, tags)) = Owner::push_or_run(&self.core, Level::NORMAL, task, run) {
            self.reject_task(task, Rejection::by(tags));
        }
        let ended = JoinHandle::waiting(join_ref).blocking_join();
        std::mem::forget(must_not_unwind);
        ended.map(|()| stack_job.output.expect("the job has stored it"))
    }
}

/// A job on the stack of its submitter, and where it stores its output.
struct StackJob<F, R> {
    job: Option<F>,
    output: Option<R>,
}

/// Runs a job on the stack of its submitter.
///
/// # Safety
///
/// `stack_job` points to a `StackJob<F, R>` that nothing else uses.
unsafe fn run<S, F, R>(stack_job: *mut (), state: &mut S)
where
    F: FnOnce(&mut S) -> R,
{
    // SAFETY: as the caller guarantees.
    let stack_job = unsafe { &mut *stack_job.cast::<StackJob<F, R>>() };
    if let Some(job) = stack_job.job.take() {
        stack_job.output = Some(job(state));
    }
}

/// A pointer to a [`StackJob`] whose types are erased.
struct StackJobPtr<S> {
    stack_job: *mut (),
    run: unsafe fn(*mut (), &mut S),
}

// SAFETY: it is created for a job and an output that are Send, and there is nothing else in a `StackJob`.
unsafe impl<S> Send for StackJobPtr<S> {}

impl<S> StackJobPtr<S> {
    /// # Safety
    ///
    /// The `StackJob` still exists, and nothing else uses it.
    unsafe fn run(self, state: &mut S) {
        // SAFETY: as the caller guarantees; `run` is the function for its types.
        unsafe { (self.run)(self.stack_job, state) }
    }
}
