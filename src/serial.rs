//! [`SerialExecutor`]: jobs on a state, one at a time, without a thread and without a mailbox.
//!
//! `core` has the state word and the argument why it is right; `drain` runs what is queued and hands
//! it over.

mod builder;
mod core;
mod drain;
mod metrics;
mod nesting;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};

use self::builder::Options;
pub use self::builder::{Builder, OnPanic};
use self::core::{Core, Lent, Owner, Pushed, Queued, refusal};
use self::drain::Target;
pub use self::metrics::Metrics;
use self::nesting::Depth;
use crate::inbox::Seen;
use crate::join::{JoinHandle, TryRunError};
use crate::sync::Arc;
use crate::task::{Call, Fault, Task, Watch};

/// An actor without a thread and without a mailbox: it owns a state, and runs jobs on it, one at a
/// time, in the order in which they were submitted.
///
/// An idle executor runs a job at once, on the thread that submits it, at the cost of an uncontended
/// mutex: no allocation, no queue, no other thread. A busy one queues it (one recycled cell, one
/// compare-and-swap), and the submitter goes on at once: it never blocks, and it never waits for a
/// lock. Whoever finished a job runs what others have queued meanwhile, up to the
/// [capture limit](Builder::capture_jobs), and then hands the queue over to a Tokio task.
///
/// # When to use it
///
/// - Instead of a task that owns a state and reads a channel: the same isolation without a wake-up
///   per message, and the state needs no loop.
/// - Instead of a [`tokio::sync::Mutex`] around a state that is changed often and shortly.
///
/// Use a [`std::sync::Mutex`] where a change takes nanoseconds and callers may wait for it, and
/// Tokio's mutex to hold a lock across `.await`: a job here is a closure, not a future.
///
/// # What a job should know
///
/// It runs on the thread of whoever submitted it or another job, or on a Tokio worker: it must not
/// block for long, and it sees that thread's runtime and thread-locals, not its submitter's. It must
/// not take a lock that some submitter holds while it submits: that submitter may be the one who
/// runs it. From inside a job, submitting to the same executor queues; waiting there for what was
/// queued waits for ever.
///
/// # Guarantees
///
/// - *Order*: jobs run in the order in which they were submitted; one that came while another ran
///   does not wait for its handle to be polled.
/// - *Panics*: a job's panic reaches its own handle and nobody else, neither the thread that ran it
///   nor other jobs; what becomes of the state, [`OnPanic`] says.
/// - *Drop*: when the last handle goes, what is queued still runs, and the state is dropped after it,
///   on the thread that ran the last job.
/// - *Shutdown of the runtime*: jobs that had been handed over to it end as cancelled.
///
/// # Examples
///
/// ```
/// use throng::SerialExecutor;
///
/// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
/// let account = SerialExecutor::new(100_u64);
/// let balance = account
///     .submit(|balance| {
///         *balance += 10;
///         *balance
///     })
///     .await?;
/// assert_eq!(balance, 110);
/// # Ok(()) }
/// ```
pub struct SerialExecutor<S> {
    core: Arc<Core<S>>,
}

