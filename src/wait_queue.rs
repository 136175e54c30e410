//! A bell: wakes those who wait for something, in the order in which they came.
//!
//! It wakes, and grants nothing: the woken one looks again. A wake-up of one is held by its future until
//! that is polled, or dropped, which passes it on: do not keep a future that waits without polling it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
// Wakers are made of the standard library's, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Wake, Waker};

use crate::sync::{AtomicUsize, Notify, Ordering};
use crate::waker::WakerCell;

/// A queue of waiting tasks. If the waker of one of them panics, the panic reaches neither the caller that
/// rings nor a dropped waiter that passes its wake-up on, and the other waiters are still woken.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// How many wait, or are about to.
    waiting: AtomicUsize,
    notify: Notify,
}

impl WaitQueue {
    pub(crate) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            notify: Notify::new(),
        }
    }

    /// Waits until `look` finds what it looks for.
    ///
    /// Who changes what it looks at rings then. For [`notify_one`](Self::notify_one) to be enough, the look must be a
    /// read-modify-write of the word that is changed: of the two, one comes first.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped passes a wake-up on.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let _waiting = Waiting::new(self);
        let shelter = StdArc::new(Shelter(WakerCell::new()));
        loop {
            let mut notified = pin!(self.notify.notified());
            // In the line before the look: of two wake-ups that find nobody in it, one is lost.
            notified.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            sheltered(&shelter, notified).await;
        }
    }

    /// Wakes one, if there is one. At the price of a load if not.
    pub(crate) fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.notify.notify_one();
        }
    }

    /// Wakes all.
    pub(crate) fn notify_all(&self) {
        self.notify.notify_waiters();
    }
}

/// Awaits a future that clones wakers under its own lock. It gets a waker of ours, so that no code of a user
/// runs under that lock.
async fn sheltered(shelter: &StdArc<Shelter>, mut future: Pin<&mut impl Future<Output = ()>>) {
    let waker = Waker::from(StdArc::clone(shelter));
    poll_fn(|cx| {
        // First: a wake-up between the two would find no waker.
        shelter.0.register(cx.waker());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await;
}

/// A waker that stands for another, whose code runs under no lock.
struct Shelter(WakerCell);

impl Wake for Shelter {
    fn wake(self: StdArc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        self.0.wake();
    }
}

/// One who waits, for as long as it exists.
struct Waiting<'a>(&'a WaitQueue);

impl<'a> Waiting<'a> {
    fn new(bell: &'a WaitQueue) -> Self {
        bell.waiting.fetch_add(1, Ordering::Relaxed);
        Self(bell)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
