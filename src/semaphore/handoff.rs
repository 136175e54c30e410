//! [`Handoff`]: those who have lost to others too often, and to whom places are handed over.

use super::TryAcquireError;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::wait_queue::WaitQueue;

/// Who waits to be handed a place, and the places that were and are not taken yet.
#[derive(Debug)]
pub(super) struct Handoff {
    /// How many there are, for those who leave: a place is handed over only if it is not zero.
    waiters: AtomicUsize,
    line: Mutex<Line>,
    queue: WaitQueue,
}

#[derive(Debug)]
struct Line {
    /// Guests for whom there is no place yet.
    waiting: usize,
    /// Places for the others. Each counts in the room as taken.
    granted: usize,
}

impl Handoff {
    pub(super) fn new() -> Self {
        Self {
            waiters: AtomicUsize::new(0),
            line: Mutex::new(Line {
                waiting: 0,
                granted: 0,
            }),
            queue: WaitQueue::new(),
        }
    }

    /// Whether somebody may want a place.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Hands a place over, which stays taken; `false`: nobody wants it.
    pub(super) fn hand_over(&self) -> bool {
        let mut line = self.line();
        if line.waiting == 0 {
            return false;
        }
        line.waiting -= 1;
        line.granted += 1;
        drop(line);
        self.queue.notify_one();
        true
    }

    /// Whether somebody wants a place for whom there is none.
    pub(super) fn is_waiting(&self) -> bool {
        self.line().waiting > 0
    }

    /// One more wants a place.
    pub(super) fn join(&self) {
        self.line().waiting += 1;
        self.waiters.fetch_add(1, Ordering::Relaxed);
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
        self.queue.wait(look).await
    }

    /// One who has joined got a place.
    pub(super) fn leave_granted(&self) {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// One who has joined did not; `true`: there is a place too many, which was meant for it.
    pub(super) fn leave_waiting(&self) -> bool {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        let mut line = self.line();
        if line.waiting > 0 {
            // What was granted is for the others.
            line.waiting -= 1;
            return false;
        }
        line.granted -= 1;
        true
    }

    /// The room is closed.
    pub(super) fn notify_all(&self) {
        self.queue.notify_all();
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }
}
