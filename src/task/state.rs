//! [`State`]: the state word of a cell. The module's page describes its bits, and the rules that they enforce.

use crate::sync::{AtomicU32, Ordering};

const CLAIMED: u32 = 1 << 0;
const COMPLETE: u32 = 1 << 1;
const WAKER: u32 = 1 << 2;
const DETACHED: u32 = 1 << 3;
const ABORTED: u32 = 1 << 4;
/// The lower one of the user bits.
const USER_BIT: u32 = 1 << 5;
const MAX_USER_BITS: u32 = 0b11;
/// The job was pending in its cell after a poll.
const SUSPENDED: u32 = 1 << 7;
/// The job was woken, before or after it was suspended.
const WOKEN: u32 = 1 << 8;
const REFERENCE: u32 = 1 << 9;

/// The maximum number of references, apart from those of calls in progress: half of what fits.
const MAX_HANDLES: u32 = u32::MAX / REFERENCE / 2;

/// The state word of a cell.
pub(super) struct State(AtomicU32);

/// The tasks that [`State::complete`] leaves to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The cell holds a waker, which is the caller's now.
    pub(crate) wake: bool,
    /// The handle is gone, so the outcome is still the caller's.
    pub(crate) discard: bool,
}

impl State {
    /// A job with two references: its runner's and its handle's.
    pub(super) fn joinable() -> Self {
        Self(AtomicU32::new(2 * REFERENCE))
    }

    /// The same, with two bits for the runner to read.
    pub(super) fn joinable_with_bits(bits: u8) -> Self {
        debug_assert!(u32::from(bits) <= MAX_USER_BITS);
        Self(AtomicU32::new(
            (2 * REFERENCE) | ((u32::from(bits) & MAX_USER_BITS) * USER_BIT),
        ))
    }

    /// A job with one reference: its runner's.
    pub(super) fn detached() -> Self {
        Self(AtomicU32::new(REFERENCE | DETACHED))
    }

    /// A job without a handle, and with two references: its runner's and an abort's.
    pub(super) fn destined() -> Self {
        Self(AtomicU32::new((2 * REFERENCE) | DETACHED))
    }

    /// A promise, which has no job to claim, and two references: its own and an abort's.
    pub(super) fn promised() -> Self {
        Self(AtomicU32::new((2 * REFERENCE) | DETACHED | CLAIMED))
    }

    /// A cell that is complete from the start, and has one reference: its handle's.
    pub(super) fn completed() -> Self {
        Self(AtomicU32::new(REFERENCE | CLAIMED | COMPLETE))
    }

    /// Claims the job. Returns `true` if it is now the caller's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `CLAIMED` | `true` |
    /// | `CLAIMED` | unchanged | `false` |
    #[inline]
    pub(super) fn claim(&self) -> bool {
        // Relaxed is enough: the job was written before any party got a reference, and the losers access nothing.
        self.0.fetch_or(CLAIMED, Ordering::Relaxed) & CLAIMED == 0
    }

    /// Returns the bits that the job was made with.
    pub(super) fn user_bits(&self) -> u8 {
        ((self.0.load(Ordering::Relaxed) / USER_BIT) & MAX_USER_BITS) as u8
    }

