//! [`Parker`]: how an idle thread waits to be woken.

use std::time::Instant;

use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, Number, Ordering};

/// A thread that parks while it is idle.
pub(super) struct Parker {
    thread: Thread,
    /// Set by the thread that wakes this one; cleared by its owner before it parks.
    woken: AtomicBool,
    /// 1 while the thread is parked. Only debug builds write it, under the lock of the state.
    parked: Number,
}

impl Parker {
    /// The parker of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            parked: Number::new(0),
        }
    }

    /// Returns `false` if the thread already was in that state.
    pub(super) fn set_parked(&self, parked: bool) -> bool {
        let before = self.parked.get();
        self.parked.set(usize::from(parked));
        before != usize::from(parked)
    }

    /// Forgets an earlier wake-up.
    pub(super) fn prepare(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// Parks until the thread is woken (`true`), or until the deadline has passed.
    pub(super) fn park(&self, deadline: Option<Instant>) -> bool {
        // A park token that a task left behind costs one more turn of this loop.
        while !self.woken.load(Ordering::Relaxed) {
            match deadline {
                None => thread::park(),
                Some(deadline) if thread::park_until(deadline) => {
                    return self.woken.load(Ordering::Relaxed);
                }
                Some(_) => {}
            }
        }
        true
    }

    fn unpark(&self) {
        // Relaxed is enough: unparking publishes it, and everything else is under the lock.
        self.woken.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Wakes threads that are no longer among the idle ones of the state. The caller holds no lock.
#[inline]
pub(super) fn wake(parkers: impl IntoIterator<Item = Arc<Parker>>) {
    for parker in parkers {
        parker.unpark();
    }
}
