//! When more threads are needed, and when the timer has to look.

use std::time::{Duration, Instant};

use super::State;
use crate::blocking::Growth;
use crate::blocking::builder::Options;
use crate::blocking::shared::Shared;
use crate::join::RunCounts;
use crate::sync::{Arc, MODEL};

/// How many threads may be about to start. Creating one keeps a processor busy, and those that start
/// create the next.
const MAX_STARTING: usize = 4;
/// After the system has refused a thread, no other is asked for during this time, as long as there are
/// threads at all; and twice as long each time that it refuses again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The system has refused a thread.
pub(super) struct Pause {
    end: Instant,
    length: Duration,
}

impl State {
    /// Scale first: so many more tasks are more than the threads that will look at the queue.
    #[inline]
    fn is_short(&self, coming: usize) -> bool {
        self.queued() + coming > self.idle.len() + self.waking + self.starting
    }

    /// How many threads there may be now.
    #[inline]
    pub(super) fn most(&self) -> usize {
        self.rest
            .limits
            .max_threads
            .saturating_add(self.rest.waits.compensated())
    }

    #[inline]
    fn is_full_up(&self) -> bool {
        self.threads + self.starting >= self.most()
    }

    /// Whether one more thread is needed, with so many tasks that are not queued yet.
    #[inline]
    pub(in crate::blocking) fn must_grow(&self, coming: usize, options: &Options) -> bool {
        !self.is_full_up()
            && self.is_short(coming)
            && self.pause_end().is_none()
            && self.grows(coming, options)
    }

    fn grows(&self, coming: usize, options: &Options) -> bool {
        let core_threads = self.rest.limits.core_threads.max(1) + self.rest.waits.blocked();
        let few = self.threads + self.starting < core_threads;
        few || match options.growth {
            Growth::Eager => true,
            Growth::After(_) => false,
            Growth::WhenFull => options
                .queue_capacity
                .is_some_and(|capacity| self.queued() + coming > capacity),
        }
    }

    /// As above, and whether it is for the caller to create it: those that start create others.
    #[inline]
    pub(in crate::blocking) fn must_start(
        &self,
        starting: usize,
        coming: usize,
        options: &Options,
    ) -> bool {
        self.starting - self.rest.standing < starting.min(MAX_STARTING)
            && self.must_grow(coming, options)
    }

    /// How many core threads there are not.
    pub(in crate::blocking) fn missing_core(&self) -> usize {
        if self.closed {
            return 0;
        }
        let there = self.threads + self.starting;
        self.rest.limits.core_threads.saturating_sub(there)
    }

    /// A thread is being created: its number.
    pub(in crate::blocking) fn begin(&mut self) -> usize {
        self.starting += 1;
        self.rest.created += 1;
        self.rest.created - 1
    }

    /// A created thread is there, and runs a hook perhaps: it still counts as starting.
    pub(in crate::blocking) fn stand_up(&mut self, tally: &Arc<RunCounts>) {
        self.rest.standing += 1;
        self.rest.tallies.push(Arc::clone(tally));
        self.rest.pause = None;
    }

    /// It looks at the queue.
    pub(in crate::blocking) fn arrive(&mut self) {
        self.rest.standing -= 1;
        self.starting -= 1;
        self.threads += 1;
        self.rest.totals.largest = self.rest.totals.largest.max(self.threads);
    }

    /// The system has refused a thread.
    pub(in crate::blocking) fn refused(&mut self) {
        self.starting -= 1;
        self.rest.totals.spawn_failures += 1;
        let length = match &self.rest.pause {
            Some(pause) => (pause.length * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        self.rest.pause = Some(Pause {
            end: Instant::now() + length,
            length,
        });
    }

    /// When threads may be asked for again, if they may not now.
    fn pause_end(&self) -> Option<Instant> {
        let end = self.rest.pause.as_ref()?.end;
        (self.is_staffed() && Instant::now() < end).then_some(end)
    }

    /// When the timer should look after this pool, if it has to and does not know yet.
    #[inline]
    pub(in crate::blocking) fn arm(&mut self, shared: &Arc<Shared>) -> Option<Instant> {
        if self.is_full_up() || !self.is_short(0) || self.rest.armed.is_some() || MODEL {
            return None;
        }
        let due = self.due(&shared.options)?;
        self.rest.armed = Some(Arc::clone(shared));
        (self.rest.taken_then, self.rest.burst) = (self.taken() + self.starting, 1);
        Some(due)
    }

    /// The pool that the timer looks after.
    pub(in crate::blocking) fn armed(&self) -> Option<Arc<Shared>> {
        self.rest.armed.clone()
    }

    /// the timer need not look. Whoever gets the pool drops it without the lock.
    pub(in crate::blocking) fn disarm(&mut self) -> Option<Arc<Shared>> {
        self.rest.armed.take()
    }

    /// When the timer should look: tasks wait, and no event may come that would give them a thread.
    pub(in crate::blocking) fn due(&self, options: &Options) -> Option<Instant> {
        if !self.is_short(0) || self.is_full_up() {
            return None;
        }
        match (self.pause_end(), options.growth) {
            (Some(end), _) => Some(end),
            (None, Growth::After(time)) => Instant::now().checked_add(time),
            (None, _) => None,
        }
    }

    /// the timer looks: how many threads it is to create.
    ///
    /// It goes by time and by what waits. If all threads are blocked nothing is taken, and no thread
    /// comes to look.
    pub(in crate::blocking) fn tick(&mut self, options: &Options) -> usize {
        let Growth::After(_) = options.growth else {
            return usize::from(self.must_grow(0, options));
        };
        if self.taken() > self.rest.taken_then || self.pause_end().is_some() {
            (self.rest.taken_then, self.rest.burst) = (self.taken() + self.starting, 1);
            return 0;
        }
        let looking = self.idle.len() + self.waking + self.starting;
        let needed = self.queued().saturating_sub(looking);
        let room = self.most().saturating_sub(self.threads + self.starting);
        let count = needed.min(room).min(self.rest.burst);
        // Each new thread takes one, and says nothing by that about those that were there.
        self.rest.taken_then = self.taken() + self.starting + count;
        self.rest.burst = self.rest.burst.saturating_mul(2);
        count
    }
}
