//! Polling futures where they are submitted, by the task that submits them.

use std::cell::Cell;
use std::future::poll_fn;

use tokio::task::coop;

use crate::join::Work;

crate::sync::plain_thread_local! {
    // `true` while this thread polls a job in place.
    static IN_PLACE: Cell<bool> = Cell::new(false);
}

crate::sync::plain_thread_local! {
    // The number of jobs that were submitted on this thread to be polled in place.
    static SUBMITTED: Cell<u32> = Cell::new(0);
}

/// The number of jobs polled in place that cost one unit of a task's cooperative budget, where they are submitted and
/// where they are read. A yield may cost as much as dozens of them.
pub(super) const JOBS_PER_UNIT: u32 = 4;

/// Exists while this thread polls a job in place. A job that submits another one does not poll that in place too:
/// a chain of such jobs would need the stack of one thread for all.
pub(super) struct InPlace;

impl InPlace {
    /// `None` if the thread already polls a job in place.
    pub(super) fn enter() -> Option<Self> {
        if IN_PLACE.with(|in_place| in_place.replace(true)) {
            return None;
        }
        Some(Self)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        IN_PLACE.with(|in_place| in_place.set(false));
    }
}

/// Polls work for the first time, on this thread. Returns it if it is pending.
///
/// The work gets a waker that does nothing, and not that of the task that runs here. No wake-up is lost by that:
/// every executor polls a new task once, and the waker of that poll is the one to be woken from then on.
pub(super) fn poll_in_place(work: Work) -> Option<Work> {
    match InPlace::enter() {
        Some(_polling) => work.poll_once(),
        None => Some(work),
    }
}

/// Consumes the budget of the task that submits a job to be polled in place, and yields if the budget is used up.
///
/// Nothing else uses the thread's counter while the task submits.
pub(super) async fn consume_budget() {
    let submitted = SUBMITTED.with(|submitted| submitted.replace(submitted.get().wrapping_add(1)));
    if submitted.is_multiple_of(JOBS_PER_UNIT) {
        poll_fn(|cx| coop::poll_proceed(cx).map(|coop| coop.made_progress())).await;
    }
}
