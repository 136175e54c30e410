//! [`RunContext`]: what a pool lends to the tasks that it runs.

use std::any::Any;
use std::mem;
// Pointers to traits are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;

use super::counts::RunCounts;
use crate::semaphore::Semaphore;
use crate::sync::Arc;
use crate::task::{JobContext, Ran};
use crate::unwind::contain;

/// Receives the payloads of panics that no handle reports.
pub(crate) type PanicHandler = StdArc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

/// The context that a pool lends to the tasks that it runs. It does the pool's bookkeeping when a task ends, before the
/// task's outcome is visible, so a caller that has awaited a task finds it counted and its permit released.
///
/// The default does nothing. It is for tasks that run outside of pools.
#[derive(Default)]
pub(crate) struct RunContext {
    /// Each task holds one of its permits.
    semaphore: Option<Arc<Semaphore>>,
    counting: Counting,
    panic_handler: Option<PanicHandler>,
    /// The task is run by the thread that waits for it.
    by_waiter: bool,
    /// The current task was not submitted, so there is nothing to account for.
    unaccounted: bool,
    /// The current task was to run another one, which had been aborted.
    found_aborted: bool,
}

/// Which of the tasks are counted.
#[derive(Default)]
enum Counting {
    #[default]
    Nothing,
    /// Tasks that panic. This costs the others nothing.
    Panics(Arc<RunCounts>),
    All(Arc<RunCounts>),
}

impl RunContext {
    /// A context that releases a permit of `semaphore` for each task that ends.
    pub(crate) fn releasing(semaphore: Arc<Semaphore>) -> Self {
        Self {
            semaphore: Some(semaphore),
            ..Self::default()
        }
    }

    /// Passes the panics of detached tasks to `handler`.
    pub(crate) fn on_panic(self, handler: PanicHandler) -> Self {
        Self {
            panic_handler: Some(handler),
            ..self
        }
    }

    /// Counts all tasks that end here.
    pub(crate) fn counting(self, counts: Arc<RunCounts>) -> Self {
        Self {
            counting: Counting::All(counts),
            ..self
        }
    }

    /// Counts only the tasks that panic here.
    pub(crate) fn counting_panics(self, counts: Arc<RunCounts>) -> Self {
        Self {
            counting: Counting::Panics(counts),
            ..self
        }
    }

    /// The same context for a task that is run by the thread that waits for it, nested in the task that waits.
    pub(crate) fn by_waiter(self) -> Self {
        Self {
            by_waiter: true,
            ..self
        }
    }

    pub(crate) fn is_by_waiter(&self) -> bool {
        self.by_waiter
    }

    /// Leaves the current task out of the bookkeeping. For a task that was not submitted, but runs others that
    /// were.
    pub(crate) fn skip_accounting(&mut self) {
        self.unaccounted = true;
    }

    /// Notes that the current task was to run another one, which had been aborted.
    pub(crate) fn note_found_aborted(&mut self) {
        self.found_aborted = true;
    }

    /// Returns `true` once after [`note_found_aborted`](Self::note_found_aborted).
    pub(crate) fn take_found_aborted(&mut self) -> bool {
        mem::take(&mut self.found_aborted)
    }
}

impl JobContext for RunContext {
    #[inline]
    fn ended(&mut self, ran: Ran) {
        if mem::take(&mut self.unaccounted) {
            return;
        }
        match &self.counting {
            Counting::All(counts) => {
                counts.count(ran);
                // The task that waits still keeps the thread busy.
                if !self.by_waiter {
                    counts.end();
                }
            }
            Counting::Panics(counts) if ran == Ran::Panicked => counts.count(ran),
            Counting::Panics(_) | Counting::Nothing => {}
        }
        if let Some(semaphore) = &self.semaphore {
            semaphore.release();
        }
    }

    #[cold]
    fn unobserved_panic(&mut self, payload: Box<dyn Any + Send>) {
        match &self.panic_handler {
            Some(handler) => contain(|| handler(payload)),
            None => contain(|| drop(payload)),
        }
    }
}
