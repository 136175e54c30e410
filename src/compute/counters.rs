//! [`Counters`]: the numbers of a lane, and the cost of its tasks.

use std::time::Duration;

use crate::join::RunCounts;
use crate::sync::{Arc, MODEL, Number};

/// The most tasks of a batch.
pub(super) const MAX_BATCH: usize = if MODEL { 2 } else { 64 };

/// The time that a batch should take.
const BATCH_NS: usize = 20_000;
/// A task that takes longer may be measured each time.
const MEASURABLE_NS: usize = 1_000;
/// The assumed cost of a task before the first measurement: enough to wake another worker.
const INITIAL_COST_NS: usize = 10_000;

/// The numbers of a lane. Only the lane's worker writes to them, unless a field says otherwise.
pub(super) struct Counters {
    /// Tasks that have started.
    pub(super) started: Number,
    /// The outcomes of the tasks.
    pub(super) outcomes: Arc<RunCounts>,
    /// Tasks that were aborted before they started.
    pub(super) cancelled: Number,
    /// Tasks that the worker has stolen from other lanes.
    pub(super) stolen: Number,
    /// Tasks that have left this lane without having run here. The thread that takes them writes it.
    pub(super) removed: Number,
    /// Started tasks that were not submitted: drains of keys.
    pub(super) drains: Number,
    /// Tasks that the worker has pushed itself.
    pub(super) pushed: Number,
    /// The number of tasks that had been pushed when the inbox was last drained.
    pub(super) drained: Number,
    /// The moving average of the nanoseconds that a task takes.
    cost: Number,
    /// The number of tasks in a batch: small if they take long.
    batch_size: Number,
}

impl Counters {
    pub(super) fn new() -> Self {
        let counters = Self {
            started: Number::new(0),
            outcomes: Arc::default(),
            cancelled: Number::new(0),
            stolen: Number::new(0),
            removed: Number::new(0),
            drains: Number::new(0),
            pushed: Number::new(0),
            drained: Number::new(0),
            cost: Number::new(0),
            batch_size: Number::new(0),
        };
        counters.set_cost(INITIAL_COST_NS);
        counters
    }

    /// Updates the average with a measurement.
    pub(super) fn record_cost(&self, elapsed: Duration, tasks: usize) {
        // Models have no time.
        if tasks > 0 && !MODEL {
            let elapsed = usize::try_from(elapsed.as_nanos()).unwrap_or(usize::MAX);
            let cost = elapsed / tasks;
            let before = self.cost.get();
            self.set_cost((before / 2).saturating_add(cost / 2).max(1));
        }
    }

    fn set_cost(&self, cost: usize) {
        self.cost.set(cost);
        self.batch_size.set((BATCH_NS / cost).clamp(1, MAX_BATCH));
    }

    /// Returns the nanoseconds that this number of tasks is expected to take.
    #[inline]
    pub(super) fn expected_ns(&self, tasks: usize) -> usize {
        tasks.saturating_mul(self.cost.get())
    }

    /// Returns `true` if tasks take so little time that reading the clock for each would slow them down.
    pub(super) fn is_fast(&self) -> bool {
        self.cost.get() < MEASURABLE_NS
    }

    #[inline]
    pub(super) fn batch_size(&self) -> usize {
        self.batch_size.get()
    }
}
