//! [`InPlaceGuard`]: keeps jobs that are polled in place from nesting.

use std::cell::Cell;

crate::sync::plain_thread_local! {
    // Set while this thread polls a job in place.
    static IN_PLACE: Cell<bool> = Cell::new(false);
}

/// The scope in which this thread polls a job in place. A job that submits another does not poll that one in
/// place, too: the stack would grow with the chain.
pub(super) struct InPlaceGuard(());

impl InPlaceGuard {
    /// Returns `None` if this thread polls a job in place already.
    pub(super) fn enter() -> Option<Self> {
        if IN_PLACE.with(|in_place| in_place.replace(true)) {
            return None;
        }
        Some(Self(()))
    }
}

impl Drop for InPlaceGuard {
    fn drop(&mut self) {
        IN_PLACE.with(|in_place| in_place.set(false));
    }
}
