//! Jobs of serial executors that run inside one another on a thread: how deep they are, and whose.
//!
//! A job submits to another executor, whose job submits to another, and so on. Each idle executor of
//! the chain runs its job inline, so the stack grows with it. Beyond a limit, a job is queued, and its
//! executor's drain is left to the outermost job on the thread, which runs it when it has ended itself.
//! That needs no runtime and no other thread.
//!
//! And a job may wait: for a job of an executor that runs one on this very thread it would wait for
//! ever, so it is told. The drains that were left to the outermost job it runs first, all of them: what
//! it waits for may itself wait, on another thread, for what is queued there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::num::NonZeroUsize;

use super::Work;
use crate::sync::{plain_thread_local, thread_local};
use crate::task::{Fault, Held};

/// Which executor it is: an address, its own as long as it has a handle, or a job that is queued or runs.
///
/// The handle of a job may outlive that, but then the job has ended, and nobody asks whose it was. At worst
/// one whose job is just being aborted elsewhere, with the executor's last handle in its captures, is told
/// of a deadlock instead of the abort, because a new executor has the address.
pub(crate) type Name = NonZeroUsize;

/// How many jobs may run inside one another on a thread.
pub(crate) const MAX_DEPTH: u32 = 8;

/// How many of those who wait run drains inside of one another: each takes of the stack.
const MAX_WAITS: u32 = 64;

/// Set while drains are deferred; the depth is what is below it.
const DEFERRED: u32 = 1 << 31;

/// What is used by every job, and so must need no destructor.
struct Jobs {
    /// The depth, and whether there are deferred drains.
    depth: Cell<u32>,
    /// Whose the jobs are, up to the depth; 0: nobody's any more.
    names: [Cell<usize>; MAX_DEPTH as usize],
    /// How many names are in `UNCOUNTED`, which most threads thus need not look at.
    uncounted: Cell<usize>,
    /// How many who wait run a drain, inside of one another.
    waits: Cell<u32>,
}

impl Jobs {
    const fn new() -> Self {
        Self {
            depth: Cell::new(0),
            names: [const { Cell::new(0) }; MAX_DEPTH as usize],
            uncounted: Cell::new(0),
            waits: Cell::new(0),
        }
    }
}

plain_thread_local! {
    static JOBS: Jobs = Jobs::new();
}

thread_local! {
    /// Whose jobs run here that count for no depth: those of drains, and those beyond the limit that
    /// must run at once.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static UNCOUNTED: RefCell<Vec<Name>> = RefCell::new(Vec::new());
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static DRAINS: RefCell<VecDeque<Work>> = RefCell::new(VecDeque::new());
}

/// One level of jobs that run inside one another. The end of the outermost runs what was deferred.
pub(crate) struct Depth(());

impl Depth {
    /// Goes one level deeper, for a job of this executor; `None`: the limit is reached, which is
    /// `MAX_DEPTH` at most.
    #[inline]
    pub(crate) fn enter(name: Name, limit: u32) -> Option<Self> {
        JOBS.with(|jobs| {
            let current = jobs.depth.get();
            let level = current & !DEFERRED;
            if level >= limit {
                return None;
            }
            // The modulus changes nothing, and spares a check.
            jobs.names[(level % MAX_DEPTH) as usize].set(name.get());
            jobs.depth.set(current + 1);
            Some(Self(()))
        })
    }
}

impl Drop for Depth {
    #[inline]
    fn drop(&mut self) {
        JOBS.with(|jobs| {
            if jobs.depth.get() == DEFERRED | 1 {
                run_deferred(jobs);
            }
            jobs.depth.set(jobs.depth.get() - 1);
        });
    }
}

/// A job that runs here however deep it is, or a drain.
pub(crate) struct Inside(Option<Depth>);

impl Inside {
    /// A job that must run at once.
    pub(crate) fn job(name: Name) -> Self {
        match Depth::enter(name, MAX_DEPTH) {
            Some(depth) => Self(Some(depth)),
            None => Self::drain(name),
        }
    }

