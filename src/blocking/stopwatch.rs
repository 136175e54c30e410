//! [`Stopwatch`]: when a thread reads the clock.

use std::time::{Duration, Instant};

/// A thread reads the clock after this number of tasks, even if none of them is timed.
const MAX_TASKS: u32 = 32;

/// Reads the clock for a thread that runs tasks, and as rarely as it may: a reading costs as much as a short task.
pub(super) struct Stopwatch {
    /// The last reading.
    time: Instant,
    /// The tasks that have run since then. None of them is timed.
    tasks: u32,
    lap: Option<Lap>,
}

/// Tasks that ran one after the other without a reading in between.
pub(super) struct Lap {
    pub(super) tasks: u32,
    /// How long they took together.
    pub(super) time: Duration,
}

impl Stopwatch {
    pub(super) fn new() -> Self {
        Self {
            time: Instant::now(),
            tasks: 0,
            lap: None,
        }
    }

    /// The thread has waited for a task. Returns the time since the last reading.
    pub(super) fn restart(&mut self) -> Duration {
        let before = self.time;
        self.end().saturating_duration_since(before)
    }

    /// The last reading.
    pub(super) fn time(&self) -> Instant {
        self.time
    }

    /// A timed task starts now. The end of a timed task is the start of the next one.
    #[inline]
    pub(super) fn start(&mut self) -> Instant {
        self.end_lap();
        self.time
    }

    /// A timed task ends now.
    #[inline]
    pub(super) fn end(&mut self) -> Instant {
        self.time = Instant::now();
        self.time
    }

    /// A task ends that is not timed.
    #[inline]
    pub(super) fn skip(&mut self) {
        self.tasks += 1;
        if self.tasks == MAX_TASKS {
            self.end_lap();
        }
    }

    /// Returns the last lap that has ended, once.
    #[inline]
    pub(super) fn take_lap(&mut self) -> Option<Lap> {
        self.lap.take()
    }

    /// Ends the current lap.
    #[inline]
    pub(super) fn end_lap(&mut self) {
        if self.tasks > 0 {
            let (start, tasks) = (self.time, std::mem::take(&mut self.tasks));
            let time = self.end().saturating_duration_since(start);
            self.lap = Some(Lap { tasks, time });
        }
    }
}
