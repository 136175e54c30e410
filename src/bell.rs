//! A bell: wakes those who wait for something, in the order in which they came.
//!
//! It wakes, and grants nothing: the woken one looks again. A wake-up of one is held by its future until
//! that is polled, or dropped, which passes it on: do not keep a future that waits without polling it.

use std::pin::pin;

use crate::sync::{AtomicUsize, Notify, Ordering};
use crate::unwind::contain;

/// Those who wait, and the means to wake them. What their wakers do is not the business of who rings: a
/// panic of one does not reach it, and keeps no other from being woken.
#[derive(Debug)]
pub(crate) struct Bell {
    /// How many wait, or are about to.
    waiting: AtomicUsize,
    notify: Notify,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            notify: Notify::new(),
        }
    }

    /// Waits until `look` finds what it looks for.
    ///
    /// Who changes what it looks at rings then. For [`ring`](Self::ring) to be enough, the look must be a
    /// read-modify-write of the word that is changed: of the two, one comes first.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped passes a wake-up on.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let _waiting = Waiting::new(self);
        loop {
            let mut notified = pin!(self.notify.notified());
            // In the line before the look: of two wake-ups that find nobody in it, one is lost.
            notified.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            notified.await;
        }
    }

    /// Wakes one, if there is one. At the price of a load if not.
    pub(crate) fn ring(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            contain(|| self.notify.notify_one());
        }
    }

    /// Wakes all.
    pub(crate) fn ring_all(&self) {
        // One by one: of those woken together, a waker that panics would take the others along.
        for _ in 0..self.waiting.load(Ordering::Relaxed) {
            contain(|| self.notify.notify_one());
        }
        // And those that were not counted yet.
        contain(|| self.notify.notify_waiters());
    }
}

/// One who waits, for as long as it exists.
struct Waiting<'a>(&'a Bell);

impl<'a> Waiting<'a> {
    fn new(bell: &'a Bell) -> Self {
        bell.waiting.fetch_add(1, Ordering::Relaxed);
        Self(bell)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
