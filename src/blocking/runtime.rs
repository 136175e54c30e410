//! The Tokio runtime that a thread of a pool is in.
//!
//! A task runs in the runtime of its submitter. Entering a runtime costs as much as a short task, so a thread stays in
//! the runtime of its last task until a task needs another one.

use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::runtime::{EnterGuard, Handle};

use crate::sync::thread::panicking;
use crate::sync::{plain_thread_local, thread_local};

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom has no such form")]
    static THREAD: RefCell<ThreadRuntime> = RefCell::new(ThreadRuntime::default());
}

plain_thread_local! {
    // The thread is in the pool's runtime, as it is for most tasks.
    static IS_IN_POOL_RUNTIME: Cell<bool> = Cell::new(false);
}

/// The runtimes of a thread of a pool.
#[derive(Default)]
struct ThreadRuntime {
    /// The pool's.
    pool_runtime: Option<Handle>,
    /// The one that the thread is in.
    entered: Option<Entered>,
}

/// The runtime that a task runs in.
pub(super) enum TaskRuntime {
    /// The pool's.
    Pool,
    /// The submitter's, if that is not the pool's.
    Submitter(Handle),
    /// Any: it only runs another task, which has a runtime of its own.
    Any,
}

/// Enters the runtime of a pool on a thread that will run its tasks.
pub(super) fn start_thread(pool_runtime: Option<Handle>) {
    let entered = pool_runtime.clone().map(Entered::new);
    THREAD.with(|thread| {
        *thread.borrow_mut() = ThreadRuntime {
            pool_runtime,
            entered,
        }
    });
    update_is_in_pool_runtime();
}

/// Leaves the runtime that the thread is in, before the thread exits.
pub(super) fn end_thread() {
    drop(THREAD.with(RefCell::take));
}

/// Enters the runtime of a task, on the thread that runs it.
///
/// A `nested` task runs inside another one, which is in a runtime of its own: drop the guard at the end of the nested
/// task to return to that.
#[inline]
pub(super) fn enter(runtime: TaskRuntime, nested: bool) -> Option<Entered> {
    match runtime {
        TaskRuntime::Any => {}
        runtime if nested => return enter_nested(runtime),
        TaskRuntime::Pool => {
            if !IS_IN_POOL_RUNTIME.with(Cell::get) {
                change(THREAD.with(|thread| thread.borrow().pool_runtime.clone()));
            }
        }
        TaskRuntime::Submitter(runtime) => {
            if !THREAD.with(|thread| thread.borrow().is_in(&runtime)) {
                change(Some(runtime));
            }
        }
    }
    None
}

/// Leaves the runtime that the thread is in, and enters another.
#[cold]
fn change(runtime: Option<Handle>) {
    // In case leaving or entering a runtime panics.
    IS_IN_POOL_RUNTIME.with(|is_in_pool_runtime| is_in_pool_runtime.set(false));
    // `THREAD` is not borrowed while handles are dropped, which may drop the last part of a runtime.
    drop(THREAD.with(|thread| thread.borrow_mut().entered.take()));
    let entered = runtime.map(Entered::new);
    THREAD.with(|thread| thread.borrow_mut().entered = entered);
    update_is_in_pool_runtime();
}

fn update_is_in_pool_runtime() {
    IS_IN_POOL_RUNTIME.with(|is_in_pool_runtime| {
        is_in_pool_runtime.set(THREAD.with(|thread| thread.borrow().is_in_pool_runtime()))
    });
}

#[cold]
fn enter_nested(runtime: TaskRuntime) -> Option<Entered> {
    let runtime = match runtime {
        TaskRuntime::Submitter(runtime) => runtime,
        // Without a runtime of its own, it runs in that of the outer task.
        _ => THREAD.with(|thread| thread.borrow().pool_runtime.clone())?,
    };
    let current = Handle::try_current().ok();
    current
        .is_none_or(|current| current.id() != runtime.id())
        .then(|| Entered::new(runtime))
}

impl ThreadRuntime {
    fn is_in_pool_runtime(&self) -> bool {
        match &self.pool_runtime {
            Some(runtime) => self.is_in(runtime),
            None => self.entered.is_none(),
        }
    }

    #[inline]
    fn is_in(&self, runtime: &Handle) -> bool {
        let entered = self.entered.as_ref();
        entered.is_some_and(|entered| entered.runtime.id() == runtime.id())
    }
}

/// A runtime that the thread is in. Dropping this leaves it.
pub(super) struct Entered {
    guard: Option<EnterGuard<'static>>,
    /// Borrowed by the guard.
    runtime: Box<Handle>,
}

impl Entered {
    fn new(runtime: Handle) -> Self {
        let runtime = Box::new(runtime);
        // SAFETY: the guard borrows what the box holds. That stays where it is when the box moves, and `drop` drops
        // the guard first.
        let guard =
            unsafe { mem::transmute::<EnterGuard<'_>, EnterGuard<'static>>(runtime.enter()) };
        Self {
            guard: Some(guard),
            runtime,
        }
    }
}

/// If a closure has leaked a guard of its own, Tokio panics when an outer guard is dropped, but not while the thread
/// is unwinding: then it leaves the thread as it is. So this unwinds, which does not call the panic hook.
impl Drop for Entered {
    fn drop(&mut self) {
        let guard = self.guard.take();
        if panicking() || cfg!(panic = "abort") {
            return drop(guard);
        }
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            resume_unwind(Box::new(()))
        }));
        debug_assert!(unwound.is_err(), "it always unwinds");
    }
}
