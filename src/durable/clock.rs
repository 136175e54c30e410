//! [`Clock`]: what a store goes by.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::sync::{Mutex, lock};

/// What a store goes by: the machine's time, or, in tests, what the test says.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::{Clock, MemoryStore};
///
/// let clock = Clock::manual();
/// let store = MemoryStore::with_clock(&clock);
/// clock.advance(Duration::from_secs(3600)); // what was delayed by an hour is due
/// # drop(store);
/// ```
#[derive(Clone)]
pub struct Clock(Option<StdArc<Manual>>);

struct Manual {
    /// Since the test began.
    passed: Mutex<Duration>,
    watchers: Mutex<Vec<Watcher>>,
}

/// Told when the time was moved; `false`: needs to be told no more.
type Watcher = Box<dyn Fn() -> bool + Send>;

/// Where a manual clock starts: some time in 2026, and a machine that is up for a while.
const WALL: Duration = Duration::from_secs(1_790_000_000);
const BOOT: Duration = Duration::from_secs(100_000);

impl Clock {
    /// The machine's time.
    pub(crate) fn machine() -> Self {
        Self(None)
    }

    /// A clock that stands still until it is [moved](Self::advance).
    #[cfg(any(test, feature = "test-util"))]
    pub fn manual() -> Self {
        Self(Some(StdArc::new(Manual {
            passed: Mutex::new(Duration::ZERO),
            watchers: Mutex::default(),
        })))
    }

    /// Lets time pass. Workers whose store goes by this clock look at once whether something is due.
    ///
    /// # Panics
    ///
    /// Panics if this is the machine's clock.
    #[cfg(any(test, feature = "test-util"))]
    pub fn advance(&self, time: Duration) {
        let manual = self.0.as_ref().expect("only a manual clock can be moved");
        *lock(&manual.passed) += time;
        lock(&manual.watchers).retain(|tell| tell());
    }

    /// Has `tell` called when the clock was moved, until it says `false`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn watch(&self, tell: impl Fn() -> bool + Send + 'static) {
        if let Some(manual) = &self.0 {
            lock(&manual.watchers).push(Box::new(tell));
        }
    }

    /// The time since 1970: a step of it moves what is due, and loses nothing.
    pub(crate) fn wall(&self) -> Duration {
        match &self.0 {
            Some(manual) => WALL + *lock(&manual.passed),
            None => SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    /// The time since the machine was started, which is never set, and goes on while it sleeps.
    pub(crate) fn boot(&self) -> Duration {
        match &self.0 {
            Some(manual) => BOOT + *lock(&manual.passed),
            None => since_boot(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.is_some() {
            "manual"
        } else {
            "machine"
        };
        f.debug_tuple("Clock").field(&name).finish()
    }
}

/// The time since the machine was started.
pub(crate) fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    // On Apple's systems this one goes on, too.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Whole milliseconds: what stores count in. Some tens of millions of years are for ever.
pub(crate) fn millis(time: Duration) -> u64 {
    const FOR_EVER: u128 = 1 << 60;
    time.as_millis().min(FOR_EVER) as u64
}
