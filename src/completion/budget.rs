//! What jobs that are polled in place take of the budgets of the tasks that submit and read them.

use std::cell::Cell;
use std::future::poll_fn;

use tokio::task::coop;

use super::shared::Shared;

crate::sync::plain_thread_local! {
    // How many jobs have been submitted on this thread, to be polled in place.
    static POLLED: Cell<u32> = Cell::new(0);
}

/// So many jobs that are polled in place take one unit of a task's budget, where they are submitted and
/// where they are read. A yield may cost as much as dozens of them.
const JOBS_PER_UNIT: u32 = 4;

impl<T, K> Shared<T, K> {
    /// How many items are read for one unit.
    pub(super) fn items_per_unit(&self) -> u32 {
        match self.in_place {
            true => JOBS_PER_UNIT,
            false => 1,
        }
    }

    /// If jobs are polled in place: yields if the budget of the task is spent, and takes its share of it.
    /// While a task submits, nobody else counts on its thread.
    pub(super) async fn tick(&self) {
        if !self.in_place {
            return;
        }
        let polled = POLLED.with(|polled| polled.replace(polled.get().wrapping_add(1)));
        if polled.is_multiple_of(JOBS_PER_UNIT) {
            poll_fn(|cx| coop::poll_proceed(cx).map(|coop| coop.made_progress())).await;
        }
    }
}