impl<S: Send + 'static> SerialExecutor<S> {
    /// An executor with the default options around its state.
    pub fn new(state: S) -> Self {
        Builder::new().build(state)
    }

    fn with_options(state: S, options: Options) -> Self {
        Self {
            core: Arc::new(Core::new(state, options)),
        }
    }

    /// Runs a job on the state: at once, on this thread, if the executor is idle; else when the jobs
    /// before it are done. Never blocks.
    ///
    /// The job runs whether or not the handle is polled. If it ran at once, the handle is ready.
    /// A submitter that finds the executor idle may also run jobs that others queue meanwhile, up to
    /// the [capture limit](Builder::capture_jobs). Inside eight jobs that run inside one another, of
    /// other executors, a job does not run at once, but when the outermost of them has ended.
    ///
    /// # Errors
    ///
    /// The handle ends with [`is_closed`](crate::JoinError::is_closed),
    /// [`is_poisoned`](crate::JoinError::is_poisoned), [`is_panic`](crate::JoinError::is_panic), or,
    /// if the runtime that the queue was handed over to is shut down,
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    #[inline]
    pub fn submit<F, R>(&self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        match Owner::acquire(&self.core) {
            Ok(owner) => match Depth::enter() {
                Some(_depth) => run_inline(owner, job),
                None => run_later(owner, job),
            },
            Err(seen) => self.queue(job, seen),
        }
    }

    /// Queues a job; it never runs on this thread before `post` returns.
    ///
    /// For a job that is long, or that takes locks which the submitter holds. If the executor is
    /// idle the queue is handed over at once, to the submitter's runtime or to what
    /// [`drain_on`](Builder::drain_on) says.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit); and [`is_rejected`](crate::JoinError::is_rejected) if the
    /// executor is idle and there is nothing to hand over to. If there is, but it refuses (a pool that
    /// is closed or full), what is queued ends with
    /// [`is_cancelled`](crate::JoinError::is_cancelled).
    pub fn post<F, R>(&self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        let target = if self.core.is_owned() {
            None
        } else {
            Target::of(&self.core)
        };
        let (task, watch) = package(job);
        self.post_to(task, target);
        JoinHandle::waiting(watch)
    }

    /// Runs a job now, on this thread, or not at all. The job may borrow from its surroundings.
    ///
    /// # Errors
    ///
    /// Gives the job back if the executor is busy, closed or poisoned.
    ///
    /// # Panics
    ///
    /// If the job panics, the panic goes on here, after [`OnPanic`] has been followed.
    pub fn try_run<F, R>(&self, job: F) -> Result<R, TryRunError<F>>
    where
        F: FnOnce(&mut S) -> R,
    {
        let mut owner = match Owner::acquire(&self.core) {
            Ok(owner) => owner,
            Err(seen) => return Err(not_run(job, seen)),
        };
        let _depth = Depth::enter();
        let result = owner.run(job);
        owner.core().counters.inline.add(1);
        owner.finish();
        result.or_else(|payload| resume_unwind(payload))
    }

    /// Refuses jobs from now on. Those that were accepted still run.
    pub fn close(&self) {
        self.core.close();
    }

    /// Closes the executor, waits for the jobs that were accepted, and gives the state out.
    ///
    /// # Errors
    ///
    /// [`IntoInnerError::Poisoned`] with the state if a job panicked and left it poisoned, and
    /// [`IntoInnerError::Taken`] if another call, on another handle, got the state.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the executor closed and the state in it.
    pub async fn into_inner(self) -> Result<S, IntoInnerError<S>> {
        self.close();
        loop {
            // Made before the look: it hears of whatever comes after.
            let released = self.core.released.notified();
            if let Some(result) = self.take_state() {
                return result;
            }
            released.await;
        }
    }

    /// The state of a closed executor; `None`: it is still at work.
    fn take_state(&self) -> Option<Result<S, IntoInnerError<S>>> {
        let mut owner = Owner::acquire_closed(&self.core).ok()?;
        let state = owner.take_state();
        owner.finish();
        Some(match state {
            None => Err(IntoInnerError::Taken),
            Some(state) if self.is_poisoned() => Err(IntoInnerError::Poisoned(state)),
            Some(state) => Ok(state),
        })
    }

    #[cold]
    fn queue<F, R>(&self, job: F, seen: Seen) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        if let Some(fault) = refusal(seen.tags) {
            return JoinHandle::failed(fault);
        }
        let (task, watch) = package(job);
        if let Ok(Pushed::Acquired(owner)) = Owner::push(&self.core, task) {
            match Depth::enter() {
                Some(_depth) => owner.capture(1),
                None => owner.defer(),
            }
        }
        JoinHandle::waiting(watch)
    }

    /// Pushes a job that must not run here.
    fn post_to(&self, task: Queued<S>, target: Option<Target>) {
        match target {
            Some(target) => {
                if let Ok(Pushed::Acquired(owner)) = Owner::push(&self.core, task) {
                    // Not here, whatever happens: a drain that is refused is dropped.
                    drop(owner.hand_over(&target));
                }
            }
            None => self.post_to_busy(task),
        }
    }

    /// Pushes a job to an executor that was busy, or that has nothing to hand over to.
    fn post_to_busy(&self, task: Queued<S>) {
        let Err(task) = Owner::push_if_owned(&self.core, task) else {
            return;
        };
        match Target::of(&self.core) {
            Some(target) => self.post_to(task, Some(target)),
            None => {
                task.fail(Fault::rejected(std::io::Error::other(
                    "`post` needs a Tokio runtime, or `drain_on`, to run the job on",
                )));
            }
        }
    }
}

