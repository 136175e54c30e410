//! [`Pause`]: the time after a refused thread during which no other is created.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The system has refused a thread. It lasts twice as long each time that the system refuses again.
pub(super) struct Pause {
    end: Instant,
    length: Duration,
}

impl Pause {
    /// Begins now, after the `previous` pause.
    pub(super) fn after(previous: Option<&Self>) -> Self {
        let length = match previous {
            Some(pause) => (pause.length * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        Self {
            end: Instant::now() + length,
            length,
        }
    }

    /// When the pause ends, if it is not over.
    pub(super) fn end(&self) -> Option<Instant> {
        (Instant::now() < self.end).then_some(self.end)
    }
}
