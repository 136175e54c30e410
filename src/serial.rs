//! [`SerialExecutor`]: jobs on a state, one at a time, without a thread and without a mailbox.
//!
//! `core` has the state word and the argument why it is right; `submit` gets jobs into the `queue`, and
//! `drain` runs what is there and hands it over. `transact` has the jobs that are rolled back, and
//! `exclusive` those that are futures.

mod blocking;
mod builder;
mod core;
mod cost;
mod drain;
mod exclusive;
mod metrics;
mod queue;
mod reserve;
mod submit;
mod transact;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};

use self::builder::Options;
pub use self::builder::{Builder, OnPanic};
use self::core::{Core, Owner};
pub use self::exclusive::Exclusive;
pub use self::metrics::Metrics;
pub use self::queue::Level;
pub use self::reserve::Permit;
use self::submit::Plain;
pub use self::transact::{ByClone, Checkpoint};
use crate::inbox::Head;
use crate::join::{
    ExecutorScope, JoinHandle, TryRunError, TrySpawnError, is_inside, prepare_to_wait,
};
use crate::sync::Arc;

/// An actor without a thread and without a mailbox: it owns a state, and runs jobs on it, one at a
/// time, in the order in which they were submitted.
///
/// An idle executor runs a job at once, on the thread that submits it, at the cost of an uncontended
/// mutex: no allocation, no queue, no other thread. A busy one queues it (one recycled cell, one
/// compare-and-swap), and the submitter goes on: it never blocks. Where jobs are so short that this pays,
/// it waits awake for some microseconds at most, for the executor to be idle or, at the handle's first
/// poll, for the job to end. Whoever finished a job runs what others have queued meanwhile, up to the
/// [capture limit](Builder::capture_jobs), and then hands the queue over to a Tokio task.
///
/// # When to use it
///
/// - Instead of a task that owns a state and reads a channel: the same isolation without a wake-up
///   per message, and the state needs no loop.
/// - Instead of a [`tokio::sync::Mutex`] around a state that is changed often and shortly.
///
/// Use a [`std::sync::Mutex`] where a change takes nanoseconds and callers may wait for it. Use
/// Tokio's mutex where most changes hold the lock across `.await`: here, a job is a closure, and one that
/// is a future ([`submit_async`](Self::submit_async)) always runs in a task of its own. That is the price
/// of what a lock cannot do: a caller that stops polling holds nobody up. Use an actor framework (kameo,
/// ractor, actix) where actors supervise or watch one another, have names, or live in other processes.
///
/// # What a job should know
///
/// It runs on the thread of whoever submitted it or another job, or on a Tokio worker: it must not
/// block for long, and it sees that thread's runtime and thread-locals, not its submitter's. It must
/// not take a lock that some submitter holds while it submits: that submitter may be the one who
/// runs it, unless it uses [`post`](Self::post), or the executor was told so
/// ([`capture_jobs(0)`](Builder::capture_jobs), [`inline(false)`](Builder::inline)). From inside a job,
/// submitting to the same executor queues; waiting there for what was queued is an error,
/// [`is_would_deadlock`](crate::JoinError::is_would_deadlock), also by way of jobs of other executors on
/// the same thread.
///
/// # Guarantees
///
/// - *Order*: jobs run in the order in which they were submitted, or, of those of several
///   [levels](Self::submit_at), each level does; one that came while another ran does not wait for its
///   handle to be polled.
/// - *Panics*: a job's panic reaches its own handle and nobody else, neither the thread that ran it
///   nor other jobs; what becomes of the state, [`OnPanic`] says. If it is a
///   [transaction](Self::transact)'s, the state is as it was before.
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
    /// before it are done. Never blocks: where jobs take some hundred nanoseconds, it waits awake for a
    /// busy executor for a few microseconds at most.
    ///
    /// The job runs whether or not the handle is polled. If it ran at once, the handle is ready.
    /// A submitter that finds the executor idle may also run jobs that others queue meanwhile, up to
    /// the [capture limit](Builder::capture_jobs). Inside eight jobs that run inside one another, of
    /// other executors, a job does not run at once, but when the outermost of them has ended.
    ///
    /// # Errors
    ///
    /// The handle ends with [`is_closed`](crate::JoinError::is_closed),
    /// [`is_poisoned`](crate::JoinError::is_poisoned), [`is_panic`](crate::JoinError::is_panic), or
    /// [`is_rejected`](crate::JoinError::is_rejected) if the queue is [full](Builder::capacity); with
    /// [`is_cancelled`](crate::JoinError::is_cancelled) after [`cancel_queued`](Self::cancel_queued), or
    /// if the runtime that the queue was handed over to is shut down. Inside a job of the same executor,
    /// to wait for it is [`is_would_deadlock`](crate::JoinError::is_would_deadlock).
    #[inline]
    pub fn submit<F, R>(&self, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run_or_queue(Level::NORMAL, Plain(job))
    }

    /// As [`submit`](Self::submit), before or behind jobs of other levels that wait.
    ///
    /// Jobs of one level run in the order in which they were submitted; of those that wait, the highest
    /// level goes first, but for [`PATIENCE`](Level::PATIENCE): no level starves. An idle executor runs the
    /// job at once, whatever its level.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::SerialExecutor;
    /// use throng::serial::Level;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), throng::JoinError> {
    /// let log = SerialExecutor::new(Vec::new());
    /// let again = log.clone();
    /// let busy = log.submit(move |_| {
    ///     drop(again.submit(|log| log.push("second")));
    ///     again.submit_at(Level::HIGH, |log| log.push("first"))
    /// });
    /// busy.await?.await?;
    /// assert_eq!(log.submit(|log| log.clone()).await?, ["first", "second"]);
    /// # Ok(()) }
    /// ```
    pub fn submit_at<F, R>(&self, level: Level, job: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut S) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run_or_queue(level, Plain(job))
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
        let queued = self.post_at(Level::NORMAL, Plain(job));
        self.handle(queued.map_err(TrySpawnError::drop_task))
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
        let _inside = ExecutorScope::job(self.core.name());
        let result = owner.run(|lent| lent.run(job));
        owner.core().counters.inline.add(1);
        owner.finish();
        result.or_else(|payload| resume_unwind(payload))
    }

    /// Closes the executor, waits for the jobs that were accepted, and gives the state out.
    ///
    /// # Errors
    ///
    /// [`IntoInnerError::Poisoned`] with the state if a job panicked and left it poisoned,
    /// [`IntoInnerError::Taken`] if another call, on another handle, got the state, and
    /// [`IntoInnerError::WouldDeadlock`] inside a job of the same executor, which stays open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the executor closed and the state in it.
    pub async fn into_inner(self) -> Result<S, IntoInnerError<S>> {
        if prepare_to_wait(self.core.name()).is_err() {
            return Err(IntoInnerError::WouldDeadlock);
        }
        self.close();
        self.core.released.wait(|| self.take_state()).await
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
    /// Refuses jobs from now on. Those that were accepted still run: to be rid of them, too, is
    /// [`cancel_queued`](Self::cancel_queued). A job may close its own executor.
    pub fn close(&self) {
        self.core.close();
    }

    /// Waits until the executor is closed and its last job has ended.
    ///
    /// Inside a job of the same executor it does not resolve: its job is not the last one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost with a dropped future.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// let executor = throng::SerialExecutor::new(());
    /// drop(executor.submit(|()| println!("the last one")));
    /// executor.close();
    /// executor.closed().await;
    /// # }
    /// ```
    pub async fn closed(&self) {
        // Inside its own job it waits nevertheless, as is said above.
        let _ = prepare_to_wait(self.core.name());
        let look = || self.core.has_ended().then_some(());
        self.core.released.wait(look).await;
    }

    /// Cancels the jobs that are queued, and says how many those were: their captures are dropped at once,
    /// on this thread, and their handles end with [`is_cancelled`](crate::JoinError::is_cancelled). The one
    /// that runs goes on. A job may do this to its own executor.
    ///
    /// After [`close`](Self::close) nothing but the job that runs is left.
    pub fn cancel_queued(&self) -> usize {
        self.core.cancel_queued()
    }

    /// Whether this thread is inside a job of this executor, perhaps by way of other executors: there it
    /// must not wait for another one.
    pub fn is_current(&self) -> bool {
        is_inside(self.core.name())
    }

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
        self.core.metrics()
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
    /// It was called inside a job of the same executor, which would wait for itself.
    WouldDeadlock,
}

impl<S> fmt::Display for IntoInnerError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisoned(_) => "a job panicked and left the state poisoned",
            Self::Taken => "the state was taken by another call of `into_inner`",
            Self::WouldDeadlock => "a job of the executor waits for its own end",
        })
    }
}

impl<S> fmt::Debug for IntoInnerError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisoned(_) => "Poisoned(..)",
            Self::Taken => "Taken",
            Self::WouldDeadlock => "WouldDeadlock",
        })
    }
}

impl<S> std::error::Error for IntoInnerError<S> {}

fn not_run<F>(job: F, seen: Head) -> TryRunError<F> {
    if seen.tags.has(core::CLOSED) {
        TryRunError::closed(job)
    } else if seen.tags.has(core::POISONED) {
        TryRunError::poisoned(job)
    } else {
        TryRunError::busy(job)
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, throng_shuttle))]
mod shuttle_tests;