    /// The jobs of a drain, or what becomes of them: those that they submit to may run at full depth.
    pub(crate) fn drain(name: Name) -> Self {
        // In the destructors of a thread's locals it is too late: nobody is told then.
        let _ = UNCOUNTED.try_with(|names| names.borrow_mut().push(name));
        JOBS.with(|jobs| jobs.uncounted.set(jobs.uncounted.get() + 1));
        Self(None)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.0.is_none() {
            let _ = UNCOUNTED.try_with(|names| names.borrow_mut().pop());
            JOBS.with(|jobs| jobs.uncounted.set(jobs.uncounted.get() - 1));
        }
    }
}

/// Whether a job of this executor runs on this thread, perhaps with others inside of it.
pub(crate) fn is_inside(name: Name) -> bool {
    JOBS.with(|jobs| {
        let depth = (jobs.depth.get() & !DEFERRED) as usize;
        let counted = &jobs.names[..depth];
        let uncounted = || UNCOUNTED.try_with(|names| names.borrow().contains(&name));
        counted.iter().any(|job| job.get() == name.get())
            || (jobs.uncounted.get() > 0 && uncounted().unwrap_or(false))
    })
}

/// Whether jobs of other executors run on this thread.
pub(crate) fn is_among_others(name: Name) -> bool {
    let is_other = |job: usize| job != 0 && job != name.get();
    JOBS.with(|jobs| {
        let depth = (jobs.depth.get() & !DEFERRED) as usize;
        let mut counted = jobs.names[..depth].iter();
        let uncounted =
            || UNCOUNTED.try_with(|names| names.borrow().iter().any(|job| is_other(job.get())));
        counted.any(|job| is_other(job.get()))
            || (jobs.uncounted.get() > 0 && uncounted().unwrap_or(false))
    })
}

/// This thread is about to wait for this executor: it must not, if it runs one of its jobs itself.
pub(crate) fn prepare_to_wait(name: Name) -> Result<(), Fault> {
    match is_inside(name) {
        true => Err(Fault::would_deadlock(Held::State)),
        false => run_what_was_left(),
    }
}

/// This thread is about to wait: as long as it does, nobody runs the drains that were left to its outermost
/// job, and it may wait for one of them, if not directly. So it runs them now, inside of its present job,
/// as if they had never been left. An error: they are still there, and it must not wait.
#[inline]
pub(super) fn run_what_was_left() -> Result<(), Fault> {
    JOBS.with(|jobs| match jobs.depth.get() & DEFERRED {
        0 => Ok(()),
        _ => run_before_waiting(jobs),
    })
}

#[cold]
fn run_before_waiting(jobs: &Jobs) -> Result<(), Fault> {
    let waits = jobs.waits.get();
    if waits == MAX_WAITS && has_deferred() {
        return Err(Fault::would_deadlock(Held::State));
    }
    jobs.waits.set(waits + 1);
    while let Some(drain) = next_deferred() {
        drain.run();
    }
    jobs.waits.set(waits);
    Ok(())
}

/// Leaves a drain to the outermost job. In the destructors of a thread's locals it may be too late:
/// then the drain is dropped, which cancels what is queued.
pub(crate) fn defer(drain: Work) {
    let deferred = DRAINS.try_with(|drains| drains.borrow_mut().push_back(drain));
    if deferred.is_ok() {
        JOBS.with(|jobs| jobs.depth.set(jobs.depth.get() | DEFERRED));
    }
}

/// Runs what was deferred, and what is deferred by that. The outermost level is still there, so none
/// of it runs inside another, unless that waits; but its job has ended, and nobody waits inside of it.
#[cold]
fn run_deferred(jobs: &Jobs) {
    jobs.names[0].set(0);
    while let Some(drain) = next_deferred() {
        drain.run();
    }
    jobs.depth.set(jobs.depth.get() & !DEFERRED);
}

fn has_deferred() -> bool {
    let waiting = DRAINS.try_with(|drains| !drains.borrow().is_empty());
    waiting.unwrap_or(false)
}

fn next_deferred() -> Option<Work> {
    DRAINS
        .try_with(|drains| drains.borrow_mut().pop_front())
        .ok()
        .flatten()
}
