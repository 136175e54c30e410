//! [`RunScope`]: tracks the durable handles that a run awaits.
//!
//! A run that awaits a durable handle waits for another run, which needs a permit. If all
//! permits were held by runs that wait, no run could continue. So a run gives its permit back while handles that
//! it has polled are pending, and the [scope](RunScope) that it is polled in counts them.

use std::sync::Arc as StdArc;

use crate::durable::TaskId;
use crate::durable::engine::waiters::WaitLimit;
use crate::sync::Number;

tokio::task_local! {
    static SCOPE: StdArc<RunScope>;
}

/// The maximum number of runs of an executor that await durable handles at once.
pub(crate) const MAX_WAITING: usize = 1024;

/// The durable handles that a run awaits, and their effect on the permit of the run.
pub(crate) struct RunScope {
    /// The task that runs.
    task: TaskId,
    rule: Rule,
    /// Handles that were polled in this scope and are pending.
    pending: Number,
    /// The runs of the executor that await handles.
    waiting: StdArc<Number>,
}

/// The rule for the permit of a run that awaits a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The run gives it back while it waits.
    GiveBack,
    /// The run keeps it, since it is quarantined.
    Keep,
    /// There is no permit for another run: the run must not wait.
    Refuse,
}

impl RunScope {
    pub(crate) fn new(task: TaskId, rule: Rule, waiting: StdArc<Number>) -> StdArc<Self> {
        StdArc::new(Self {
            task,
            rule,
            pending: Number::new(0),
            waiting,
        })
    }

    /// Calls `poll`, which polls a run, in this scope.
    pub(crate) fn enter<T>(self: &StdArc<Self>, poll: impl FnOnce() -> T) -> T {
        SCOPE.sync_scope(StdArc::clone(self), poll)
    }

    /// Returns `true` if the run needs no permit until it is woken.
    pub(crate) fn is_waiting(&self) -> bool {
        self.rule == Rule::GiveBack && self.pending.get() > 0
    }

    /// Counts a handle, unless the run must not wait for it.
    fn wait(self: &StdArc<Self>) -> Option<Pending> {
        if self.rule == Rule::Refuse {
            return None;
        }
        let is_first = self.pending.add(1) == 0;
        if is_first && self.waiting.add(1) >= MAX_WAITING {
            self.waiting.subtract(1);
            self.pending.subtract(1);
            return None;
        }
        Some(Pending(StdArc::clone(self)))
    }
}

/// Returns `true` if this is called in a run of the task.
pub(crate) fn is_run_of(task: TaskId) -> bool {
    SCOPE.try_with(|scope| scope.task == task).unwrap_or(false)
}

/// The wait of a handle, as the run that polls it counts it.
#[derive(Default)]
pub(crate) struct Wait {
    scope: Option<StdArc<RunScope>>,
    pending: Option<Pending>,
}

impl Wait {
    /// Begins to wait in the run that is being polled, if there is one.
    pub(crate) fn begin() -> Self {
        let scope = SCOPE.try_with(StdArc::clone).ok();
        let pending = scope.as_ref().and_then(RunScope::wait);
        Self { scope, pending }
    }

    /// Returns `true` if it began in the run that is being polled, or if both are outside of runs.
    pub(crate) fn is_here(&self) -> bool {
        let of = self.scope.as_ref().map(StdArc::as_ptr);
        of == SCOPE.try_with(StdArc::as_ptr).ok()
    }

    /// Returns how long the handle may wait.
    pub(crate) fn limit(&self) -> WaitLimit {
        match (&self.scope, &self.pending) {
            (Some(_), None) => WaitLimit::OneAnswer,
            (Some(scope), _) if scope.rule == Rule::Keep => WaitLimit::WhileServed,
            _ => WaitLimit::Unlimited,
        }
    }
}

/// A pending handle that is counted. It may end on any thread.
struct Pending(StdArc<RunScope>);

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.pending.subtract(1) == 1 {
            self.0.waiting.subtract(1);
        }
    }
}
