//! [`LaneWatchdog`]: detects tasks that wait behind a long one.

use std::time::{Duration, Instant};

use super::lane::Lane;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The number of checks of a pool that sleeps after which the timer is disarmed.
const QUIET_CHECKS: u32 = if cfg!(all(test, throng_loom)) { 1 } else { 10 };

/// The timer's view of the lanes.
pub(super) struct LaneWatchdog {
    /// The timer checks the lanes.
    is_armed: AtomicBool,
    /// Tasks wait behind a long one, and no sleeping worker could be called.
    help_wanted: AtomicBool,
    history: Mutex<History>,
}

/// The results of the last check.
struct History {
    lanes: Vec<LaneHistory>,
    /// The number of checks for which all workers have been asleep.
    quiet: u32,
}

/// The number of tasks that a lane has started, and the time since when it has been that number; `None` if the worker
/// sleeps.
#[derive(Clone, Default)]
struct LaneHistory {
    started: usize,
    since: Option<Instant>,
}

/// The result of a check.
pub(super) struct Checked {
    /// A worker is awake.
    pub(super) is_busy: bool,
    /// Tasks wait in the lane of a worker that makes little progress.
    pub(super) needs_help: bool,
}

/// The progress of a worker between two checks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneProgress {
    /// One task has been running all the time.
    None,
    /// Less than a batch.
    Slow,
    Fine,
}

impl LaneHistory {
    fn update(&mut self, lane: &Lane, now: Instant) -> LaneProgress {
        let started = lane.counters().started.get();
        let tasks = started.wrapping_sub(self.started);
        match self.since {
            Some(_) if tasks == 0 => return LaneProgress::None,
            Some(_) if tasks < lane.counters().batch_size() => {}
            _ => {
                (self.started, self.since) = (started, Some(now));
                return LaneProgress::Fine;
            }
        }
        (self.started, self.since) = (started, Some(now));
        LaneProgress::Slow
    }
}

impl LaneWatchdog {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            is_armed: AtomicBool::new(false),
            help_wanted: AtomicBool::new(false),
            history: Mutex::new(History {
                lanes: vec![LaneHistory::default(); lanes],
                quiet: 0,
            }),
        }
    }

    /// Returns `true` if the caller must arm the timer.
    pub(super) fn arm(&self) -> bool {
        // Ordering: Release, after the caller's worker has unparked its lane, pairs with the Acquire in `disarm`.
        !self.is_armed.swap(true, Ordering::AcqRel)
    }

    /// The timer could not be armed. The next worker that wakes tries again.
    pub(super) fn arming_failed(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
    }

    #[cfg(all(test, throng_loom))]
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::Relaxed)
    }

    /// Compares the lanes with the last check, and marks those whose worker is in a long task.
    pub(super) fn check(&self, lanes: &[Lane]) -> Checked {
        let mut history = lock(&self.history);
        let now = Instant::now();
        let mut checked = Checked {
            is_busy: false,
            needs_help: false,
        };
        for (lane, history) in lanes.iter().zip(&mut history.lanes) {
            if lane.is_parked() {
                history.since = None;
                lane.set_stuck(false);
                continue;
            }
            checked.is_busy = true;
            let progress = history.update(lane, now);
            lane.set_stuck(progress == LaneProgress::None);
            checked.needs_help |= progress != LaneProgress::Fine && lane.has_queued();
        }
        if checked.is_busy {
            history.quiet = 0;
        }
        checked
    }

    /// Counts a check at which all workers slept. Returns `true` if the timer is disarmed, or was armed again meanwhile.
    pub(super) fn disarm(&self, lanes: &[Lane]) -> bool {
        let mut history = lock(&self.history);
        history.quiet += 1;
        if history.quiet < QUIET_CHECKS {
            return false;
        }
        history.quiet = 0;
        // Ordering: Acquire pairs with the Release in `arm`: a worker that woke and found the timer armed is seen to be
        // awake. A worker that wakes later arms the timer again.
        self.is_armed.swap(false, Ordering::AcqRel);
        let all_asleep = lanes.iter().all(Lane::is_parked);
        // Another worker may have armed it already.
        all_asleep || self.is_armed.swap(true, Ordering::AcqRel)
    }

    /// Asks the first worker that is between two batches for help.
    pub(super) fn want_help(&self) {
        self.help_wanted.store(true, Ordering::Relaxed);
    }

    /// Returns `true` once after `want_help`.
    #[inline]
    pub(super) fn take_help_wanted(&self) -> bool {
        self.help_wanted.load(Ordering::Relaxed) && self.help_wanted.swap(false, Ordering::Relaxed)
    }

    /// Returns the time for which the current task of a lane has been running, as far as the checks have seen.
    pub(super) fn running_for(&self, number: usize, lane: &Lane) -> Duration {
        let history = lock(&self.history);
        let LaneHistory { started, since } = history.lanes[number];
        let is_same = started == lane.counters().started.get() && !lane.is_parked();
        let since = since.filter(|_| is_same);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
