//! [`Handoff`]: those who have lost to others too often, and to whom places are handed over.

use super::TryAcquireError;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::wait_queue::WaitQueue;

/// Who waits to be handed a place, and the places that were and are not taken yet.
#[derive(Debug)]
pub(super) struct Handoff {
    /// How many there are, for those who leave: a place is handed over only if it is not zero.
    guests: AtomicUsize,
    line: Mutex<Line>,
    bell: WaitQueue,
}

#[derive(Debug)]
struct Line {
    /// Guests for whom there is no place yet.
    hungry: usize,
    /// Places for the others. Each counts in the room as taken.
    granted: usize,
}

impl Handoff {
    pub(super) fn new() -> Self {
        Self {
            guests: AtomicUsize::new(0),
            line: Mutex::new(Line {
                hungry: 0,
                granted: 0,
            }),
            bell: WaitQueue::new(),
        }
    }

    /// Whether somebody may want a place.
    #[inline]
    pub(super) fn has_guests(&self) -> bool {
        self.guests.load(Ordering::Relaxed) != 0
    }

    /// Hands a place over, which stays taken; `false`: nobody wants it.
    pub(super) fn hand_over(&self) -> bool {
        let mut line = self.line();
        if line.hungry == 0 {
            return false;
        }
        line.hungry -= 1;
        line.granted += 1;
        drop(line);
        self.bell.notify_one();
        true
    }

    /// Whether somebody wants a place for whom there is none.
    pub(super) fn is_hungry(&self) -> bool {
        self.line().hungry > 0
    }

    /// One more wants a place.
    pub(super) fn join(&self) {
        self.line().hungry += 1;
        self.guests.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a place, or until the room is closed.
    pub(super) async fn wait(&self, is_closed: impl Fn() -> bool) -> Result<(), TryAcquireError> {
        let look = || {
            let mut line = self.line();
            if line.granted > 0 {
                line.granted -= 1;
                return Some(Ok(()));
            }
            drop(line);
            is_closed().then_some(Err(TryAcquireError::Closed))
        };
        self.bell.wait(look).await
    }

    /// One who has joined got a place.
    pub(super) fn leave_fed(&self) {
        self.guests.fetch_sub(1, Ordering::Relaxed);
    }

    /// One who has joined did not; `true`: there is a place too many, which was meant for it.
    pub(super) fn leave_hungry(&self) -> bool {
        self.guests.fetch_sub(1, Ordering::Relaxed);
        let mut line = self.line();
        if line.hungry > 0 {
            // What was granted is for the others.
            line.hungry -= 1;
            return false;
        }
        line.granted -= 1;
        true
    }

    /// The room is closed.
    pub(super) fn tell_all(&self) {
        self.bell.notify_all();
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}
