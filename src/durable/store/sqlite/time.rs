//! [`Now`]: the times of one request.

use std::time::{Duration, Instant};

use crate::durable::clock::{Clock, millis};
use crate::sync::thread;

/// The current time, read once per request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Milliseconds since 1970. Delayed tasks become due by this time.
    pub(super) wall: i64,
    /// Milliseconds since the machine was started. Leases are measured by this time.
    pub(super) boot: i64,
    wall_micros: i64,
    boot_micros: i64,
}

impl Now {
    pub(super) fn read(clock: &Clock) -> Self {
        let (wall, boot) = (clock.wall(), clock.boot());
        Self {
            wall: millis(wall) as i64,
            boot: millis(boot) as i64,
            wall_micros: wall.as_micros() as i64,
            boot_micros: boot.as_micros() as i64,
        }
    }

    /// Returns the time since `at`, in milliseconds since 1970, or zero if `at` is in the future.
    pub(super) fn since(self, at: i64) -> Duration {
        let millis = u64::try_from(self.wall.saturating_sub(at));
        Duration::from_millis(millis.unwrap_or_default())
    }

    /// Microseconds since 1970. This exceeds every number that was issued before, unless the clock was set back.
    pub(super) fn micros(self) -> i64 {
        self.wall_micros
    }

    /// Microseconds since the machine was started.
    pub(super) fn boot_micros(self) -> i64 {
        self.boot_micros
    }
}

/// Blocks the thread for a while.
pub(super) fn sleep(time: Duration) {
    let deadline = Instant::now() + time;
    while !thread::park_until(deadline) {}
}
