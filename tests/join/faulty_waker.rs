//! [`FaultyWaker`]: a waker that panics once, in one of its functions.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A function of a waker, in which it may panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Clone,
    Wake,
    Drop,
}

/// The state of the waker, which a test can read.
pub(crate) struct FaultyWaker {
    panics_in: Act,
    armed: AtomicBool,
}

impl FaultyWaker {
    /// A waker that panics in the first call of this function after it was armed.
    pub(crate) fn panicking_in(act: Act) -> (Arc<Self>, Waker) {
        let state = Arc::new(Self {
            panics_in: act,
            armed: AtomicBool::new(false),
        });
        // SAFETY: the pointer is that of an `Arc`, as the functions of the table expect.
        let waker = unsafe { Waker::from_raw(raw(Arc::clone(&state))) };
        (state, waker)
    }

    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Disarms the waker. Returns `true` if it has not panicked.
    pub(crate) fn disarm(&self) -> bool {
        self.armed.swap(false, Ordering::SeqCst)
    }

    fn enter(&self, act: Act) {
        if act == self.panics_in && self.disarm() {
            panic!("the waker panics in {act:?}");
        }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn raw(waker: Arc<FaultyWaker>) -> RawWaker {
    RawWaker::new(Arc::into_raw(waker).cast(), &TABLE)
}

/// # Safety
///
/// The pointer came from `raw`.
unsafe fn borrowed(data: *const ()) -> ManuallyDrop<Arc<FaultyWaker>> {
    // SAFETY: as the caller says; it is not dropped.
    ManuallyDrop::new(unsafe { Arc::from_raw(data.cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker's own pointer.
    let waker = unsafe { borrowed(data) };
    waker.enter(Act::Clone);
    raw(Arc::clone(&waker))
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's own pointer, which is used up.
    let waker = ManuallyDrop::into_inner(unsafe { borrowed(data) });
    waker.enter(Act::Wake);
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker's own pointer.
    unsafe { borrowed(data) }.enter(Act::Wake);
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's own pointer, which is used up.
    let waker = ManuallyDrop::into_inner(unsafe { borrowed(data) });
    waker.enter(Act::Drop);
}
