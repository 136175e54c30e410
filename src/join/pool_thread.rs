//! [`PoolThread`]: how a thread of a pool waits for a task of that pool.
//!
//! If all threads of a pool wait for tasks of the pool, no thread is left to run those tasks. So before a thread
//! waits for a task of its own pool, one of three things happens: it runs the task itself, the pool creates a
//! *compensating thread* that replaces it while it waits, or the wait fails because it would never end.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::rc::Rc;

use super::nesting::{ExecutorId, prepare_to_wait, run_deferred_drains};
use super::run_context::RunContext;
use crate::sync::thread_local;
use crate::task::{Abort, Fault, Held, JoinRef};

/// The current thread as its pool sees it.
pub(crate) trait PoolThread {
    /// Identifies the pool. The handles of its tasks hold the same id.
    fn pool_id(&self) -> NonZeroUsize;
    /// Returns the context for a task that this thread runs.
    fn run_context(&self) -> RunContext;
    /// Prepares the thread to wait for a task that another thread runs. Returns `false` if it must not wait:
    /// because `must_compensate` is set and no compensating thread is allowed, or because the wait would never
    /// end.
    fn prepare_to_wait(&self, awaited: Abort, must_compensate: bool) -> bool;
}

/// Where a task runs: in a pool, or as a job of a serial executor.
#[derive(Clone, Copy)]
pub(crate) struct Origin(NonZeroUsize);

impl Origin {
    // Ids are addresses, whose last two bits are zero. Here they are flags.

    /// The id is that of a serial executor.
    const SERIAL: usize = 1;
    /// The task is expected to end soon.
    const ENDS_SOON: usize = 2;

    /// A pool that is the [`PoolThread`] of its threads.
    pub(crate) fn pool(id: NonZeroUsize) -> Self {
        debug_assert_eq!(id.get() & (Self::SERIAL | Self::ENDS_SOON), 0, "an address");
        Self(id)
    }

    /// A serial executor.
    #[inline]
    pub(crate) fn serial(executor: ExecutorId, ends_soon: bool) -> Self {
        let ends_soon = if ends_soon { Self::ENDS_SOON } else { 0 };
        Self(executor | Self::SERIAL | ends_soon)
    }

    fn as_serial(self) -> Option<ExecutorId> {
        let executor = NonZeroUsize::new(self.0.get() & !(Self::SERIAL | Self::ENDS_SOON))?;
        (self.0.get() & Self::SERIAL != 0).then_some(executor)
    }

    /// Returns `true` if spinning for a moment is likely cheaper than going to sleep.
    pub(super) fn ends_soon(self) -> bool {
        self.0.get() & Self::ENDS_SOON != 0
    }
}

/// The way in which a thread waits for a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It blocks until the task has ended.
    Block,
    /// It polls the task. It may poll other futures next, and the task may depend on one of those.
    Poll,
}

/// The maximum number of tasks that a thread runs nested in one another. Each takes some of the stack.
const MAX_NESTED_TASKS: usize = 64;

/// The current thread, if a pool owns it.
struct Current {
    thread: Rc<dyn PoolThread>,
    /// The number of nested tasks.
    depth: Cell<usize>,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static CURRENT: RefCell<Option<Rc<Current>>> = RefCell::new(None);
}

/// The scope in which a thread belongs to a pool: see [`enter_pool`].
#[must_use]
pub(crate) struct PoolGuard(NotSend);

/// The guard belongs to the thread that it was created on.
type NotSend = PhantomData<Rc<()>>;

/// Makes the current thread a thread of a pool until the guard is dropped.
pub(crate) fn enter_pool(thread: Rc<dyn PoolThread>) -> PoolGuard {
    let depth = Cell::new(0);
    CURRENT.with(|current| current.replace(Some(Rc::new(Current { thread, depth }))));
    PoolGuard(PhantomData)
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        // In the destructors of thread-locals there is nothing left to clear.
        let left = CURRENT.try_with(RefCell::take);
        drop(left);
    }
}

/// Returns `true` on the threads of pools.
pub(crate) fn is_pool_thread() -> bool {
    current().is_some()
}

/// Prepares this thread to wait for a task, unless that has ended. An error means that the wait would never end.
///
/// - The task is a job of a serial executor: the thread must not be inside another job of that executor.
/// - The task belongs to the pool that owns this thread: this may be the only thread that can run it. A thread
///   that blocks runs the task itself if no other thread has started it. A thread that polls first asks for a
///   compensating thread, since the task may depend on a future that this thread polls next.
///
/// In all cases the thread first runs the drains that are deferred on it, because the task may depend on them.
pub(super) fn prepare_to_join<T>(
    origin: Option<Origin>,
    join_ref: &JoinRef<T>,
    wait: Wait,
) -> Result<(), Fault> {
    if join_ref.is_complete() {
        return Ok(());
    }
    let Some(origin) = origin else {
        // Without an origin, the task is not known to depend on the drains, so the wait is no error.
        let _ = run_deferred_drains();
        return Ok(());
    };
    if let Some(executor) = origin.as_serial() {
        return prepare_to_wait(executor);
    }
    run_deferred_drains()?;
    let Some(current) = current().filter(|current| current.thread.pool_id() == origin.0) else {
        return Ok(());
    };
    let may_wait = |must_compensate| {
        let awaited = join_ref.abort_ref();
        current.thread.prepare_to_wait(awaited, must_compensate)
    };
    let prepared = match wait {
        Wait::Block => current.run(join_ref) || may_wait(false),
        Wait::Poll => may_wait(true) || current.run(join_ref) || may_wait(false),
    };
    match prepared || join_ref.is_complete() {
        true => Ok(()),
        false => Err(Fault::would_deadlock(Held::Thread)),
    }
}

fn current() -> Option<Rc<Current>> {
    // In the destructors of thread-locals, no pool owns the thread any more.
    CURRENT
        .try_with(|current| current.borrow().clone())
        .ok()
        .flatten()
}

impl Current {
    /// Runs a task on this thread if no other thread has started it.
    fn run<T>(&self, join_ref: &JoinRef<T>) -> bool {
        let depth = self.depth.get();
        if depth == MAX_NESTED_TASKS {
            return false;
        }
        self.depth.set(depth + 1);
        let mut context = self.thread.run_context().by_waiter();
        // SAFETY: the only caller, `prepare_to_join`, passes the reference of a task whose origin is a pool, and
        // the tasks of pools are made for a `RunContext`.
        let ran = unsafe { join_ref.run_here(&mut context) };
        self.depth.set(depth);
        ran.is_some()
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
