//! A waker that panics once, when it is told to.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// What a waker does, and may panic in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Clone,
    Wake,
    Drop,
}

/// The other end of the waker.
pub(crate) struct Stranger {
    panics_in: Act,
    armed: AtomicBool,
}

impl Stranger {
    /// A waker that panics the first time that it does this, once it is armed.
    pub(crate) fn panicking_in(act: Act) -> (Arc<Self>, Waker) {
        let stranger = Arc::new(Self {
            panics_in: act,
            armed: AtomicBool::new(false),
        });
        // SAFETY: the pointer is that of an `Arc`, as the functions of the table expect.
        let waker = unsafe { Waker::from_raw(raw(Arc::clone(&stranger))) };
        (stranger, waker)
    }

    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Panics no more; returns `true` if it never did.
    pub(crate) fn disarm(&self) -> bool {
        self.armed.swap(false, Ordering::SeqCst)
    }

    fn does(&self, act: Act) {
        if act == self.panics_in && self.disarm() {
            panic!("the waker of a stranger panics in {act:?}");
        }
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn raw(stranger: Arc<Stranger>) -> RawWaker {
    RawWaker::new(Arc::into_raw(stranger).cast(), &TABLE)
}

/// # Safety
///
/// The pointer came from `raw`.
unsafe fn borrowed(data: *const ()) -> ManuallyDrop<Arc<Stranger>> {
    // SAFETY: as the caller says; it is not dropped.
    ManuallyDrop::new(unsafe { Arc::from_raw(data.cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker's own pointer.
    let stranger = unsafe { borrowed(data) };
    stranger.does(Act::Clone);
    raw(Arc::clone(&stranger))
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's own pointer, which is used up.
    let stranger = ManuallyDrop::into_inner(unsafe { borrowed(data) });
    stranger.does(Act::Wake);
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker's own pointer.
    unsafe { borrowed(data) }.does(Act::Wake);
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's own pointer, which is used up.
    let stranger = ManuallyDrop::into_inner(unsafe { borrowed(data) });
    stranger.does(Act::Drop);
}