    /// Returns `true` if the job is claimed. The answer gives access to nothing.
    pub(super) fn is_claimed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLAIMED != 0
    }

    /// Claims the job to drop it without running it. Returns `true` if it is now the caller's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `CLAIMED ABORTED` | `true` |
    /// | `CLAIMED` | unchanged | `false` |
    pub(super) fn claim_to_drop(&self) -> bool {
        // In one step, and only if the job is not claimed: `is_awaited` must not take a closure that runs
        // for one that is dropped, nor the reverse.
        let claim = |word| (word & CLAIMED == 0).then_some(word | CLAIMED | ABORTED);
        // Relaxed is enough, as in `claim`.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim)
            .is_ok()
    }

    /// Asks that a claimed future or promise end. Returns `false` if it has ended.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `CLAIMED` | `CLAIMED ABORTED` | `true` |
    /// | `CLAIMED COMPLETE` | `CLAIMED COMPLETE ABORTED` | `false` |
    pub(super) fn request_abort(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `is_aborted`, so that a job that is told sees what the caller
        // did before the abort.
        self.0.fetch_or(ABORTED, Ordering::Release) & COMPLETE == 0
    }

    #[inline]
    pub(super) fn is_aborted(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `request_abort`, and of `wake`.
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }

    /// Leaves a claimed job, which is pending, in its cell, for the party that wakes it. Returns `false` if it was woken
    /// before: it stays the caller's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `CLAIMED` | `+ SUSPENDED` | `true` |
    /// | `CLAIMED WOKEN` | `+ SUSPENDED` | `false` |
    pub(super) fn suspend(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `wake`: the poll comes before the next one. Acquire is not needed:
        // if the job was woken before, its next poll begins with the Acquire of `is_aborted`.
        self.0.fetch_or(SUSPENDED, Ordering::Release) & WOKEN == 0
    }

    /// Wakes the job. Returns `true` if it was suspended: the runner's reference, and with it the job, is now the
    /// caller's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `SUSPENDED` | `SUSPENDED WOKEN` | `true` |
    /// | - | `WOKEN` | `false` |
    /// | `WOKEN` or `SUSPENDED WOKEN` | unchanged | `false` |
    pub(super) fn wake(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `suspend`. Release pairs with the Acquire of `is_aborted`, with which
        // each poll begins: it sees what was done before the wake-up.
        self.0.fetch_or(WOKEN, Ordering::AcqRel) & (SUSPENDED | WOKEN) == SUSPENDED
    }

    /// Returns `true` if the job was suspended and has been woken: the runner's reference is the claimant.
    pub(super) fn is_resumed(&self) -> bool {
        // Relaxed is enough: the party that asks has the runner's reference, which was passed on to it.
        !self.0.load(Ordering::Relaxed) & (SUSPENDED | WOKEN) == 0
    }

    /// Publishes the outcome, which the caller has written.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `CLAIMED` | `+ COMPLETE` | nothing to do |
    /// | `CLAIMED WAKER` | `+ COMPLETE` | `wake` |
    /// | `CLAIMED DETACHED` | `+ COMPLETE` | `discard` |
    #[inline]
    pub(super) fn complete(&self) -> Completion {
        // Ordering: Release publishes the outcome to the Acquire of `is_complete`, which comes before each read, and
        // of `detach`; Acquire pairs with the Release of `set_waker`, which publishes the waker.
        let before = self.0.fetch_or(COMPLETE, Ordering::AcqRel);
        debug_assert!(before & (CLAIMED | COMPLETE) == CLAIMED);
        Completion {
            wake: before & WAKER != 0,
            discard: before & DETACHED != 0,
        }
    }

    /// Returns `true` if the outcome may be read.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `complete`.
        self.0.load(Ordering::Acquire) & COMPLETE != 0
    }

    /// Returns `true` if the handle of a closure waits for a run: the closure has not ended, nobody drops it
    /// instead of running it, and the handle exists.
    ///
    /// This is a read-modify-write, so it sees the latest state: if it returns `true`, no thread has gone on
    /// because of the outcome.
    pub(super) fn is_awaited(&self) -> bool {
        // Relaxed is enough: the answer gives access to nothing.
        self.0.fetch_or(0, Ordering::Relaxed) & (COMPLETE | DETACHED | ABORTED) == 0
    }

    /// Returns `true` if the handle has stored a waker. Only the handle, which alone changes that, may ask.
    #[inline]
    pub(super) fn has_waker(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAKER != 0
    }

    /// Offers the waker that the handle has written. Returns `false` if the job is complete: the waker is still the
    /// handle's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `WAKER` | `true` |
    /// | `COMPLETE` | `COMPLETE` | `false` |
    pub(super) fn set_waker(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & COMPLETE != 0 {
                return false;
            }
            // Ordering: Release publishes the waker to the Acquire of `complete`.
            match self.0.compare_exchange_weak(
                word,
                word | WAKER,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(actual) => word = actual,
            }
        }
    }

    /// Takes the waker back. Returns `false` if the job is complete: the claimant has taken the waker.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `WAKER` | - | `true` |
    /// | `WAKER COMPLETE` | `COMPLETE` | `false` |
    pub(super) fn unset_waker(&self) -> bool {
        // Relaxed is enough: the handle takes back what it has written itself, and a claimant that completes after
        // this finds no waker, and does not access its place.
        self.0.fetch_and(!WAKER, Ordering::Relaxed) & COMPLETE == 0
    }

    /// Detaches the job from its handle. Returns `true` if the job is complete: the handle must drop the outcome.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `DETACHED` | `false` |
    /// | `COMPLETE` | `COMPLETE DETACHED` | `true` |
    pub(super) fn detach(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `complete`: the outcome may be dropped.
        self.0.fetch_or(DETACHED, Ordering::Acquire) & COMPLETE != 0
    }

    /// Adds a reference. The caller has one.
    ///
    /// # Panics
    ///
    /// Panics if there are [`MAX_HANDLES`], and changes nothing.
    #[inline]
    pub(super) fn retain(&self) {
        // Relaxed is enough, as in `Arc::clone`: the caller's reference keeps the cell alive.
        let before = self.0.fetch_add(REFERENCE, Ordering::Relaxed);
        if before / REFERENCE >= MAX_HANDLES {
            // Taken back, so that a caller that catches the panic cannot go on to an overflow.
            self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
            panic!("too many handles of one task");
        }
    }

    /// The same for the duration of a call, and without a panic: the count has as much room above the limit as below
    /// it, and there are always fewer calls in progress than that.
    #[inline]
    pub(super) fn retain_briefly(&self) {
        // Relaxed is enough, as above.
        self.0.fetch_add(REFERENCE, Ordering::Relaxed);
    }

    /// Gives two references back at once. Returns `true` if they were the last: the memory is the caller's.
    #[inline]
    pub(super) fn release_two(&self) -> bool {
        // The owner of the only two references is alone, as in `release`.
        // Ordering: Acquire pairs with the Release of the other parties' decrements, in `release`.
        if self.0.load(Ordering::Acquire) / REFERENCE == 2 {
            return true;
        }
        // Relaxed is enough: it is not the last one, and `release` publishes what came before.
        self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
        self.release()
    }

    /// Gives a reference back. Returns `true` if it was the last one: the memory is the caller's.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // The owner of the only reference is alone: no other party could make another.
        // Ordering: Acquire pairs with the Release of the other parties' decrements, below.
        if self.0.load(Ordering::Acquire) / REFERENCE == 1 {
            return true;
        }
        // Ordering: Release, paired with the Acquire below: all that the other parties did with the
        // cell comes before its memory is given back.
        if self.0.fetch_sub(REFERENCE, Ordering::Release) / REFERENCE != 1 {
            return false;
        }
        // Ordering: Acquire pairs with the Release of the other parties' decrements. A load, not a
        // fence, which ThreadSanitizer does not understand.
        self.0.load(Ordering::Acquire);
        true
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = self.0.load(Ordering::Relaxed);
        f.debug_struct("State")
            .field("claimed", &(word & CLAIMED != 0))
            .field("complete", &(word & COMPLETE != 0))
            .field("waker", &(word & WAKER != 0))
            .field("detached", &(word & DETACHED != 0))
            .field("aborted", &(word & ABORTED != 0))
            .field("suspended", &(word & SUSPENDED != 0))
            .field("woken", &(word & WOKEN != 0))
            .field("user_bits", &((word / USER_BIT) & MAX_USER_BITS))
            .field("references", &(word / REFERENCE))
            .finish()
    }
}
