//! [`Parker`]: how an idle thread waits to be woken.

use std::time::{Duration, Instant};

use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, MODEL, Number, Ordering, spin_loop};

/// The time for which a thread spins before it parks: less than what it takes to park and to be unparked.
const MAX_SPIN: Duration = Duration::from_micros(20);
/// A thread that has spun in vain several times does so only once in this number of times.
const MAX_SKIPPED: u32 = 63;

/// A thread that parks while it is idle.
pub(super) struct Parker {
    thread: Thread,
    /// Set by the thread that wakes this one; cleared by its owner before it parks.
    woken: AtomicBool,
    /// 1 while the thread spins before it parks. A hint.
    spins: Number,
    /// 1 while the thread is parked. Only debug builds write it, under the lock of the state.
    parked: Number,
}

impl Parker {
    /// The parker of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            spins: Number::new(0),
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

    /// Returns `true` if the thread notices within a moment that it is woken.
    #[inline]
    pub(super) fn spins(&self) -> bool {
        self.spins.get() > 0
    }

    pub(super) fn set_spins(&self, spins: bool) {
        self.spins.set(usize::from(spins));
    }

    /// Spins for a moment. Returns `true` if the thread is woken meanwhile.
    fn spin(&self) -> bool {
        let end = Instant::now() + MAX_SPIN;
        loop {
            for _ in 0..16 {
                if self.woken.load(Ordering::Relaxed) {
                    return true;
                }
                spin_loop();
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    fn unpark(&self) {
        // Relaxed is enough: unparking publishes it, and everything else is under the lock.
        self.woken.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Determines how often a thread spins before it parks: rarely, if it was not woken meanwhile the last times.
#[derive(Default)]
pub(super) struct Spinner {
    /// Times to park without spinning.
    skips: u32,
    /// Times to park without spinning after the next time in vain.
    next_skips: u32,
}

impl Spinner {
    /// Returns `true` if the thread should spin before it parks now.
    pub(super) fn should_spin(&mut self) -> bool {
        if MODEL {
            return false;
        }
        match self.skips.checked_sub(1) {
            Some(left) => self.skips = left,
            None => return true,
        }
        false
    }

    /// Spins for a moment. Returns `true` if the thread is woken meanwhile.
    pub(super) fn spin(&mut self, parker: &Parker) -> bool {
        let woken = parker.spin();
        parker.set_spins(false);
        self.skips = if woken { 0 } else { self.next_skips };
        self.next_skips = if woken {
            0
        } else {
            (2 * self.next_skips + 1).min(MAX_SKIPPED)
        };
        woken
    }
}

/// Wakes threads that are no longer among the idle ones of the state. The caller holds no lock.
#[inline]
pub(super) fn wake(parkers: impl IntoIterator<Item = Arc<Parker>>) {
    for parker in parkers {
        parker.unpark();
    }
}

#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_spins_in_vain_spins_rarely() {
        const PARKS: u32 = 1_000;
        let (parker, mut spinner) = (Parker::new(), Spinner::default());
        let spins = (0..PARKS).filter(|_| spinner.should_spin() && !spinner.spin(&parker));
        assert!((2..30).contains(&spins.count()));
        // Being woken once is enough to spin every time again.
        parker.woken.store(true, Ordering::Relaxed);
        while !spinner.should_spin() {}
        assert!(spinner.spin(&parker) && spinner.should_spin());
    }
}
