//! A counting semaphore: the bound of a pool, and both bounds of a stream.
//!
//! There is one way to get a permit: to take it out of the state word, by compare-and-swap. A *waiter*, which found
//! no permit, sleeps in a wait queue. [`release`](Semaphore::release) wakes one waiter, in the order of arrival, and
//! grants it nothing: the waiter tries again when it is polled, and *loses* if a newcomer was faster. So no permit is
//! lost to a future that is never polled, and a permit does not lie idle while a waiter is on its way to a processor.
//!
//! Fairness is bounded: a waiter that has lost [`MAX_LOSSES`] times is *starving*. The state word counts the starving
//! waiters, and everybody else leaves one free permit to each of them.
//!
//! A wake-up, and the claim of a starving waiter, last until its future is polled or dropped. So a caller should not
//! keep a waiting future without polling it.

use crate::sync::{AtomicUsize, Number, Ordering};
use crate::wait_queue::WaitQueue;

/// `acquire` fails from now on. Never cleared.
const CLOSED: usize = 1;
/// One starving waiter.
const STARVING: usize = 1 << 1;
/// The most waiters that can starve at a time: 32,767, or 127 on a 32-bit system. Others wait in the normal way.
const MAX_STARVING: usize = (1 << (usize::BITS / 4 - 1)) - 1;
/// One permit in use.
const PERMIT: usize = STARVING * (MAX_STARVING + 1);

/// The number of times that a waiter may be woken without getting a permit. After that, it starves.
const MAX_LOSSES: usize = 2;

/// Hands out a bounded number of permits, and lets tasks wait for one.
#[derive(Debug)]
pub(crate) struct Semaphore {
    /// `[ permits in use | starving waiters | CLOSED ]`
    state: AtomicUsize,
    limit: Number,
    waiters: WaitQueue,
    starving: WaitQueue,
    /// Tasks that wait until the semaphore is closed and no permit is in use.
    drained: WaitQueue,
}

/// The reason why no permit was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryAcquireError {
    Full,
    Closed,
}

impl Semaphore {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: AtomicUsize::new(0),
            limit: Number::new(representable(limit)),
            waiters: WaitQueue::new(),
            starving: WaitQueue::new(),
            drained: WaitQueue::new(),
        }
    }

    /// Acquires a permit that no starving waiter has a claim to.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `n + starving < limit` | `n + 1` | `Ok` |
    /// | `n + starving >= limit` | unchanged | `Full` |
    /// | `CLOSED` | unchanged | `Closed` |
    pub(crate) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.acquire_from(self.state.load(Ordering::Relaxed))
    }

    fn acquire_from(&self, state: usize) -> Result<(), TryAcquireError> {
        self.update(state, |state| {
            let has_permit = self.free(state) > starving(state);
            has_permit.then_some(state + PERMIT)
        })
    }

    /// Acquires a permit even if that exceeds the limit.
    pub(crate) fn acquire_over_limit(&self) {
        self.state.fetch_add(PERMIT, Ordering::Relaxed);
    }

    /// Waits for a permit. Fails when the semaphore is closed.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has acquired no permit, and passes its wake-up on.
    pub(crate) async fn acquire(&self) -> Result<(), TryAcquireError> {
        let mut acquired = self.try_acquire();
        while acquired == Err(TryAcquireError::Full) {
            acquired = self.wait().await;
            if acquired == Err(TryAcquireError::Full) {
                acquired = self.starve().await;
            }
        }
        acquired
    }

    /// Waits until there is a permit, or until the waiter has lost too often, which returns `Full`.
    async fn wait(&self) -> Result<(), TryAcquireError> {
        let mut failures = 0;
        let attempt = || match self.acquire_from(self.latest()) {
            // The first failure is no loss: nobody had woken this waiter.
            Err(TryAcquireError::Full) if failures < MAX_LOSSES => {
                failures += 1;
                None
            }
            other => Some(other),
        };
        self.waiters.wait(attempt).await
    }

    /// Waits with a claim to the next free permit. Returns `Full` if too many waiters starve already.
    async fn starve(&self) -> Result<(), TryAcquireError> {
        let mut claim = PermitClaim {
            semaphore: self,
            is_counted: false,
        };
        // The first attempt counts the waiter: by then it is in the queue, so a release that sees the count wakes it.
        self.starving.wait(|| claim.attempt()).await
    }

    /// The latest state, and not an old one, as a load may return.
    ///
    /// A waiter enters a wait queue, and then does this; a release changes the same word, and then looks for waiters.
    /// Of the two changes one comes first: the waiter sees the permit, or the release sees the waiter.
    fn latest(&self) -> usize {
        // Ordering: Release pairs with the Acquire in `release`, for the number of waiters in the queue; Acquire with
        // the Release in `set_limit`.
        self.state.fetch_or(0, Ordering::AcqRel)
    }

    /// Changes the state, unless the semaphore is closed or `change` returns `None`: there is no permit.
    fn update(
        &self,
        mut state: usize,
        mut change: impl FnMut(usize) -> Option<usize>,
    ) -> Result<(), TryAcquireError> {
        loop {
            if state & CLOSED != 0 {
                return Err(TryAcquireError::Closed);
            }
            let new = change(state).ok_or(TryAcquireError::Full)?;
            // Ordering: Acquire pairs with the Release in `release`: what was done with a permit comes before what its
            // next holder does.
            match self
                .state
                .compare_exchange_weak(state, new, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(actual) => state = actual,
            }
        }
    }

    /// Returns a permit, and wakes a waiter that can have it.
    ///
    /// A compute pool that drops a task which it has not accepted calls this before the matching `acquire_over_limit`. If no
    /// permit was in use, the count wraps around until then, which looks like a full semaphore: callers wait or are
    /// refused, but never get a permit that does not exist.
    pub(crate) fn release(&self) {
        // Ordering: Release pairs with the Acquire in `update`, Acquire with the Release in `latest`.
        let before = self.state.fetch_sub(PERMIT, Ordering::AcqRel);
        let state = before.wrapping_sub(PERMIT);
        self.wake_for(state);
        if is_drained(state) {
            self.drained.notify_all();
        }
    }

    /// Wakes the waiter for whom the newest free permit is.
    fn wake_for(&self, state: usize) {
        let free = self.free(state);
        if free > starving(state) {
            self.waiters.notify_one();
        } else if free > 0 {
            self.starving.notify_one();
        }
    }

    /// Changes the limit. Permits in use stay valid even if they exceed it. This wakes nobody, so that the caller may
    /// hold a lock: [`notify_all`](Self::notify_all), which runs wakers, must follow.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.set(representable(limit));
        // A change of the word that waiters read: a waiter that has not seen the new limit is in its queue by now.
        // Ordering: Release pairs with the Acquire in `latest`, for the limit; Acquire with the Release there, for the
        // queue.
        self.state.fetch_or(0, Ordering::AcqRel);
    }

    /// Wakes all waiters, which try again.
    pub(crate) fn notify_all(&self) {
        self.starving.notify_all();
        self.waiters.notify_all();
    }

    /// Refuses all attempts from now on, also those of waiters.
    pub(crate) fn close(&self) {
        // Relaxed is enough: `notify_all` takes a lock that a waiter takes before its attempt. If the waiter is first,
        // it is woken; if not, it sees what was done before.
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        self.notify_all();
        self.drained.notify_all();
    }

    /// Waits until the semaphore is closed and no permit is in use.
    pub(crate) async fn drained(&self) {
        let is_drained = || is_drained(self.latest()).then_some(());
        self.drained.wait(is_drained).await;
    }

    /// The number of permits in use.
    pub(crate) fn count(&self) -> usize {
        in_use(self.state.load(Ordering::Relaxed))
    }

    /// The number of free permits, with those that starving waiters have a claim to.
    fn free(&self, state: usize) -> usize {
        self.limit.get().saturating_sub(in_use(state))
    }
}

