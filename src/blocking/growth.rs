//! How threads are created: by submitters, by other threads, and by the steward.

use std::io;
use std::time::Instant;

use super::crew::Crew;
use super::roster::Roster;
use super::worker;
use crate::steward::{self, Charge};
use crate::sync::{Arc, MutexGuard};

/// How many threads one that starts creates at most, before it runs a task: so they double.
const CREATED_BY_ONE: usize = 2;

/// What is under the lock, which is given up meanwhile; and why there is no thread, if there is none.
type Started<'a> = Result<MutexGuard<'a, Roster>, (MutexGuard<'a, Roster>, io::Error)>;

impl Crew {
    /// Creates a thread. The lock is given up meanwhile: creating one takes long.
    pub(super) fn start_thread<'a>(
        this: &'a Arc<Self>,
        mut roster: MutexGuard<'a, Roster>,
    ) -> Started<'a> {
        let number = roster.begin();
        drop(roster);
        let started = worker::start(this, number);
        let mut roster = this.roster();
        match started {
            Ok(()) => Ok(roster),
            Err(why) => {
                roster.refused();
                Err((roster, why))
            }
        }
    }

    /// Creates threads that are needed, on behalf of one that is there.
    pub(super) fn grow<'a>(
        this: &'a Arc<Self>,
        mut roster: MutexGuard<'a, Roster>,
    ) -> MutexGuard<'a, Roster> {
        for _ in 0..CREATED_BY_ONE {
            if !roster.must_start(usize::MAX, 0, &this.options) {
                break;
            }
            roster = Self::start_or_strand(this, roster);
        }
        match roster.arm(this) {
            None => roster,
            due => {
                drop(roster);
                Self::arm(this, due);
                this.roster()
            }
        }
    }

    /// Creates core threads that are missing, and says how many.
    pub(super) fn prestart(this: &Arc<Self>) -> io::Result<usize> {
        let mut roster = this.roster();
        // Those that end meanwhile are not made up for: a keep-alive may be shorter than all this takes.
        let missing = roster.missing_core();
        for started in 0..missing {
            if roster.missing_core() == 0 {
                return Ok(started);
            }
            roster = match Self::start_thread(this, roster) {
                Ok(roster) => roster,
                Err((roster, why)) => {
                    this.strand_if_alone(roster, &why);
                    // What was queued in the hope of that thread waits for those that are there.
                    let due = this.roster().arm(this);
                    Self::arm(this, due);
                    return Err(why);
                }
            };
        }
        Ok(missing)
    }

    fn start_or_strand<'a>(
        this: &'a Arc<Self>,
        roster: MutexGuard<'a, Roster>,
    ) -> MutexGuard<'a, Roster> {
        match Self::start_thread(this, roster) {
            Ok(roster) => roster,
            Err((roster, why)) => {
                this.strand_if_alone(roster, &why);
                this.roster()
            }
        }
    }

    fn strand_if_alone(&self, roster: MutexGuard<'_, Roster>, why: &io::Error) {
        if !roster.is_staffed() {
            self.strand(roster, why);
        }
    }

    // ===== The steward =====

    /// Has the steward look after this pool, whose roster says so.
    pub(super) fn arm(this: &Arc<Self>, due: Option<Instant>) {
        let Some(due) = due else { return };
        if steward::arm_for(due, this).is_err() {
            // The system gives it no thread, and would give the pool none. The next task tries again.
            let armed = this.roster().disarm();
            drop(armed);
        }
    }
}

impl Charge for Crew {
    fn attend(&self, _: Instant) -> Option<Instant> {
        let this = self.roster().armed()?;
        let mut roster = this.roster();
        for _ in 0..roster.attend(&self.options) {
            roster = Self::start_or_strand(&this, roster);
        }
        let due = roster.due(&self.options);
        let armed = due.is_none().then(|| roster.disarm());
        drop(roster);
        drop(armed);
        due
    }
}
