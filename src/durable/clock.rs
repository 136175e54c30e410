//! [`Clock`]: what a store goes by.

use std::fmt;
#[cfg(any(test, feature = "test-util"))]
use std::sync::Arc as StdArc;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(test, feature = "test-util"))]
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
#[cfg_attr(
    not(any(test, feature = "test-util")),
    allow(unreachable_pub, reason = "it is public for tests")
)]
pub struct Clock {
    #[cfg(any(test, feature = "test-util"))]
    manual: Option<StdArc<Manual>>,
}

impl Clock {
    /// The machine's time.
    pub(crate) fn machine() -> Self {
        Self {
            #[cfg(any(test, feature = "test-util"))]
            manual: None,
        }
    }

    /// The time since 1970: a step of it moves what is due, and loses nothing.
    pub(crate) fn wall(&self) -> Duration {
        self.told().map_or_else(since_1970, |told| told.wall)
    }

    /// The time since the machine was started, which is never set, and goes on while it sleeps.
    pub(crate) fn boot(&self) -> Duration {
        self.told().map_or_else(since_boot, |told| told.boot)
    }

    #[cfg(not(any(test, feature = "test-util")))]
    fn told(&self) -> Option<Told> {
        None
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Clock {
    /// A clock that stands still until it is [moved](Self::advance).
    pub fn manual() -> Self {
        Self {
            manual: Some(StdArc::new(Manual {
                told: Mutex::new(Told {
                    wall: WALL,
                    boot: BOOT,
                }),
                watchers: Mutex::default(),
            })),
        }
    }

    /// Lets time pass. Workers whose store goes by this clock look at once whether something is due.
    ///
    /// # Panics
    ///
    /// Panics if this is the machine's clock.
    pub fn advance(&self, time: Duration) {
        self.change(|told| {
            told.wall += time;
            told.boot += time;
        });
    }

    /// Sets the time since 1970. The time since the machine was started stays the same.
    #[cfg(test)]
    pub(crate) fn set_wall(&self, wall: Duration) {
        self.change(|told| told.wall = wall);
    }

    fn change(&self, change: impl FnOnce(&mut Told)) {
        let manual = self.manual.as_ref();
        let manual = manual.expect("only a manual clock can be moved");
        change(&mut lock(&manual.told));
        lock(&manual.watchers).retain(|tell| tell());
    }

    /// Has `tell` called when the clock was moved, until it says `false`.
    pub(crate) fn watch(&self, tell: impl Fn() -> bool + Send + 'static) {
        if let Some(manual) = &self.manual {
            lock(&manual.watchers).push(Box::new(tell));
        }
    }

    /// Returns the times that the test has set, or `None` for the machine's clock.
    fn told(&self) -> Option<Told> {
        self.manual.as_ref().map(|manual| *lock(&manual.told))
    }
}

#[cfg(any(test, feature = "test-util"))]
struct Manual {
    told: Mutex<Told>,
    watchers: Mutex<Vec<Watcher>>,
}

/// Told when the time was moved; `false`: needs to be told no more.
#[cfg(any(test, feature = "test-util"))]
type Watcher = Box<dyn Fn() -> bool + Send>;

/// The two times of a manual clock.
#[derive(Clone, Copy)]
struct Told {
    wall: Duration,
    boot: Duration,
}

/// Where a manual clock starts: some time in 2026, and a machine that is up for a while.
#[cfg(any(test, feature = "test-util"))]
const WALL: Duration = Duration::from_secs(1_790_000_000);
#[cfg(any(test, feature = "test-util"))]
const BOOT: Duration = Duration::from_secs(100_000);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.told().map_or("machine", |_| "manual");
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