/// The claim of a starving waiter to the next free permit. Dropping it gives the claim up.
struct PermitClaim<'a> {
    semaphore: &'a Semaphore,
    /// The state counts the waiter.
    is_counted: bool,
}

impl PermitClaim<'_> {
    /// Returns `None` if the waiter has to wait.
    fn attempt(&mut self) -> Option<Result<(), TryAcquireError>> {
        if self.is_counted {
            self.redeem()
        } else {
            self.acquire_or_count()
        }
    }

    /// Acquires a permit like a newcomer, or else counts the waiter as starving. Both are one step: a permit that was
    /// free before is for the waiter that it has woken.
    fn acquire_or_count(&mut self) -> Option<Result<(), TryAcquireError>> {
        let semaphore = self.semaphore;
        let mut counts = false;
        let changed = semaphore.update(semaphore.latest(), |state| {
            counts = semaphore.free(state) <= starving(state);
            match counts {
                false => Some(state + PERMIT),
                true => (starving(state) < MAX_STARVING).then_some(state + STARVING),
            }
        });
        self.is_counted = counts && changed.is_ok();
        (!self.is_counted).then_some(changed)
    }

    /// Exchanges the claim for a permit, if one is free.
    fn redeem(&mut self) -> Option<Result<(), TryAcquireError>> {
        let semaphore = self.semaphore;
        let acquired = semaphore.update(semaphore.latest(), |state| {
            (semaphore.free(state) > 0).then_some(state + PERMIT - STARVING)
        });
        self.is_counted = acquired.is_err();
        (acquired != Err(TryAcquireError::Full)).then_some(acquired)
    }
}

impl Drop for PermitClaim<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            // The permit that was left to this waiter is for another.
            // Ordering: AcqRel, as `release`.
            let before = self.semaphore.state.fetch_sub(STARVING, Ordering::AcqRel);
            self.semaphore.wake_for(before - STARVING);
        }
    }
}

fn in_use(state: usize) -> usize {
    state / PERMIT
}

fn is_drained(state: usize) -> bool {
    state & CLOSED != 0 && in_use(state) == 0
}

fn starving(state: usize) -> usize {
    state / STARVING % (MAX_STARVING + 1)
}

/// The limit, or the largest one that the state can count to, with room for permits beyond the limit.
fn representable(limit: usize) -> usize {
    limit.min(usize::MAX / PERMIT / 2)
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
