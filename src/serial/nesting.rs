//! Jobs that submit to other executors, whose jobs submit to others, and so on: a chain of executors
//! must not use up the stack.
//!
//! Each idle executor of the chain runs its job inline, so the stack grows with it. Beyond a limit,
//! a job is queued, and its executor's drain is left to the outermost job on the thread, which runs
//! it when it has ended itself. That needs no runtime and no other thread.

use std::cell::{Cell, RefCell};

use crate::join::Work;

/// How many jobs may run inside one another on a thread.
const MAX_DEPTH: u32 = 8;

/// Set while drains are deferred; the depth is what is below it.
const DEFERRED: u32 = 1 << 31;

thread_local! {
    /// The depth, and whether there are deferred drains. Not in one place with them: this is used by
    /// every job, and so must need no destructor.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static DRAINS: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// One level of jobs that run inside one another. The end of the outermost runs what was deferred.
pub(super) struct Depth(());

impl Depth {
    /// Goes one level deeper; `None`: the limit is reached.
    #[inline]
    pub(super) fn enter() -> Option<Self> {
        DEPTH.with(|depth| {
            let current = depth.get();
            (current & !DEFERRED < MAX_DEPTH).then(|| {
                depth.set(current + 1);
                Self(())
            })
        })
    }
}

impl Drop for Depth {
    #[inline]
    fn drop(&mut self) {
        DEPTH.with(|depth| {
            if depth.get() == DEFERRED | 1 {
                run_deferred(depth);
            }
            depth.set(depth.get() - 1);
        });
    }
}

/// Leaves a drain to the outermost job. In the destructors of a thread's locals it may be too late:
/// then the drain is dropped, which cancels what is queued.
pub(super) fn defer(drain: Work) {
    let deferred = DRAINS.try_with(|drains| drains.borrow_mut().push(drain));
    if deferred.is_ok() {
        DEPTH.with(|depth| depth.set(depth.get() | DEFERRED));
    }
}

/// Runs what was deferred, and what is deferred by that. The outermost level is still there, so none
/// of it runs inside another.
#[cold]
fn run_deferred(depth: &Cell<u32>) {
    while depth.get() & DEFERRED != 0 {
        depth.set(depth.get() & !DEFERRED);
        let drains = DRAINS.try_with(RefCell::take).unwrap_or_default();
        drains.into_iter().for_each(Work::run);
    }
}
