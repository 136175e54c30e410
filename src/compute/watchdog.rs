//! the timer's visits: help for what waits behind a long task.

use std::time::{Duration, Instant};

use super::lane::Lane;
use super::shared::Shared;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};
use crate::timer::{self, Watchdog};

/// How many visits the timer pays to a pool that rests.
const QUIET_VISITS: u32 = if cfg!(all(test, throng_loom)) { 1 } else { 10 };

/// What is known of the timer's visits.
pub(super) struct WatchdogState {
    /// the timer comes.
    called: AtomicBool,
    /// Somebody should look after what waits behind a long task, and nobody sleeps who could.
    help_wanted: AtomicBool,
    seen: Mutex<Seen>,
}

/// What the timer has seen at its last visit.
struct Seen {
    lanes: Vec<Sight>,
    /// For how many visits everybody has been sleeping.
    quiet: u32,
}

/// What the timer has seen of a lane: how many tasks have begun, and since when it has been so many;
/// `None`: the worker sleeps.
#[derive(Clone, Default)]
struct Sight {
    begun: usize,
    since: Option<Instant>,
}

impl WatchdogState {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            called: AtomicBool::new(false),
            help_wanted: AtomicBool::new(false),
            seen: Mutex::new(Seen {
                lanes: vec![Sight::default(); lanes],
                quiet: 0,
            }),
        }
    }
}

/// What a worker does, to somebody who looks twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// One task has been running all the time.
    None,
    /// Less than it has taken in hand, thinking that it would take no time.
    Slow,
    Fine,
}

impl Sight {
    /// Looks at a lane again.
    fn renew(&mut self, lane: &Lane, now: Instant) -> Progress {
        let begun = lane.tally().ran.get();
        let tasks = begun.wrapping_sub(self.begun);
        match self.since {
            Some(_) if tasks == 0 => return Progress::None,
            Some(_) if tasks < lane.handful() => {}
            _ => {
                (self.begun, self.since) = (begun, Some(now));
                return Progress::Fine;
            }
        }
        (self.begun, self.since) = (begun, Some(now));
        Progress::Slow
    }
}

impl Shared {
    /// Has the timer visit the pool from now on.
    pub(super) fn arm_watchdog(this: &Arc<Self>) {
        // Ordering: Release, with the getting up of the worker before it, pairs with the Acquire in
        // `is_quiet`.
        if this.watchdog.called.swap(true, Ordering::AcqRel) {
            return;
        }
        if timer::watch(this).is_err() {
            // Without one, tasks wait behind a long one. The next to get up tries again.
            this.watchdog.called.store(false, Ordering::Relaxed);
        }
    }

    #[cfg(all(test, throng_loom))]
    pub(super) fn is_watched(&self) -> bool {
        self.watchdog.called.load(Ordering::Relaxed)
    }

    /// For how long the task has been running that runs in a lane, as far as the timer has seen.
    pub(super) fn running_for(&self, lane: usize) -> Duration {
        let seen = lock(&self.watchdog.seen);
        let (sight, lane) = (&seen.lanes[lane], &self.lanes[lane]);
        let still = sight.begun == lane.tally().ran.get() && !lane.is_parked();
        let since = sight.since.filter(|_| still);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Has somebody look after what waits: one who sleeps, or else the first who is between two tasks.
    fn call_for_help(&self) {
        if !self.call_searcher(0) {
            self.watchdog.help_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether help is wanted, of the first who asks.
    #[inline]
    pub(super) fn is_help_wanted(&self) -> bool {
        let wanted = &self.watchdog.help_wanted;
        wanted.load(Ordering::Relaxed) && wanted.swap(false, Ordering::Relaxed)
    }

    /// Whether the pool has been at rest for some visits. Then the timer goes.
    fn is_quiet(&self, seen: &mut Seen) -> bool {
        seen.quiet += 1;
        if seen.quiet < QUIET_VISITS {
            return false;
        }
        seen.quiet = 0;
        // Ordering: Acquire pairs with the Release in `arm_watchdog`: who got up and found us here is
        // seen to be awake. Who comes after this calls us again.
        self.watchdog.called.swap(false, Ordering::AcqRel);
        let at_rest = self.lanes.iter().all(Lane::is_parked);
        // Somebody else may have called us again already.
        at_rest || self.watchdog.called.swap(true, Ordering::AcqRel)
    }
}

impl Watchdog for Shared {
    fn check(&self) -> bool {
        let mut seen = lock(&self.watchdog.seen);
        let now = Instant::now();
        let (mut busy, mut waiting) = (false, false);
        for (lane, sight) in self.lanes.iter().zip(&mut seen.lanes) {
            if lane.is_parked() {
                sight.since = None;
                lane.set_stuck(false);
                continue;
            }
            busy = true;
            let progress = sight.renew(lane, now);
            lane.set_stuck(progress == Progress::None);
            waiting |= progress != Progress::Fine && lane.has_queued();
        }
        if waiting {
            self.call_for_help();
        }
        if busy {
            seen.quiet = 0;
            return self.has_threads();
        }
        !self.is_quiet(&mut seen)
    }
}
