//! [`StallWatch`]: a warning when submitters wait and the stream is not polled.

use std::time::{Duration, Instant};

use super::queue::CompletionQueue;
use crate::sync::{Arc, Mutex, Number, lock};
use crate::timer::{self, Tick};

/// The time after which a wait is reported.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Warns once when submitters have waited for [`STALL_TIMEOUT`] while the stream was not polled.
///
/// The likely cause is a task that awaits a submission to the stream that it reads itself. The clock is that of
/// the crate's timer thread: a Tokio runtime may have none.
pub(super) struct StallWatch<T, K> {
    queue: Arc<CompletionQueue<T, K>>,
    /// 1 if the stream was polled since the last tick.
    polled: Number,
    waits: Mutex<StallState>,
}

#[derive(Default)]
struct StallState {
    /// The number of submitters that wait.
    waiting: usize,
    /// A tick will come.
    armed: bool,
    /// Submitters have waited all the time since the last tick.
    since_last_tick: bool,
    warned: bool,
}

impl<T, K> StallWatch<T, K> {
    pub(super) fn new(queue: &Arc<CompletionQueue<T, K>>) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::clone(queue),
            polled: Number::new(0),
            waits: Mutex::default(),
        })
    }

    /// The stream was polled.
    pub(super) fn note_poll(&self) {
        self.polled.set(1);
    }

    fn end_wait(&self) {
        let mut waits = lock(&self.waits);
        waits.waiting -= 1;
        if waits.waiting == 0 {
            waits.since_last_tick = false;
            waits.warned = false;
        }
    }
}

impl<T: Send + 'static, K: Send + 'static> StallWatch<T, K> {
    /// A submitter waits until the returned value is dropped.
    pub(super) fn wait(this: &Arc<Self>) -> Wait<'_, T, K> {
        let mut waits = lock(&this.waits);
        waits.waiting += 1;
        if !waits.armed {
            waits.armed = timer::arm(Instant::now() + STALL_TIMEOUT, this).is_ok();
            // The tick that was armed comes when this wait is old enough.
            waits.since_last_tick = true;
            this.polled.set(0);
        }
        Wait(this)
    }
}

impl<T: Send + 'static, K: Send + 'static> Tick for StallWatch<T, K> {
    fn tick(&self, now: Instant) -> Option<Instant> {
        let mut waits = lock(&self.waits);
        if waits.waiting == 0 {
            waits.armed = false;
            return None;
        }
        let polled = self.polled.get() == 1 || self.queue.is_parked();
        self.polled.set(0);
        let stalled = waits.since_last_tick && !polled && !waits.warned;
        waits.since_last_tick = true;
        waits.warned |= stalled;
        drop(waits);
        if stalled {
            tracing::warn!(
                "a submission to a `CompletionStream` has waited for 1 s while nothing polled the stream: does \
                 the task that reads it await `submit`? Select between `reserve` and `next` there"
            );
        }
        Some(now + STALL_TIMEOUT)
    }
}

pub(super) struct Wait<'a, T, K>(&'a StallWatch<T, K>);

impl<T, K> Drop for Wait<'_, T, K> {
    fn drop(&mut self) {
        self.0.end_wait();
    }
}
