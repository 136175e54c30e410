//! Room for a bounded number of things, and those who wait for it.
//!
//! Whoever leaves wakes one who waits, in the order in which they came, and grants nothing: the
//! woken one tries again, and may lose to somebody who came in between. So a place is never lost to
//! a future that nobody polls. A wake-up is, until that future is dropped, which passes it on, or
//! until somebody else leaves and wakes the next: do not keep a future that waits without polling it.

use crate::bell::Bell;
use crate::sync::{AtomicUsize, Ordering};

/// Set once nobody may enter any more. The count is what is above it.
const CLOSED: usize = 1;
const ONE: usize = 2;

/// Counts what is inside, refuses what does not fit, and lets it wait.
#[derive(Debug)]
pub(crate) struct Room {
    /// `[ count | CLOSED ]`. `CLOSED` is never cleared.
    state: AtomicUsize,
    limit: usize,
    /// Rung by who leaves.
    bell: Bell,
}

/// Why there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Full,
    Closed,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: AtomicUsize::new(0),
            limit: limit.min(usize::MAX / ONE - 1),
            bell: Bell::new(),
        }
    }

    /// Takes a place, if there is one.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `n < limit` | `n + 1` | `Ok` |
    /// | `limit` | unchanged | `Full` |
    /// | `CLOSED` | unchanged | `Closed` |
    pub(crate) fn try_enter(&self) -> Result<(), NoRoom> {
        self.enter_from(self.state.load(Ordering::Relaxed))
    }

    /// Takes a place, after `state` was seen.
    fn enter_from(&self, mut state: usize) -> Result<(), NoRoom> {
        loop {
            if state & CLOSED != 0 {
                return Err(NoRoom::Closed);
            }
            if state / ONE >= self.limit {
                return Err(NoRoom::Full);
            }
            // Ordering: Acquire pairs with the Release in `leave`: what was done in a place comes
            // before what the next one does there.
            match self.state.compare_exchange_weak(
                state,
                state + ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(actual) => state = actual,
            }
        }
    }

    /// Takes a place, whether or not there is one.
    pub(crate) fn enter_unasked(&self) {
        self.state.fetch_add(ONE, Ordering::Relaxed);
    }

    /// Waits for a place, and takes it; an error when the room is closed.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has taken no place, and passes a wake-up on.
    pub(crate) async fn enter(&self) -> Result<(), NoRoom> {
        match self.try_enter() {
            Err(NoRoom::Full) => {}
            other => return other,
        }
        // The look is a read-modify-write that changes nothing. Who leaves changes the same word, before
        // or after. Before: we see the place. After: it sees that we wait.
        // Ordering: Release pairs with the Acquire in `leave`, for the count of those who wait.
        let look = || self.enter_from(self.state.fetch_or(0, Ordering::AcqRel));
        self.bell
            .wait(|| Some(look()).filter(|&entered| entered != Err(NoRoom::Full)))
            .await
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        // Ordering: Release pairs with the Acquire in `enter_from`, Acquire with the Release in
        // `enter`.
        self.state.fetch_sub(ONE, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Lets nobody in any more, and tells those who wait.
    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        self.bell.ring_all();
    }

    pub(crate) fn count(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
