//! the timer: the one timer thread of the process.
//!
//! Pools have it look after what cannot look after itself: a thread that runs a long task cannot see
//! what waits behind it, and a queue that nobody takes from cannot see that it is late. It is created
//! when somebody asks for it first, comes when it is asked to, and parks, without a time-out, when
//! nobody is left who has asked: an idle process has no timer.

#![cfg_attr(
    any(miri, all(test, any(throng_loom, throng_shuttle))),
    allow(dead_code, reason = "there is no timer to use it")
)]

#[cfg(not(any(miri, all(test, any(throng_loom, throng_shuttle)))))]
mod thread;

use std::io;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::sync::Arc;

/// How often a [`Watchdog`] is visited.
const PERIOD: Duration = Duration::from_millis(5);

/// Somebody whom the timer attends to at a time that was agreed on.
///
/// All of them share one thread: who blocks holds up the others.
pub(crate) trait Tick: Send + Sync + 'static {
    /// Looks after itself at this time; when to come again, if ever.
    ///
    /// A time that has passed already is this one. After a panic, the timer does not come again.
    fn tick(&self, now: Instant) -> Option<Instant>;
}

/// Has the timer attend to somebody once, at that time or shortly after, if it is still alive then.
///
/// The last reference to it may be dropped by the timer, outside of all its locks. In models, this
/// does nothing: there is no time, and they attend by themselves. Nor does it under Miri, which wants
/// all threads to end.
///
/// # Errors
///
/// The system gives no thread for the timer. Nothing is armed then, and the next call tries again.
pub(crate) fn arm(at: Instant, tick: Weak<dyn Tick>) -> io::Result<()> {
    #[cfg(not(any(miri, all(test, any(throng_loom, throng_shuttle)))))]
    return thread::TIMER.arm(at, tick);
    #[cfg(any(miri, all(test, any(throng_loom, throng_shuttle))))]
    {
        let _ = (at, tick);
        Ok(())
    }
}

/// The same, for what is behind an [`Arc`] of [`crate::sync`], of which loom has no `Weak`.
///
/// # Errors
///
/// As [`arm`].
pub(crate) fn arm_for(at: Instant, tick: &Arc<impl Tick>) -> io::Result<()> {
    #[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
    {
        let tick = Arc::downgrade(tick);
        arm(at, tick)
    }
    #[cfg(all(test, any(throng_loom, throng_shuttle)))]
    {
        let _ = (at, tick);
        Ok(())
    }
}

/// Somebody who is visited every 5 ms.
pub(crate) trait Watchdog: Send + Sync + 'static {
    /// the timer's visit; `false`: it need not come again. Must not block.
    fn check(&self) -> bool;
}

impl<W: Watchdog> Tick for W {
    fn tick(&self, now: Instant) -> Option<Instant> {
        self.check().then(|| now + PERIOD)
    }
}

/// Has the timer visit somebody, every 5 ms, for as long as it is wanted and alive.
///
/// # Errors
///
/// As [`arm`].
pub(crate) fn watch(watchdog: &Arc<impl Watchdog>) -> io::Result<()> {
    arm_for(Instant::now() + PERIOD, watchdog)
}
