//! The Tokio runtime that a thread of a pool is in.
//!
//! A task runs in the runtime of its submitter. Entering a runtime costs as much as a short task, so a thread stays in
//! the runtime of its last task until a task needs another one.

use std::cell::RefCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::runtime::{EnterGuard, Handle};

use crate::sync::thread::panicking;
use crate::sync::thread_local;

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom has no such form")]
    static THREAD: RefCell<ThreadRuntime> = RefCell::new(ThreadRuntime::default());
}

/// The runtimes of a thread of a pool.
#[derive(Default)]
struct ThreadRuntime {
    /// The pool's.
    home: Option<Handle>,
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
pub(super) fn start_thread(home: Option<Handle>) {
    let entered = home.clone().map(Entered::new);
    THREAD.with(|thread| *thread.borrow_mut() = ThreadRuntime { home, entered });
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
        TaskRuntime::Any => None,
        runtime if nested => enter_nested(runtime),
        TaskRuntime::Pool => THREAD.with(|thread| {
            let mut thread = thread.borrow_mut();
            let is_home = match (&thread.home, &thread.entered) {
                (Some(home), Some(entered)) => home.id() == entered.runtime.id(),
                (None, None) => true,
                _ => false,
            };
            if !is_home {
                let home = thread.home.clone();
                thread.change(home);
            }
            None
        }),
        TaskRuntime::Submitter(runtime) => THREAD.with(|thread| {
            let mut thread = thread.borrow_mut();
            let entered = thread.entered.as_ref();
            if entered.is_none_or(|entered| entered.runtime.id() != runtime.id()) {
                thread.change(Some(runtime));
            }
            None
        }),
    }
}

#[cold]
fn enter_nested(runtime: TaskRuntime) -> Option<Entered> {
    let runtime = match runtime {
        TaskRuntime::Submitter(runtime) => runtime,
        // Without a runtime of its own, it runs in that of the outer task.
        _ => THREAD.with(|thread| thread.borrow().home.clone())?,
    };
    let current = Handle::try_current().ok();
    current
        .is_none_or(|current| current.id() != runtime.id())
        .then(|| Entered::new(runtime))
}

impl ThreadRuntime {
    #[cold]
    fn change(&mut self, runtime: Option<Handle>) {
        self.entered = None;
        self.entered = runtime.map(Entered::new);
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
