//! A cell for the waker of one task, which any thread may wake.
//!
//! ```text
//! word:  [ BUSY | OFFERED ]
//! ```
//!
//! | word | slot | may become |
//! |---|---|---|
//! | `EMPTY` (0) | empty | `BUSY`, by the party that fills it |
//! | `FULL` (`BUSY OFFERED`) | holds a waker | `BUSY`, by the party that takes it out, replaces it, or compares it |
//! | `BUSY` | belongs to the party that set the word to this | `EMPTY` or `FULL`, by that party |
//!
//! A party uses the slot for a few instructions, and none of them is user code: a waker is cloned before, and woken or
//! dropped after. So if a waker panics, the cell remains usable.
//!
//! **Why no wake-up is lost.** A task registers, and then checks its condition. Another party changes the condition,
//! and then wakes. Both end with a read-modify-write of the word: [`register`](WakerCell::register) sets it to
//! `FULL`, and [`wake`](WakerCell::wake) clears `OFFERED` even if it is not set. If the wake is the later of the two,
//! it finds the waker. If it is the earlier, the registration acquires what the wake released, so the check sees the
//! change. A party that finds the slot in use does not wait for it. If that party wakes, the registration that uses
//! the slot, or the next one, is ordered after the wake. If it registers, its task is woken at once.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::task::Waker;

use crate::sync::{AtomicU32, MODEL, Ordering, UnsafeCell, spin_loop};
use crate::unwind::contain;

const EMPTY: u32 = 0;
const OFFERED: u32 = 1 << 0;
const BUSY: u32 = 1 << 1;
const FULL: u32 = BUSY | OFFERED;

/// A cell for a waker: see the module. One task at a time should register.
pub(crate) struct WakerCell {
    /// An integer needs no drop. In models, it does: see `drop`.
    word: ManuallyDrop<AtomicU32>,
    /// Initialised while the word is `FULL`.
    slot: UnsafeCell<MaybeUninit<Waker>>,
}

// SAFETY: the word ensures that one party at a time uses the slot; a waker is Send and Sync.
unsafe impl Send for WakerCell {}
// SAFETY: as above.
unsafe impl Sync for WakerCell {}

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self {
            word: ManuallyDrop::new(AtomicU32::new(EMPTY)),
            slot: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Registers `waker` for the next [`wake`](Self::wake), in place of a waker that was registered before.
    /// A task that checks its condition after this call misses no wake-up.
    ///
    /// # Panics
    ///
    /// Panics if the waker panics when it is cloned or, since the slot is in use, woken. The previous waker may
    /// still be registered then.
    pub(crate) fn register(&self, waker: &Waker) {
        if self.holds(waker) {
            return;
        }
        let new = waker.clone();
        match self.seize() {
            SlotState::Empty => self.fill(new),
            SlotState::Full => {
                let old = self.read();
                self.fill(new);
                contain(|| drop(old));
            }
            SlotState::InUse => {
                // For a few instructions of another thread: the task that polls again should find it free.
                spin_loop();
                new.wake();
            }
        }
    }

    /// Wakes the task that has registered, if there is one. A panic of its waker goes no further.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take() {
            contain(|| waker.wake());
        }
    }

    /// Drops the registered waker, if there is one. Only the party that registers calls this.
    pub(crate) fn clear(&self) {
        // Relaxed is enough: this party has written the current value, or another has emptied the cell since.
        if self.word.load(Ordering::Relaxed) != EMPTY
            && let Some(waker) = self.take()
        {
            contain(|| drop(waker));
        }
    }

    /// Returns `true` if this very waker is registered, and registers it anew.
    fn holds(&self, waker: &Waker) -> bool {
        if self.word.load(Ordering::Relaxed) != FULL {
            return false;
        }
        match self.seize() {
            SlotState::Full => {
                // SAFETY: the slot is ours, and holds a waker.
                let same = self
                    .slot
                    .with(|slot| unsafe { (*slot).assume_init_ref() }.will_wake(waker));
                self.set(FULL);
                same
            }
            SlotState::Empty => {
                self.set(EMPTY);
                false
            }
            SlotState::InUse => false,
        }
    }

    /// Takes the slot, unless another party has it.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `EMPTY` | `BUSY` | `Empty` |
    /// | `FULL` | `BUSY` | `Full` |
    /// | `BUSY` | unchanged | `InUse` |
    fn seize(&self) -> SlotState {
        // Ordering: Acquire pairs with the Release in `set`: what the last party did with the slot comes
        // before what we do.
        match self.word.swap(BUSY, Ordering::Acquire) {
            EMPTY => SlotState::Empty,
            FULL => SlotState::Full,
            _ => SlotState::InUse,
        }
    }

    /// Takes the waker out, if there is one.
    ///
    /// | before | after | returns |
    /// |---|---|---|
    /// | `FULL` | `BUSY`, then `EMPTY` | the waker |
    /// | `EMPTY` or `BUSY` | unchanged | `None` |
    fn take(&self) -> Option<Waker> {
        // Ordering: Release pairs with the Acquire in `set`: a task that registers later sees what was done
        // before this. Acquire pairs with the Release in `set`, for the slot.
        if self.word.fetch_and(!OFFERED, Ordering::AcqRel) != FULL {
            return None;
        }
        let waker = self.read();
        self.set(EMPTY);
        Some(waker)
    }

    /// Moves the waker out of the slot, which is ours and full.
    fn read(&self) -> Waker {
        // SAFETY: a party that has found the slot full has it alone, and reads it once.
        self.slot.with(|slot| unsafe { (*slot).assume_init_read() })
    }

    /// Puts a waker into the slot, which is ours and empty, and offers it.
    fn fill(&self, waker: Waker) {
        // SAFETY: a party that has seized the slot has it alone.
        self.slot.with_mut(|slot| unsafe {
            (*slot).write(waker);
        });
        self.set(FULL);
    }

    /// Gives the slot back.
    fn set(&self, word: u32) {
        // A read-modify-write although nothing is read: a `wake` that found the slot in use has released a change for
        // the party that registers next.
        // Ordering: Release pairs with the Acquire in `seize` and `take`, for the slot; Acquire pairs with
        // the Release in `take`.
        self.word.swap(word, Ordering::AcqRel);
    }
}

/// The state of the slot that a party found when it tried to take it.
enum SlotState {
    /// The party has the slot, which is empty.
    Empty,
    /// The party has the slot, which holds a waker.
    Full,
    /// Another party has the slot.
    InUse,
}

impl Default for WakerCell {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WakerCell {
    fn drop(&mut self) {
        // Models do not see that the last owner of a standard `Arc` comes after all others: for them, a plain
        // look here could find what is long past, and the drop of the word itself would be a race.
        if MODEL {
            drop(self.take());
        } else {
            self.clear();
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
