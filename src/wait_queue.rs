//! A queue of tasks that wait for something, woken in the order of arrival.
//!
//! A wake-up grants nothing: the woken task checks its condition again. Its future holds the wake-up until it is
//! polled, or dropped, which passes the wake-up on. So a caller should not keep a waiting future without polling it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
// Wakers are made of the standard library's `Arc`, also where `sync` has another.
use std::sync::Arc as StdArc;
use std::task::{Context, Wake, Waker};

use crate::sync::{AtomicUsize, Notify, Ordering};
use crate::waker::WakerCell;

/// A queue of waiting tasks. A panic of one task's waker reaches neither the caller that notifies nor a dropped waiter
/// that passes its wake-up on, and the other tasks are still woken.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// The number of tasks that wait, or are about to.
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

    /// Waits until `check` returns a value.
    ///
    /// A caller that changes what `check` reads notifies afterwards. For [`notify_one`](Self::notify_one) to be
    /// enough, `check` must be a read-modify-write of the word that the caller changes: one of the two comes first.
    ///
    /// # Cancel safety
    ///
    /// A dropped future passes its wake-up on.
    pub(crate) async fn wait<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        let _waiting = WaitingCount::new(self);
        let shelter = StdArc::new(Shelter(WakerCell::new()));
        loop {
            let mut notified = pin!(self.notify.notified());
            // Enters the queue before the check: of two wake-ups that find the queue empty, one is lost.
            notified.as_mut().enable();
            if let Some(found) = check() {
                return found;
            }
            sheltered(&shelter, notified).await;
        }
    }

    /// Returns `true` if a task waits, or is about to.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Wakes one task, if one waits. If not, this costs a load.
    pub(crate) fn notify_one(&self) {
        if self.has_waiters() {
            self.notify.notify_one();
        }
    }

    /// Wakes all tasks.
    pub(crate) fn notify_all(&self) {
        self.notify.notify_waiters();
    }
}

/// Awaits a future that clones wakers under its own lock. It gets a waker of this crate, so that no code of a user
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

/// Counts a waiting task for as long as it exists.
struct WaitingCount<'a>(&'a WaitQueue);

impl<'a> WaitingCount<'a> {
    fn new(queue: &'a WaitQueue) -> Self {
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        Self(queue)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
