//! How threads are created: by submitters, by other threads, and by the timer.

use std::io;
use std::time::Instant;

use super::shared::Shared;
use super::state::State;
use super::worker;
use crate::sync::{Arc, MutexGuard};
use crate::timer::{self, Tick};

/// How many threads one that starts creates at most, before it runs a task: so they double.
const CREATED_BY_ONE: usize = 2;

/// What is under the lock, which is given up meanwhile; and why there is no thread, if there is none.
type Started<'a> = Result<MutexGuard<'a, State>, (MutexGuard<'a, State>, io::Error)>;

impl Shared {
    /// Creates a thread. The lock is given up meanwhile: creating one takes long.
    pub(super) fn start_thread<'a>(
        this: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> Started<'a> {
        let number = state.begin();
        drop(state);
        let started = worker::start(this, number);
        let mut state = this.state();
        match started {
            Ok(()) => Ok(state),
            Err(why) => {
                state.refused();
                Err((state, why))
            }
        }
    }

    /// Creates threads that are needed, on behalf of one that is there.
    pub(super) fn grow<'a>(
        this: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        for _ in 0..CREATED_BY_ONE {
            if !state.must_start(usize::MAX, 0, &this.options) {
                break;
            }
            state = Self::start_or_strand(this, state);
        }
        match state.arm(this) {
            None => state,
            due => {
                drop(state);
                Self::arm(this, due);
                this.state()
            }
        }
    }

    /// Creates core threads that are missing, and says how many.
    pub(super) fn prestart(this: &Arc<Self>) -> io::Result<usize> {
        let mut state = this.state();
        // Those that end meanwhile are not made up for: a keep-alive may be shorter than all this takes.
        let missing = state.missing_core();
        for started in 0..missing {
            if state.missing_core() == 0 {
                return Ok(started);
            }
            state = match Self::start_thread(this, state) {
                Ok(state) => state,
                Err((state, why)) => {
                    this.strand_if_alone(state, &why);
                    // What was queued in the hope of that thread waits for those that are there.
                    let due = this.state().arm(this);
                    Self::arm(this, due);
                    return Err(why);
                }
            };
        }
        Ok(missing)
    }

    fn start_or_strand<'a>(
        this: &'a Arc<Self>,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        match Self::start_thread(this, state) {
            Ok(state) => state,
            Err((state, why)) => {
                this.strand_if_alone(state, &why);
                this.state()
            }
        }
    }

    fn strand_if_alone(&self, state: MutexGuard<'_, State>, why: &io::Error) {
        if !state.is_staffed() {
            self.strand(state, why);
        }
    }

    // ===== the timer =====

    /// Has the timer look after this pool, whose state says so.
    pub(super) fn arm(this: &Arc<Self>, due: Option<Instant>) {
        let Some(due) = due else { return };
        if timer::arm(due, this).is_err() {
            // The system gives it no thread, and would give the pool none. The next task tries again.
            let armed = this.state().disarm();
            drop(armed);
        }
    }
}

impl Tick for Shared {
    fn tick(&self, _: Instant) -> Option<Instant> {
        let this = self.state().armed()?;
        let mut state = this.state();
        for _ in 0..state.tick(&self.options) {
            state = Self::start_or_strand(&this, state);
        }
        let due = state.due(&self.options);
        let armed = due.is_none().then(|| state.disarm());
        drop(state);
        drop(armed);
        due
    }
}
