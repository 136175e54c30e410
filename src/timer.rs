//! The timer: one thread for the whole process.
//!
//! A pool whose threads are all busy cannot notice what waits behind them: a thread in a long task does not see its own
//! queue, and a queue that no thread takes from does not see that it is late. Such a part implements [`Tick`], and *arms*
//! the timer for a point in time. The thread is created when the timer is armed for the first time, and parks without a
//! time-out while nothing is armed: an idle process wakes up for no timer.
//!
//! In models, which have no time, and under Miri, which waits for all threads to exit, nothing is ever armed.

#![cfg_attr(
    any(miri, all(test, any(throng_loom, throng_shuttle))),
    allow(dead_code, reason = "there is no timer thread to use it")
)]

use std::cmp;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{LazyLock, Weak};
use std::time::{Duration, Instant};

use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, lock};
use crate::unwind::contain;

/// The time between two checks of a [`Watchdog`].
const PERIOD: Duration = Duration::from_millis(5);
/// The smallest capacity of a heap that is in use.
const MIN_CAPACITY: usize = 16;

/// The timer of the process.
static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);

/// A part that the timer calls at a time that was agreed on.
///
/// All parts share one thread: a call that blocks holds up the others.
pub(crate) trait Tick: Send + Sync + 'static {
    /// Runs at the time that was armed, or shortly after. Returns the time of the next call, or `None` for no more.
    ///
    /// A time in the past counts as `now`. After a panic there are no more calls.
    fn tick(&self, now: Instant) -> Option<Instant>;
}

/// A part that the timer calls every 5 ms.
pub(crate) trait Watchdog: Send + Sync + 'static {
    /// Returns `false` if no more calls are needed. Must not block.
    fn check(&self) -> bool;
}

impl<W: Watchdog> Tick for W {
    fn tick(&self, now: Instant) -> Option<Instant> {
        self.check().then(|| now + PERIOD)
    }
}

/// Calls `tick` once, at that time or shortly after, if it is still alive then.
///
/// The timer may drop the last reference to it, and holds no lock then.
///
/// # Errors
///
/// The system's error, if it does not create the thread. Nothing is armed then, and the next call tries again.
pub(crate) fn arm(at: Instant, tick: &Arc<impl Tick>) -> io::Result<()> {
    #[cfg(not(any(miri, all(test, any(throng_loom, throng_shuttle)))))]
    {
        let tick = Arc::downgrade(tick);
        TIMER.arm(at, tick)
    }
    #[cfg(any(miri, all(test, any(throng_loom, throng_shuttle))))]
    {
        let _ = (at, tick);
        Ok(())
    }
}

/// Calls `watchdog` every 5 ms until it returns `false` or is dropped.
///
/// # Errors
///
/// As [`arm`].
pub(crate) fn watch(watchdog: &Arc<impl Watchdog>) -> io::Result<()> {
    arm(Instant::now() + PERIOD, watchdog)
}

/// A thread, and the ticks that it has to call.
struct Timer(Mutex<State>);

/// The state of a timer. Its lock is held neither while a tick is called, nor while one is upgraded or dropped: all of
/// this may run code of a user.
struct State {
    /// `None` before the timer is armed for the first time.
    thread: Option<Thread>,
    heap: TimerHeap,
}

impl Timer {
    fn new() -> Self {
        Self(Mutex::new(State {
            thread: None,
            heap: TimerHeap::new(),
        }))
    }

    fn arm(&'static self, at: Instant, tick: Weak<dyn Tick>) -> io::Result<()> {
        self.arm_with(at, tick, || {
            let thread = thread::Builder::new().name(String::from("throng-timer"));
            Ok(thread.spawn(|| self.run())?.thread().clone())
        })
    }

    fn arm_with(
        &self,
        at: Instant,
        tick: Weak<dyn Tick>,
        start_thread: impl FnOnce() -> io::Result<Thread>,
    ) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.thread.is_none() {
            state.thread = Some(start_thread()?);
        }
        let sleeps_too_long = state.heap.add(at, tick);
        let thread = state.thread.clone().filter(|_| sleeps_too_long);
        drop(state);
        if let Some(thread) = thread {
            thread.unpark();
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            let now = Instant::now();
            // A tick that is added after this is followed by an unpark, which ends the sleep.
            let next = lock(&self.0).heap.next(now);
            match next {
                NextAction::Nothing => thread::park(),
                NextAction::At(time) => {
                    thread::park_until(time);
                }
                NextAction::Due(tick) => self.call(now, tick),
            }
        }
    }

    /// Calls a tick that is due, and adds it to the heap again if it asks for that.
    fn call(&self, now: Instant, tick: Weak<dyn Tick>) {
        let mut again = None;
        // The drop of the last reference to a pool drops its tasks, which are code of a user.
        contain(|| again = tick.upgrade().and_then(|tick| tick.tick(now)));
        if let Some(again) = again {
            // Not before now: ticks that have become due meanwhile come first.
            lock(&self.0).heap.add(again.max(now), tick);
        }
    }
}

/// The ticks to call, the earliest first.
struct TimerHeap(BinaryHeap<Entry>);

struct Entry {
    at: Instant,
    tick: Weak<dyn Tick>,
}

/// The next step of the timer.
enum NextAction {
    /// Nothing is armed.
    Nothing,
    /// The earliest tick is due then.
    At(Instant),
    /// This tick is due, and no longer on the heap.
    Due(Weak<dyn Tick>),
}

impl TimerHeap {
    fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Adds a tick. Returns `true` if it is earlier than all others.
    fn add(&mut self, at: Instant, tick: Weak<dyn Tick>) -> bool {
        let is_first = self.0.peek().is_none_or(|first| at < first.at);
        self.reserve();
        self.0.push(Entry { at, tick });
        is_first
    }

    fn next(&mut self, now: Instant) -> NextAction {
        match self.0.peek() {
            None => NextAction::Nothing,
            Some(first) if first.at > now => NextAction::At(first.at),
            Some(_) => match self.0.pop() {
                Some(first) => NextAction::Due(first.tick),
                None => NextAction::Nothing,
            },
        }
    }

    /// Removes dropped ticks before the heap grows: their time may be far away.
    fn reserve(&mut self) {
        if self.0.len() < self.0.capacity() {
            return;
        }
        self.0.retain(|entry| entry.tick.strong_count() > 0);
        // As many again may come before the next removal.
        self.0.reserve(self.0.len().max(MIN_CAPACITY));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

// A heap returns the greatest entry first, so the earliest is the greatest.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

#[cfg(all(test, not(any(miri, throng_loom, throng_shuttle))))]
mod tests;
