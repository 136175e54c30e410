//! Jobs of serial executors that are nested in one another on a thread.
//!
//! A job may submit to another executor, whose job submits to a third, and so on. Each idle executor of such a
//! chain runs its job inline, *nested* in the job before it, so the stack grows with the chain. Beyond
//! [`MAX_NESTED_JOBS`], a job is queued instead, and the drain of its executor is *deferred*: the outermost job
//! on the thread runs it after that job itself has ended. This needs no runtime and no other thread.
//!
//! A job may also wait. If it waits for a job of an executor that runs one on this very thread, the wait would
//! never end, so it fails. Before any other wait, the thread runs all deferred drains: the task that it waits
//! for may itself wait, on another thread, for a job in one of them.
//!
//! The module is not part of the serial executor, because every [`JoinHandle`](crate::JoinHandle) uses it before
//! it waits: even a wait for a task of a pool must first run the drains that are deferred on its thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::num::NonZeroUsize;

use super::work::Work;
use crate::sync::{plain_thread_local, thread_local};
use crate::task::{Fault, Held};

/// Identifies a serial executor: its address, which is unique as long as the executor has a handle or a job that
/// is queued or running.
///
/// The handle of a job may outlive its executor, but then the job has ended, and the id is no longer compared.
/// One race remains: while a job that captures the executor's last handle is aborted on another thread, a new
/// executor may get the address. A wait for that job may then fail as a deadlock instead of as an abort.
pub(crate) type ExecutorId = NonZeroUsize;

/// The maximum number of nested jobs on a thread.
pub(crate) const MAX_NESTED_JOBS: u32 = 8;

/// The maximum number of nested waits that run deferred drains. Each takes some of the stack.
const MAX_NESTED_WAITS: u32 = 64;

/// Set in `NestedJobs::depth` while drains are deferred. The depth is in the bits below.
const DEFERRED: u32 = 1 << 31;

/// The state that every job uses. It needs no destructor, so access to it is cheap.
struct NestedJobs {
    /// The number of nested jobs, and the bit `DEFERRED`.
    depth: Cell<u32>,
    /// The executors of the nested jobs, outermost first. Zero for a job that has ended.
    executors: [Cell<usize>; MAX_NESTED_JOBS as usize],
    /// The length of `UNCOUNTED`. It is zero on most threads, which then need not read the list.
    uncounted: Cell<usize>,
    /// The number of nested waits that run deferred drains.
    waits: Cell<u32>,
}

impl NestedJobs {
    const fn new() -> Self {
        Self {
            depth: Cell::new(0),
            executors: [const { Cell::new(0) }; MAX_NESTED_JOBS as usize],
            uncounted: Cell::new(0),
            waits: Cell::new(0),
        }
    }
}

plain_thread_local! {
    static JOBS: NestedJobs = NestedJobs::new();
}

thread_local! {
    /// The executors of jobs that do not count towards the depth: those that a drain runs, and those that must
    /// run at once although the limit is reached.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static UNCOUNTED: RefCell<Vec<ExecutorId>> = RefCell::new(Vec::new());
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static DEFERRED_DRAINS: RefCell<VecDeque<Work>> = RefCell::new(VecDeque::new());
}

/// A job that counts towards the depth. The end of the outermost one runs the deferred drains.
pub(crate) struct NestedJob(());

impl NestedJob {
    /// Enters a job of this executor. Returns `None` if `limit` jobs are nested already; `limit` is at most
    /// `MAX_NESTED_JOBS`.
    #[inline]
    pub(crate) fn enter(executor: ExecutorId, limit: u32) -> Option<Self> {
        JOBS.with(|jobs| {
            let current = jobs.depth.get();
            let depth = current & !DEFERRED;
            if depth >= limit {
                return None;
            }
            // The remainder changes nothing, and saves a bounds check.
            jobs.executors[(depth % MAX_NESTED_JOBS) as usize].set(executor.get());
            jobs.depth.set(current + 1);
            Some(Self(()))
        })
    }
}

impl Drop for NestedJob {
    #[inline]
    fn drop(&mut self) {
        JOBS.with(|jobs| {
            if jobs.depth.get() == DEFERRED | 1 {
                end_outermost(jobs);
            }
            jobs.depth.set(jobs.depth.get() - 1);
        });
    }
}

/// The scope in which this thread runs jobs of an executor whatever the depth is.
pub(crate) struct ExecutorScope(Option<NestedJob>);

