//! Waiting for a job on a thread that is not async, with a job that may borrow from it.

use std::process;

use super::SerialExecutor;
use super::core::Owner;
use super::queue::Level;
use super::submit::{Plain, fail, package};
use crate::join::{ExecutorScope, Id, JoinError, JoinHandle, prepare_to_wait};
use crate::task::Fault;

impl<S: Send + 'static> SerialExecutor<S> {
    /// Runs a job on the state, and parks this thread until it has run. The job may borrow from its
    /// surroundings.
    ///
    /// For threads that are not async: one that polls tasks is held up, and with it, perhaps, whoever
    /// should run the job. An idle executor runs it at once, on this thread, at any depth; a busy one
    /// queues it, whatever its [capacity](super::Builder::capacity): the thread that waits is the bound.
    ///
    /// # Errors
    ///
    /// [`is_panic`](JoinError::is_panic) if the job panicked; [`is_closed`](JoinError::is_closed) or
    /// [`is_poisoned`](JoinError::is_poisoned) if the executor was;
    /// [`is_would_deadlock`](JoinError::is_would_deadlock) inside a job of the same executor;
    /// [`is_cancelled`](JoinError::is_cancelled) after [`cancel_queued`](Self::cancel_queued), or if the
    /// runtime that the queue was handed over to is shut down.
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
        prepare_to_wait(self.core.name()).map_err(error)?;
        let Ok(mut owner) = Owner::acquire(&self.core) else {
            return self.queue_and_park(job);
        };
        let _inside = ExecutorScope::job(self.core.name());
        let result = owner.run(|lent| lent.run(job));
        owner.core().counters.inline.add(1);
        owner.finish();
        result.map_err(|payload| error(Fault::panicked(payload)))
    }

    fn queue_and_park<F, R>(&self, job: F) -> Result<R, JoinError>
    where
        F: FnOnce(&mut S) -> R + Send,
        R: Send,
    {
        let mut desk = Desk {
            job: Some(job),
            output: None,
        };
        let errand = Errand {
            desk: (&raw mut desk).cast(),
            run: run::<S, F, R>,
        };
        // Whoever has the errand uses what is on this stack.
        let must_stay = AbortOnUnwind;
        // SAFETY: this thread stays here, and leaves the desk alone, until the job has ended: without a
        // `home`, `blocking_join` returns when the outcome is there, and not before; and whoever writes
        // that has run the errand, or has dropped it unrun. That the job is run with the right types,
        // the line above shows.
        let job = Plain(move |state: &mut S| unsafe { errand.run(state) });
        let (task, watch) = package(Level::NORMAL, job, ());
        let run = |owner: Owner<'_, S>, task| {
            let _inside = ExecutorScope::job(self.core.name());
            owner.run_first(task);
        };
        if let Err((task, tags)) = Owner::push_or(&self.core, Level::NORMAL, task, run) {
            fail(task, tags);
        }
        let ended = JoinHandle::waiting(watch).blocking_join();
        std::mem::forget(must_stay);
        ended.map(|()| desk.output.expect("the job has left it there"))
    }
}

/// Where a job lies whose submitter waits, and where it leaves its output.
struct Desk<F, R> {
    job: Option<F>,
    output: Option<R>,
}

/// Runs the job on a desk.
///
/// # Safety
///
/// `desk` is a `Desk<F, R>` that nobody else uses.
unsafe fn run<S, F, R>(desk: *mut (), state: &mut S)
where
    F: FnOnce(&mut S) -> R,
{
    // SAFETY: as the caller says.
    let desk = unsafe { &mut *desk.cast::<Desk<F, R>>() };
    if let Some(job) = desk.job.take() {
        desk.output = Some(job(state));
    }
}

/// The way to a desk on the stack of a thread that waits.
struct Errand<S> {
    desk: *mut (),
    run: unsafe fn(*mut (), &mut S),
}

// SAFETY: it is made for a job and an output that are Send, which is all that is on the desk.
unsafe impl<S> Send for Errand<S> {}

impl<S> Errand<S> {
    /// # Safety
    ///
    /// The desk is still there, and nobody else uses it.
    unsafe fn run(self, state: &mut S) {
        // SAFETY: as the caller says; `run` is the function for this desk.
        unsafe { (self.run)(self.desk, state) }
    }
}

/// Ends the process if it is dropped.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        process::abort();
    }
}
