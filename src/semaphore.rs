//! Semaphore for a bounded number of things, and those who wait for it.
//!
//! Whoever leaves wakes one who waits, in the order in which they came, and grants nothing: the
//! woken one tries again, and may lose to somebody who came in between. So a place is never lost to
//! a future that nobody polls. A wake-up is, until that future is dropped, which passes it on, or
//! until somebody else leaves and wakes the next: do not keep a future that waits without polling it.
//!
//! One who has lost twice is [served](Handoff): who leaves next hands its place over.

mod handoff;

use self::handoff::Handoff;
use crate::sync::{AtomicUsize, Number, Ordering};
use crate::wait_queue::WaitQueue;

/// Set once nobody may enter any more. The count is what is above it.
const CLOSED: usize = 1;
const ONE: usize = 2;

/// How often one who waits may be woken in vain.
const LOSSES: usize = 2;

/// Counts what is inside, refuses what does not fit, and lets it wait.
#[derive(Debug)]
pub(crate) struct Semaphore {
    /// `[ count | CLOSED ]`. `CLOSED` is never cleared.
    state: AtomicUsize,
    limit: Number,
    /// Rung by who leaves.
    bell: WaitQueue,
    served: Handoff,
}

/// Why there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryAcquireError {
    Full,
    Closed,
}

impl Semaphore {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: AtomicUsize::new(0),
            limit: Number::new(bounded(limit)),
            bell: WaitQueue::new(),
            served: Handoff::new(),
        }
    }

    /// Takes a place, if there is one.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `n < limit` | `n + 1` | `Ok` |
    /// | `limit` | unchanged | `Full` |
    /// | `CLOSED` | unchanged | `Closed` |
    pub(crate) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.acquire_from(self.state.load(Ordering::Relaxed))
    }

    /// Takes a place, after `state` was seen.
    fn acquire_from(&self, mut state: usize) -> Result<(), TryAcquireError> {
        loop {
            if state & CLOSED != 0 {
                return Err(TryAcquireError::Closed);
            }
            if state / ONE >= self.limit.get() {
                return Err(TryAcquireError::Full);
            }
            // Ordering: Acquire pairs with the Release in `vacate`: what was done in a place comes
            // before what the next one does there. (What is handed over goes by a lock.)
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
    pub(crate) fn acquire_over_limit(&self) {
        self.state.fetch_add(ONE, Ordering::Relaxed);
    }

    /// Waits for a place, and takes it; an error when the room is closed.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has taken no place, and passes a wake-up on.
    pub(crate) async fn enter(&self) -> Result<(), TryAcquireError> {
        match self.try_acquire() {
            Err(TryAcquireError::Full) => {}
            other => return other,
        }
        let mut woken = 0;
        let look = || match self.look() {
            Err(TryAcquireError::Full) if woken < LOSSES => {
                woken += 1;
                None
            }
            other => Some(other),
        };
        match self.bell.wait(look).await {
            Err(TryAcquireError::Full) => self.be_served().await,
            other => other,
        }
    }

    /// Waits until a place is handed over.
    async fn be_served(&self) -> Result<(), TryAcquireError> {
        let mut guest = Guest::new(self);
        let mut entered = self.look();
        if entered == Err(TryAcquireError::Full) {
            entered = self.served.wait(|| self.is_closed()).await;
            guest.fed = entered.is_ok();
        }
        entered
    }

    /// Takes a place, if there is one, for one who will wait otherwise.
    fn look(&self) -> Result<(), TryAcquireError> {
        // A read-modify-write that changes nothing. Who leaves changes the same word, before or after.
        // Before: we see the place. After: it sees that we wait.
        // Ordering: Release pairs with the Acquire in `vacate`, for the count of those who wait;
        // Acquire with the Release in `set_limit`.
        self.acquire_from(self.state.fetch_or(0, Ordering::AcqRel))
    }

    fn is_closed(&self) -> bool {
        // Relaxed is enough: who closes tells all, by a lock that a guest has had before it looks. If it
        // had that first it is told; if not it sees what was done before.
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        if self.served.has_guests() && self.hands_over() && self.served.hand_over() {
            return;
        }
        self.vacate();
        if self.served.has_guests() {
            self.serve();
        }
        self.bell.notify_one();
    }

    /// Whether a place stays one when it is left: the room is open, and there are not too many inside.
    fn hands_over(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & CLOSED == 0 && state / ONE <= self.limit.get()
    }

    fn vacate(&self) {
        // Ordering: Release pairs with the Acquire in `acquire_from`, Acquire with the Release in
        // `look`.
        self.state.fetch_sub(ONE, Ordering::AcqRel);
    }

    /// Hands free places over to those who want to be served, and who have looked before there were any.
    #[cold]
    fn serve(&self) {
        while self.served.is_hungry() && self.try_acquire().is_ok() {
            if !self.served.hand_over() {
                self.vacate();
            }
        }
    }

    /// Changes how many may be inside. Who is inside stays, also if those are too many. Nobody is told:
    /// that is for [`tell_all`](Self::tell_all), which runs code of others, and needs no lock.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.set(bounded(limit));
        // A step of the word that those look at who wait: who has not seen the new limit is in the line.
        // Ordering: Release pairs with the Acquire in `look`, for the limit, Acquire with the Release there,
        // for the line.
        self.state.fetch_or(0, Ordering::AcqRel);
    }

    /// Has those look again who wait.
    pub(crate) fn tell_all(&self) {
        self.serve();
        self.bell.notify_all();
    }

    /// Lets nobody in any more, and tells those who wait.
    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        self.bell.notify_all();
        self.served.tell_all();
    }

    pub(crate) fn count(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }
}

/// One who waits to be handed a place. Dropping it gives up.
struct Guest<'a> {
    room: &'a Semaphore,
    fed: bool,
}

impl<'a> Guest<'a> {
    fn new(room: &'a Semaphore) -> Self {
        room.served.join();
        Self { room, fed: false }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if self.fed {
            self.room.served.leave_fed();
        } else if self.room.served.leave_hungry() {
            self.room.leave();
        }
    }
}

/// What fits into the word.
fn bounded(limit: usize) -> usize {
    limit.min(usize::MAX / ONE - 1)
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