impl ExecutorScope {
    /// Enters a job that must run at once.
    pub(crate) fn job(executor: ExecutorId) -> Self {
        match NestedJob::enter(executor, MAX_NESTED_JOBS) {
            Some(job) => Self(Some(job)),
            None => Self::drain(executor),
        }
    }

    /// Enters a drain, or the end of one. Its jobs do not count, so they may nest as many jobs as others.
    pub(crate) fn drain(executor: ExecutorId) -> Self {
        // In the destructors of thread-locals the list may be gone. Deadlocks are not detected then.
        let _ = UNCOUNTED.try_with(|executors| executors.borrow_mut().push(executor));
        JOBS.with(|jobs| jobs.uncounted.set(jobs.uncounted.get() + 1));
        Self(None)
    }
}

impl Drop for ExecutorScope {
    fn drop(&mut self) {
        if self.0.is_none() {
            let _ = UNCOUNTED.try_with(|executors| executors.borrow_mut().pop());
            JOBS.with(|jobs| jobs.uncounted.set(jobs.uncounted.get() - 1));
        }
    }
}

/// Returns `true` if a job of this executor runs on this thread, even with other jobs nested in it.
pub(crate) fn is_inside(executor: ExecutorId) -> bool {
    is_any_executor(|other| other == executor.get())
}

/// Returns `true` if a job of another executor runs on this thread.
pub(crate) fn is_inside_other(executor: ExecutorId) -> bool {
    is_any_executor(|other| other != 0 && other != executor.get())
}

fn is_any_executor(is_match: impl Fn(usize) -> bool) -> bool {
    JOBS.with(|jobs| {
        let depth = (jobs.depth.get() & !DEFERRED) as usize;
        let mut counted = jobs.executors[..depth].iter();
        let uncounted = || {
            let any = |list: &RefCell<Vec<ExecutorId>>| {
                let executors = list.borrow();
                executors.iter().any(|executor| is_match(executor.get()))
            };
            UNCOUNTED.try_with(any).unwrap_or(false)
        };
        counted.any(|executor| is_match(executor.get()))
            || (jobs.uncounted.get() > 0 && uncounted())
    })
}

/// Prepares this thread to wait for a job of this executor. Fails if the thread runs one of its jobs itself.
pub(crate) fn prepare_to_wait(executor: ExecutorId) -> Result<(), Fault> {
    match is_inside(executor) {
        true => Err(Fault::would_deadlock(Held::State)),
        false => run_deferred_drains(),
    }
}

/// Runs the deferred drains before this thread waits, nested in its current job, as if they had never been
/// deferred. While the thread waits nobody else would run them, and it may depend on one of them indirectly.
///
/// After an error the drains are still deferred, and the thread must not wait.
#[inline]
pub(super) fn run_deferred_drains() -> Result<(), Fault> {
    JOBS.with(|jobs| match jobs.depth.get() & DEFERRED {
        0 => Ok(()),
        _ => run_before_waiting(jobs),
    })
}

#[cold]
fn run_before_waiting(jobs: &NestedJobs) -> Result<(), Fault> {
    let waits = jobs.waits.get();
    if waits == MAX_NESTED_WAITS && has_deferred() {
        return Err(Fault::would_deadlock(Held::State));
    }
    jobs.waits.set(waits + 1);
    while let Some(drain) = next_deferred() {
        drain.run();
    }
    jobs.waits.set(waits);
    Ok(())
}

/// Defers a drain to the end of the outermost job. In the destructors of thread-locals it may be too late; then
/// the drain is dropped, which cancels the jobs in its queue.
pub(crate) fn defer(drain: Work) {
    let deferred = DEFERRED_DRAINS.try_with(|drains| drains.borrow_mut().push_back(drain));
    if deferred.is_ok() {
        JOBS.with(|jobs| jobs.depth.set(jobs.depth.get() | DEFERRED));
    }
}

/// Runs the deferred drains, and those that they defer. The outermost level is still entered, so none of them is
/// nested in another unless that one waits. The outermost job has ended, so nothing waits inside it.
#[cold]
fn end_outermost(jobs: &NestedJobs) {
    jobs.executors[0].set(0);
    while let Some(drain) = next_deferred() {
        drain.run();
    }
    jobs.depth.set(jobs.depth.get() & !DEFERRED);
}

fn has_deferred() -> bool {
    let deferred = DEFERRED_DRAINS.try_with(|drains| !drains.borrow().is_empty());
    deferred.unwrap_or(false)
}

fn next_deferred() -> Option<Work> {
    DEFERRED_DRAINS
        .try_with(|drains| drains.borrow_mut().pop_front())
        .ok()
        .flatten()
}
