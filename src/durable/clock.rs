//! [`Clock`]: the clock of a store.

use std::fmt;
#[cfg(any(test, feature = "test-util"))]
use std::sync::Arc as StdArc;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(test, feature = "test-util"))]
use crate::sync::{Mutex, lock};

/// The clock of a store: the machine's clock, or a manual clock in tests.
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
#[cfg_attr(
    not(any(test, feature = "test-util")),
    allow(unreachable_pub, reason = "it is public for tests")
)]
pub struct Clock {
    #[cfg(any(test, feature = "test-util"))]
    manual: Option<StdArc<Manual>>,
}

impl Clock {
    for_stores! {
        /// Returns the machine's clock.
        fn machine() -> Self {
            Self {
                #[cfg(any(test, feature = "test-util"))]
                manual: None,
            }
        }

        /// Returns the time since 1970. If it is set, delayed tasks become due earlier or later, but none is lost.
        fn wall(&self) -> Duration {
            self.manual_time()
                .map_or_else(since_1970, |manual| manual.wall)
        }

        /// Returns the time since the machine was started. It cannot be set, and continues while the machine sleeps.
        fn boot(&self) -> Duration {
            self.manual_time()
                .map_or_else(since_boot, |manual| manual.boot)
        }
    }

    #[cfg(not(any(test, feature = "test-util")))]
    fn manual_time(&self) -> Option<ManualTime> {
        None
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Clock {
    /// Returns a clock that stands still until it is [advanced](Self::advance).
    ///
    /// # Examples
    ///
    /// See [`Clock`].
    pub fn manual() -> Self {
        Self {
            manual: Some(StdArc::new(Manual {
                time: Mutex::new(ManualTime {
                    wall: WALL,
                    boot: BOOT,
                }),
                watchers: Mutex::default(),
            })),
        }
    }

    /// Advances a manual clock. Workers whose store uses this clock check at once whether tasks are due.
    ///
    /// # Panics
    ///
    /// Panics if this is the machine's clock.
    ///
    /// # Examples
    ///
    /// See [`Clock`].
    pub fn advance(&self, time: Duration) {
        self.change(|now| {
            now.wall += time;
            now.boot += time;
        });
    }

    /// Sets the time since 1970. The time since the machine was started stays the same.
    #[cfg(any(test, feature = "unstable-store-suite"))]
    pub(crate) fn set_wall(&self, wall: Duration) {
        self.change(|now| now.wall = wall);
    }

    fn change(&self, change: impl FnOnce(&mut ManualTime)) {
        let manual = self.manual.as_ref();
        let manual = manual.expect("only a manual clock can be moved");
        change(&mut lock(&manual.time));
        lock(&manual.watchers).retain(|watcher| watcher());
    }

    for_stores! {
        /// Calls `watcher` whenever the clock was changed, until it returns `false`.
        fn watch(&self, watcher: impl Fn() -> bool + Send + 'static) {
            if let Some(manual) = &self.manual {
                lock(&manual.watchers).push(Box::new(watcher));
            }
        }
    }

    /// Returns the times that the test has set, or `None` for the machine's clock.
    fn manual_time(&self) -> Option<ManualTime> {
        self.manual.as_ref().map(|manual| *lock(&manual.time))
    }
}

#[cfg(any(test, feature = "test-util"))]
struct Manual {
    time: Mutex<ManualTime>,
    watchers: Mutex<Vec<Watcher>>,
}

/// A function that is called when the time has changed. It returns `false` to be removed.
#[cfg(any(test, feature = "test-util"))]
type Watcher = Box<dyn Fn() -> bool + Send>;

/// The two times of a manual clock.
#[derive(Clone, Copy)]
struct ManualTime {
    wall: Duration,
    boot: Duration,
}

/// The time at which a manual clock starts: in 2026, on a machine that was started a day before.
#[cfg(any(test, feature = "test-util"))]
const WALL: Duration = Duration::from_secs(1_790_000_000);
#[cfg(any(test, feature = "test-util"))]
const BOOT: Duration = Duration::from_secs(100_000);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.manual_time().map_or("machine", |_| "manual");
        f.debug_tuple("Clock").field(&name).finish()
    }
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The time since the machine was started.
pub(crate) fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    // On Apple's systems, this clock also continues while the machine sleeps.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Returns the time at this duration since 1970.
pub fn time_of(since_1970: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + since_1970
}

/// Returns whole milliseconds, the unit of stores. It returns at most some tens of millions of years.
pub fn millis(time: Duration) -> u64 {
    const FOREVER: u128 = 1 << 60;
    time.as_millis().min(FOREVER) as u64
}
