//! Who is to be attended to, and when; and the thread that does.

mod heap;

use std::io;
use std::sync::Weak;
use std::time::Instant;

use self::heap::{Next, TimerHeap};
use super::Tick;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;

/// The one of the process.
pub(super) static TIMER: Timer = Timer::new();

/// A timer, and what it has to do.
pub(super) struct Timer(Mutex<State>);

/// What the lock is for. It is held neither while somebody is attended to, nor while one is upgraded
/// or dropped: all that is code of others.
struct State {
    /// `None`: nobody has needed one yet.
    timer: Option<Thread>,
    heap: TimerHeap,
}

impl Timer {
    const fn new() -> Self {
        Self(Mutex::new(State {
            timer: None,
            heap: TimerHeap::new(),
        }))
    }

    pub(super) fn arm(&'static self, at: Instant, tick: Weak<dyn Tick>) -> io::Result<()> {
        self.arm_with(at, tick, || {
            let timer = thread::Builder::new().name(String::from("throng-timer"));
            Ok(timer.spawn(|| self.serve())?.thread().clone())
        })
    }

    fn arm_with(
        &self,
        at: Instant,
        tick: Weak<dyn Tick>,
        start_thread: impl FnOnce() -> io::Result<Thread>,
    ) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.timer.is_none() {
            state.timer = Some(start_thread()?);
        }
        let sleeps_too_long = state.heap.add(at, tick);
        let timer = state.timer.clone().filter(|_| sleeps_too_long);
        drop(state);
        if let Some(timer) = timer {
            timer.unpark();
        }
        Ok(())
    }

    /// The life of the timer.
    fn serve(&self) {
        loop {
            let now = Instant::now();
            // Whoever arms does so before it unparks: what is not found here ends the sleep.
            let next = lock(&self.0).heap.next(now);
            match next {
                Next::Nothing => thread::park(),
                Next::At(time) => {
                    thread::park_until(time);
                }
                Next::Due(tick) => self.tick(now, tick),
            }
        }
    }

    /// Attends to one of those that are due, who then is on the heap again, or forgotten.
    fn tick(&self, now: Instant, tick: Weak<dyn Tick>) {
        let mut again = None;
        // Dropping the last reference to a pool drops its tasks, which are not our code.
        contain(|| again = tick.upgrade().and_then(|tick| tick.tick(now)));
        if let Some(again) = again {
            // Not before now: others whose time has come meanwhile have their turn.
            lock(&self.0).heap.add(again.max(now), tick);
        }
    }
}

#[cfg(test)]
mod tests;