impl SerialExecutor<()> {
    /// Options for a new executor.
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::OnPanic;
    ///
    /// let log = SerialExecutor::builder()
    ///     .capture_jobs(4)
    ///     .on_panic(OnPanic::Continue)
    ///     .build(Vec::<String>::new());
    /// # drop(log);
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<S> SerialExecutor<S> {
    /// Whether jobs are refused because one panicked.
    pub fn is_poisoned(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Accepts jobs again after a panic; `true` if the state was poisoned. The caller vouches for
    /// the state.
    pub fn clear_poison(&self) -> bool {
        self.core.clear_poison()
    }

    /// Whether the executor was closed.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// What the executor has done so far.
    pub fn metrics(&self) -> Metrics {
        self.core.counters.read()
    }
}

impl<S> Clone for SerialExecutor<S> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

// A panic in a job cannot leave the executor broken, and the state is guarded by `OnPanic`.
impl<S> UnwindSafe for SerialExecutor<S> {}
impl<S> RefUnwindSafe for SerialExecutor<S> {}

impl<S> fmt::Debug for SerialExecutor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialExecutor")
            .field("busy", &self.core.is_owned())
            .field("closed", &self.is_closed())
            .field("poisoned", &self.is_poisoned())
            .field("metrics", &self.metrics())
            .finish()
    }
}

/// Why [`SerialExecutor::into_inner`] did not give a sound state out.
#[non_exhaustive]
pub enum IntoInnerError<S> {
    /// A job panicked; this is the state as it left it.
    Poisoned(S),
    /// Another call has the state.
    Taken,
}

impl<S> fmt::Display for IntoInnerError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisoned(_) => "a job panicked and left the state poisoned",
            Self::Taken => "the state was taken by another call of `into_inner`",
        })
    }
}

impl<S> fmt::Debug for IntoInnerError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisoned(_) => "Poisoned(..)",
            Self::Taken => "Taken",
        })
    }
}

impl<S> std::error::Error for IntoInnerError<S> {}

#[inline]
fn run_inline<S, F, R>(mut owner: Owner<'_, S>, job: F) -> JoinHandle<R>
where
    S: Send + 'static,
    F: FnOnce(&mut S) -> R,
{
    let result = owner.run(job);
    owner.core().counters.inline.add(1);
    owner.finish();
    JoinHandle::ready(result.map_err(Fault::panicked))
}

/// Leaves a job of an executor that is idle to the outermost job on this thread: too many jobs are
/// running inside one another.
#[cold]
fn run_later<S, F, R>(mut owner: Owner<'_, S>, job: F) -> JoinHandle<R>
where
    S: Send + 'static,
    F: FnOnce(&mut S) -> R + Send + 'static,
    R: Send + 'static,
{
    let (task, watch) = package(job);
    owner.push_back(task);
    owner.defer();
    JoinHandle::waiting(watch)
}

/// Puts a job into a cell.
fn package<S, F, R>(job: F) -> (Queued<S>, Watch<R>)
where
    S: 'static,
    F: FnOnce(&mut S) -> R + Send + 'static,
    R: Send + 'static,
{
    Task::joinable(Call(move |lent: &mut Lent<S>| lent.run(job)))
}

fn not_run<F>(job: F, seen: Seen) -> TryRunError<F> {
    if seen.tags.has(core::CLOSED) {
        TryRunError::Closed(job)
    } else if seen.tags.has(core::POISONED) {
        TryRunError::Poisoned(job)
    } else {
        TryRunError::Busy(job)
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
