//! The ledger of a store of durable tasks.

use throng::durable::Counts;

/// Every claim of a task has ended in one way, or is held.
#[track_caller]
pub(crate) fn assert_balanced(counts: &Counts) {
    let ends = counts.done
        + counts.retried
        + counts.snoozed
        + counts.died
        + counts.released
        + counts.crashed
        + counts.lost
        + counts.cancelled;
    assert_eq!(counts.claimed, ends + counts.running, "{counts:?}");
}
