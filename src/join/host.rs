//! [`Host`]: what a thread of a pool does, when it is about to wait for a task of that pool.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;

use super::Seat;
use crate::sync::thread_local;
use crate::task::{Fault, Ran, Watch};

/// The pool whose thread this is.
pub(crate) trait Host {
    /// Which one: as in the handles of its tasks.
    fn name(&self) -> NonZeroUsize;
    /// This thread has run a task for which it would have waited.
    fn ran_here(&self, ran: Ran);
    /// This thread is about to wait for a task that another one runs; `false`: it must not.
    fn waits(&self) -> bool;
}

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// For this task and nothing else.
    Blocked,
    /// It polls this task, and others perhaps, one of which may be what this one waits for.
    Polling,
}

/// How many tasks a thread runs inside of one another at most: each takes of its stack.
const MAX_DEPTH: usize = 64;

/// What a thread of a pool knows.
struct Here {
    host: Rc<dyn Host>,
    depth: Cell<usize>,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static HERE: RefCell<Option<Rc<Here>>> = RefCell::new(None);
}

/// Makes this a thread of a pool.
pub(crate) fn move_in(host: Rc<dyn Host>) {
    let depth = Cell::new(0);
    HERE.with(|here| here.replace(Some(Rc::new(Here { host, depth }))));
}

/// Makes it a thread of nobody again.
pub(crate) fn move_out() {
    let here = HERE.with(RefCell::take);
    drop(here);
}

/// Whether this is a thread of some pool.
pub(crate) fn is_hosted() -> bool {
    here().is_some()
}

/// The handle of a task of the pool `home` is about to wait. On a thread of that pool, this may be the
/// only thread to run the task: so it does, if nobody has begun it, or another stands in for it.
///
/// Who polls is better served by another thread: the task may wait for something that is polled next.
pub(super) fn help<T>(home: NonZeroUsize, watch: &Watch<T>, wait: Wait) -> Result<(), Fault> {
    if watch.is_complete() {
        return Ok(());
    }
    let Some(here) = here().filter(|here| here.host.name() == home) else {
        return Ok(());
    };
    let helped = match wait {
        Wait::Blocked => here.run(watch) || here.host.waits(),
        Wait::Polling => here.host.waits() || here.run(watch),
    };
    match helped || watch.is_complete() {
        true => Ok(()),
        false => Err(Fault::would_deadlock()),
    }
}

fn here() -> Option<Rc<Here>> {
    // Not while thread-locals are dropped: there the thread belongs to nobody.
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

impl Here {
    /// Runs a task on this thread, if nobody has begun it.
    fn run<T>(&self, watch: &Watch<T>) -> bool {
        let depth = self.depth.get();
        if depth == MAX_DEPTH {
            return false;
        }
        self.depth.set(depth + 1);
        // SAFETY: the tasks of pools are made for a `Seat`.
        let ran = unsafe { watch.run_here(&mut Seat::beside()) };
        self.depth.set(depth);
        if let Some(ran) = ran {
            self.host.ran_here(ran);
        }
        ran.is_some()
    }
}
