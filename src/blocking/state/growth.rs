//! When more threads are needed, and when the timer has to check that.

use std::time::Instant;

use super::State;
use crate::blocking::options::{Growth, Options};
use crate::blocking::pause::Pause;
use crate::join::RunCounts;
use crate::sync::{Arc, MODEL};

/// The number of threads that may be about to start. Creating one keeps a processor busy, and each one that starts
/// creates others.
const MAX_STARTING: usize = 4;

impl State {
    /// Returns `true` if one more thread is needed for the queue and for `coming` tasks that are not queued yet.
    #[inline]
    pub(in crate::blocking) fn must_grow(&self, coming: usize, options: &Options) -> bool {
        !self.is_at_limit()
            && self.is_short(coming)
            && self.pause_end().is_none()
            && self.grows(coming, options)
    }

    /// Returns `true` if a thread is needed and the caller has to create it: if `starting` threads, or the maximum of
    /// those, are about to start, these create it.
    #[inline]
    pub(in crate::blocking) fn must_start(
        &self,
        starting: usize,
        coming: usize,
        options: &Options,
    ) -> bool {
        self.starting - self.rest.hooking < starting.min(MAX_STARTING)
            && self.must_grow(coming, options)
    }

    /// Returns `true` if there are more tasks than threads that will look at the queue.
    #[inline]
    fn is_short(&self, coming: usize) -> bool {
        self.queue.waiting() + coming > self.soon_looking()
    }

    /// The number of threads that will look at the queue without ending a task first.
    #[inline]
    fn soon_looking(&self) -> usize {
        self.idle.len() + self.waking + self.starting
    }

    /// The number of threads allowed now.
    #[inline]
    pub(super) fn max_allowed(&self) -> usize {
        let limits = &self.rest.limits;
        limits
            .max_threads
            .saturating_add(self.rest.waits.compensated())
    }

    /// Returns `true` if as many threads as are allowed exist or are starting.
    #[inline]
    pub(super) fn is_at_limit(&self) -> bool {
        self.threads + self.starting >= self.max_allowed()
    }

    /// Returns `true` if the policy asks for a thread now, and not later.
    fn grows(&self, coming: usize, options: &Options) -> bool {
        let core_threads = self.rest.limits.core_threads.max(1) + self.rest.waits.blocked();
        let is_below_core = self.threads + self.starting < core_threads;
        is_below_core
            || match options.growth {
                Growth::Eager => true,
                Growth::After(_) => false,
                Growth::WhenFull => options
                    .queue_capacity
                    .is_some_and(|capacity| self.queue.waiting() + coming > capacity),
            }
    }

    /// The number of core threads that do not exist.
    pub(in crate::blocking) fn missing_core(&self) -> usize {
        if self.closed {
            return 0;
        }
        let existing = self.threads + self.starting;
        self.rest.limits.core_threads.saturating_sub(existing)
    }

    /// A thread is being created. Returns its number.
    pub(in crate::blocking) fn begin_start(&mut self) -> usize {
        self.starting += 1;
        self.rest.created += 1;
        self.rest.created - 1
    }

    /// A created thread runs, and may call a hook: it still counts as starting.
    pub(in crate::blocking) fn begin_hook(&mut self, counts: &Arc<RunCounts>) {
        self.rest.hooking += 1;
        self.rest.counts.push(Arc::clone(counts));
        self.rest.pause = None;
    }

    /// A created thread has run its hook, and looks at the queue.
    pub(in crate::blocking) fn end_start(&mut self) {
        self.rest.hooking -= 1;
        self.starting -= 1;
        self.threads += 1;
        let totals = &mut self.rest.totals;
        totals.largest = totals.largest.max(self.threads as u64);
    }

    /// The system has refused a thread.
    pub(in crate::blocking) fn refused(&mut self) {
        self.starting -= 1;
        self.rest.totals.spawn_failures += 1;
        self.rest.pause = Some(Pause::after(self.rest.pause.as_ref()));
    }

    /// When threads may be created again, if they may not now. Without any thread there is no pause.
    fn pause_end(&self) -> Option<Instant> {
        let pause = self.rest.pause.as_ref()?;
        if self.is_staffed() { pause.end() } else { None }
    }

    // ===== The timer =====

    /// When the timer must fire for this pool, if it must and is not armed yet. Counts it as armed.
    #[inline]
    pub(in crate::blocking) fn arm(&mut self, options: &Options) -> Option<Instant> {
        if self.is_at_limit() || !self.is_short(0) || self.rest.armed || MODEL {
            return None;
        }
        let due = self.due(options)?;
        self.rest.armed = true;
        self.begin_burst();
        Some(due)
    }

    pub(in crate::blocking) fn disarm(&mut self) {
        self.rest.armed = false;
    }

    /// When the timer must fire: tasks wait, and there may be no event that would give them a thread.
    pub(in crate::blocking) fn due(&self, options: &Options) -> Option<Instant> {
        if !self.is_short(0) || self.is_at_limit() {
            return None;
        }
        match (self.pause_end(), options.growth) {
            (Some(end), _) => Some(end),
            (None, Growth::After(time)) => Instant::now().checked_add(time),
            (None, _) => None,
        }
    }

    /// The timer has fired. Returns the number of threads to create.
    ///
    /// It goes by time and by what waits, and not by tasks that are taken: if all threads block, none is.
    pub(in crate::blocking) fn tick(&mut self, options: &Options) -> usize {
        let Growth::After(_) = options.growth else {
            return usize::from(self.must_grow(0, options));
        };
        if self.taken() > self.rest.taken_at_tick || self.pause_end().is_some() {
            self.begin_burst();
            return 0;
        }
        let needed = self.queue.waiting().saturating_sub(self.soon_looking());
        let allowed = self
            .max_allowed()
            .saturating_sub(self.threads + self.starting);
        let count = needed.min(allowed).min(self.rest.burst);
        // Each new thread takes one task, which says nothing about the threads that existed before.
        self.rest.taken_at_tick = self.taken() + self.starting + count;
        self.rest.burst = self.rest.burst.saturating_mul(2);
        count
    }

    /// Threads take tasks: the next time that none is taken, growth begins with one thread.
    fn begin_burst(&mut self) {
        self.rest.taken_at_tick = self.taken() + self.starting;
        self.rest.burst = 1;
    }
}
