//! [`Parking`]: where one runner waits instead of exiting.

use std::task::Waker;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Where one runner waits until it is started again.
pub(super) struct Parking {
    /// A job has been suspended.
    suspends: AtomicBool,
    parked: Mutex<Parked>,
}

/// The runner that is parked.
#[derive(Default)]
struct Parked {
    /// Taken by the party that starts the runner.
    waker: Option<Waker>,
    /// The number of times that a runner has parked. The last one is the one that is parked, if any.
    times: u64,
    /// No runner parks any more.
    dismissed: bool,
}

impl Parked {
    /// Returns `true` if the runner of this park is still parked. If it was started, another may have parked since.
    fn holds(&self, park: u64) -> bool {
        self.waker.is_some() && self.times == park
    }
}

impl Parking {
    pub(super) fn new() -> Self {
        Self {
            suspends: AtomicBool::new(false),
            parked: Mutex::new(Parked::default()),
        }
    }

    /// Records that a job was suspended. From now on, one runner parks instead of exiting.
    pub(super) fn note_suspended(&self) {
        if !self.suspends.load(Ordering::Relaxed) {
            self.suspends.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps the calling runner, which has unregistered, instead of letting it exit. Returns the number of this park, or
    /// `None` if the runner may exit.
    pub(super) fn park(&self, waker: &Waker) -> Option<u64> {
        // Relaxed is enough: a runner that has suspended a job, or that was parked before, knows it itself.
        if !self.suspends.load(Ordering::Relaxed) {
            return None;
        }
        let waker = waker.clone();
        let mut parked = lock(&self.parked);
        if parked.dismissed || parked.waker.is_some() {
            return None;
        }
        parked.waker = Some(waker);
        parked.times += 1;
        Some(parked.times)
    }

    /// Returns `true` if the calling runner, which has parked, has not been started since.
    pub(super) fn is_parked(&self, park: u64, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut parked = lock(&self.parked);
        if parked.holds(park) {
            parked.waker = Some(waker);
            return true;
        }
        false
    }

    /// Ends a park. Returns `false` if the runner has been started since: it is registered.
    pub(super) fn end_park(&self, park: u64) -> bool {
        let mut parked = lock(&self.parked);
        // Dropped after the lock is released.
        let waker = parked.holds(park).then(|| parked.waker.take());
        drop(parked);
        waker.is_some()
    }

    /// Takes the parked runner's waker. The caller has registered the runner, and wakes it.
    pub(super) fn unpark(&self) -> Option<Waker> {
        lock(&self.parked).waker.take()
    }

    /// Lets no runner park any more. Calls `register` for the one that is parked, and returns its waker.
    pub(super) fn dismiss(&self, register: impl FnOnce()) -> Option<Waker> {
        let mut parked = lock(&self.parked);
        parked.dismissed = true;
        let waker = parked.waker.take();
        if waker.is_some() {
            // Under the lock: a runner that is dropped, and finds that it has been started, unregisters.
            register();
        }
        waker
    }
}
