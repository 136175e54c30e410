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
    queue: WaitQueue,
    handoff: Handoff,
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
            queue: WaitQueue::new(),
            handoff: Handoff::new(),
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
    pub(crate) async fn acquire(&self) -> Result<(), TryAcquireError> {
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
        match self.queue.wait(look).await {
            Err(TryAcquireError::Full) => self.acquire_by_handoff().await,
            other => other,
        }
    }

    /// Waits until a place is handed over.
    async fn acquire_by_handoff(&self) -> Result<(), TryAcquireError> {
        let mut waiter = Waiter::new(self);
        let mut acquired = self.look();
        if acquired == Err(TryAcquireError::Full) {
            acquired = self.handoff.wait(|| self.is_closed()).await;
            waiter.granted = acquired.is_ok();
        }
        acquired
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
    pub(crate) fn release(&self) {
        if self.handoff.has_waiters() && self.can_hand_over() && self.handoff.hand_over() {
            return;
        }
        self.vacate();
        if self.handoff.has_waiters() {
            self.serve();
        }
        self.queue.notify_one();
    }

    /// Whether a place stays one when it is left: the room is open, and there are not too many inside.
    fn can_hand_over(&self) -> bool {
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
        while self.handoff.is_waiting() && self.try_acquire().is_ok() {
            if !self.handoff.hand_over() {
                self.vacate();
            }
        }
    }

    /// Changes how many may be inside. Who is inside stays, also if those are too many. Nobody is told:
    /// that is for [`notify_all`](Self::notify_all), which runs code of others, and needs no lock.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.set(bounded(limit));
        // A step of the word that those look at who wait: who has not seen the new limit is in the line.
        // Ordering: Release pairs with the Acquire in `look`, for the limit, Acquire with the Release there,
        // for the line.
        self.state.fetch_or(0, Ordering::AcqRel);
    }

    /// Has those look again who wait.
    pub(crate) fn notify_all(&self) {
        self.serve();
        self.queue.notify_all();
    }

    /// Lets nobody in any more, and tells those who wait.
    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        self.queue.notify_all();
        self.handoff.notify_all();
    }

    pub(crate) fn count(&self) -> usize {
        self.state.load(Ordering::Relaxed) / ONE
    }
}

/// A waiter for a handed-over permit. Dropping it gives up.
struct Waiter<'a> {
    semaphore: &'a Semaphore,
    granted: bool,
}

impl<'a> Waiter<'a> {
    fn new(semaphore: &'a Semaphore) -> Self {
        semaphore.handoff.join();
        Self {
            semaphore,
            granted: false,
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.granted {
            self.semaphore.handoff.leave_granted();
        } else if self.semaphore.handoff.leave_waiting() {
            self.semaphore.release();
        }
    }
}

/// What fits into the word.
fn bounded(limit: usize) -> usize {
    limit.min(usize::MAX / ONE - 1)
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
