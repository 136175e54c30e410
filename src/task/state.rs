//! The state word of a cell: who may touch what is in it, and who still holds it.
//!
//! ```text
//! word:  [ references | mark (2 bits) | ABORTED | DETACHED | WAKER | COMPLETE | CLAIMED ]
//! ```
//!
//! | bit | set when | by | never |
//! |---|---|---|---|
//! | `CLAIMED` | the right to the job is taken: to run it, or to drop it | the runner, the handle that waits, or whoever aborts, the first of them | cleared |
//! | `COMPLETE` | the outcome is written | the claimant | cleared; set before `CLAIMED` |
//! | `WAKER` | the waker's place holds a waker | the handle | set or cleared by another than the handle |
//! | `DETACHED` | nobody will ask for the outcome | the handle, when dropped, or at birth | cleared |
//! | `ABORTED` | the job was claimed to be dropped; or it is a future or a promise, and was told to end | the runner's reference, or any `AbortHandle` | set by an abort of a closure that runs |
//! | the mark | at birth: what it means is the business of who made the job | its maker | changed |
//!
//! What is in a cell belongs to one party at a time:
//!
//! - the job: to the claimant, from `CLAIMED` on (before, to nobody);
//! - the outcome: to the claimant until `COMPLETE`; then to the handle, or, if `DETACHED` was set
//!   before `COMPLETE`, still to the claimant, who drops it;
//! - the waker's place: to the handle while `WAKER` is not set; while it is set, whoever sets
//!   `COMPLETE` takes the waker, and until then both may read it; after that it is empty;
//! - the memory: to whoever gives the last reference back.

use crate::sync::{AtomicU32, Ordering};

const CLAIMED: u32 = 1 << 0;
const COMPLETE: u32 = 1 << 1;
const WAKER: u32 = 1 << 2;
const DETACHED: u32 = 1 << 3;
const ABORTED: u32 = 1 << 4;
const USER_BIT: u32 = 1 << 5;
const USER_BITS: u32 = 0b11;
const REFERENCE: u32 = 1 << 7;

/// The maximum number of references, apart from those of calls in progress: half of what fits.
const MAX_HANDLES: u32 = u32::MAX / REFERENCE / 2;

/// The state word: see the module.
pub(super) struct State(AtomicU32);

/// What [`State::complete`] leaves to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// A waker is in its place, and now the caller's.
    pub(crate) wake: bool,
    /// The handle is gone: the outcome is still the caller's.
    pub(crate) discard: bool,
}

impl State {
    /// The word of a job that two parties hold: its runner and its handle.
    pub(super) fn joinable() -> Self {
        Self(AtomicU32::new(2 * REFERENCE))
    }

    /// The same word with a mark, of two bits, which the runner can read.
    pub(super) fn joinable_with_bits(bits: u8) -> Self {
        debug_assert!(u32::from(bits) <= USER_BITS);
        Self(AtomicU32::new(
            (2 * REFERENCE) | ((u32::from(bits) & USER_BITS) * USER_BIT),
        ))
    }

    /// The word of a job that only its runner holds.
    pub(super) fn detached() -> Self {
        Self(AtomicU32::new(REFERENCE | DETACHED))
    }

    /// The word of a job without a handle: its runner holds it, and who can abort it.
    pub(super) fn destined() -> Self {
        Self(AtomicU32::new((2 * REFERENCE) | DETACHED))
    }

    /// The word of a promise: there is no job to claim. Who fulfils it holds it, and who can abort it.
    pub(super) fn promised() -> Self {
        Self(AtomicU32::new((2 * REFERENCE) | DETACHED | CLAIMED))
    }

    /// Claims the job; `true` if it is now the caller's.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `CLAIMED` | `true` |
    /// | `CLAIMED` | unchanged | `false` |
    #[inline]
    pub(super) fn claim(&self) -> bool {
        // Relaxed is enough: the job was written before any party got hold of the cell, and the losers
        // touch nothing.
        self.0.fetch_or(CLAIMED, Ordering::Relaxed) & CLAIMED == 0
    }

    /// The mark that the job was born with.
    pub(super) fn user_bits(&self) -> u8 {
        ((self.0.load(Ordering::Relaxed) / USER_BIT) & USER_BITS) as u8
    }

    /// Whether the job is claimed. Only who claims it may do something about it.
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
    pub(super) fn tell_abort(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `is_aborted`, so that what the caller did
        // before it aborted is seen by a job that is told.
        self.0.fetch_or(ABORTED, Ordering::Release) & COMPLETE == 0
    }

    #[inline]
    pub(super) fn is_aborted(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `tell_abort`.
        self.0.load(Ordering::Acquire) & ABORTED != 0
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
        // Ordering: Release publishes the outcome to the Acquire of `is_complete`, without which nobody
        // reads it, and of `detach`; Acquire pairs with the Release of `set_waker`, which publishes
        // the waker.
        let before = self.0.fetch_or(COMPLETE, Ordering::AcqRel);
        debug_assert!(before & (CLAIMED | COMPLETE) == CLAIMED);
        Completion {
            wake: before & WAKER != 0,
            discard: before & DETACHED != 0,
        }
    }

    /// Whether the outcome may be read.
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

    /// Whether the handle has left a waker. Only the handle, which alone changes that, may ask.
    #[inline]
    pub(super) fn has_waker(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAKER != 0
    }

    /// Offers the waker that the handle has put into its place; `false`: the job is complete, and
    /// the waker's place still the handle's.
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

    /// Takes the waker back; `false`: the job is complete, and its runner has taken the waker.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `WAKER` | - | `true` |
    /// | `WAKER COMPLETE` | `COMPLETE` | `false` |
    pub(super) fn unset_waker(&self) -> bool {
        // Relaxed is enough: the handle takes back what it has written itself, and who completes after
        // this finds no waker, and leaves its place alone.
        self.0.fetch_and(!WAKER, Ordering::Relaxed) & COMPLETE == 0
    }

    /// The handle goes; `true`: the job is complete, and its outcome the handle's, to drop.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | - | `DETACHED` | `false` |
    /// | `COMPLETE` | `COMPLETE DETACHED` | `true` |
    pub(super) fn detach(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `complete`: the outcome may be dropped.
        self.0.fetch_or(DETACHED, Ordering::Acquire) & COMPLETE != 0
    }

    /// One more party holds the cell. The caller is one.
    ///
    /// # Panics
    ///
    /// Panics if there are [`MAX_HANDLES`]. Nothing has changed then.
    #[inline]
    pub(super) fn retain(&self) {
        // Relaxed is enough, as in `Arc::clone`: the caller's reference keeps the cell alive.
        let before = self.0.fetch_add(REFERENCE, Ordering::Relaxed);
        if before / REFERENCE >= MAX_HANDLES {
            // Taken back, so that who catches the panic cannot go on to an overflow.
            self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
            panic!("too many handles of one task");
        }
    }

    /// The same for the duration of a call, and without a panic: the count has as much room above the limit as
    /// below it, and there are always fewer calls in progress than that.
    #[inline]
    pub(super) fn retain_briefly(&self) {
        // Relaxed is enough, as above.
        self.0.fetch_add(REFERENCE, Ordering::Relaxed);
    }

    /// The caller no longer holds the cell; `true`: nobody does, and the memory is the caller's.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // Who holds the only reference is alone: nobody else could make another.
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
            .field("mark", &((word / USER_BIT) & USER_BITS))
            .field("references", &(word / REFERENCE))
            .finish()
    }
}
