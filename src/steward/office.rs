//! Who is to be attended to, and when; and the thread that does.

mod agenda;

use std::io;
use std::sync::Weak;
use std::time::Instant;

use self::agenda::{Agenda, Next};
use super::Charge;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, lock};
use crate::unwind::contain;

/// The one of the process.
pub(super) static OFFICE: Office = Office::new();

/// A steward, and what it has to do.
pub(super) struct Office(Mutex<Books>);

/// What the lock is for. It is held neither while somebody is attended to, nor while one is upgraded
/// or dropped: all that is code of others.
struct Books {
    /// `None`: nobody has needed one yet.
    steward: Option<Thread>,
    agenda: Agenda,
}

impl Office {
    const fn new() -> Self {
        Self(Mutex::new(Books {
            steward: None,
            agenda: Agenda::new(),
        }))
    }

    pub(super) fn arm(&'static self, at: Instant, charge: Weak<dyn Charge>) -> io::Result<()> {
        self.arm_with(at, charge, || {
            let steward = thread::Builder::new().name(String::from("throng-steward"));
            Ok(steward.spawn(|| self.serve())?.thread().clone())
        })
    }

    fn arm_with(
        &self,
        at: Instant,
        charge: Weak<dyn Charge>,
        hire: impl FnOnce() -> io::Result<Thread>,
    ) -> io::Result<()> {
        let mut books = lock(&self.0);
        if books.steward.is_none() {
            books.steward = Some(hire()?);
        }
        let sleeps_too_long = books.agenda.add(at, charge);
        let steward = books.steward.clone().filter(|_| sleeps_too_long);
        drop(books);
        if let Some(steward) = steward {
            steward.unpark();
        }
        Ok(())
    }

    /// The life of the steward.
    fn serve(&self) {
        loop {
            let now = Instant::now();
            // Whoever arms does so before it unparks: what is not found here ends the sleep.
            let next = lock(&self.0).agenda.next(now);
            match next {
                Next::Nothing => thread::park(),
                Next::At(time) => {
                    thread::park_until(time);
                }
                Next::Due(charge) => self.attend(now, charge),
            }
        }
    }

    /// Attends to one of those that are due, who then is on the agenda again, or forgotten.
    fn attend(&self, now: Instant, charge: Weak<dyn Charge>) {
        let mut again = None;
        // Dropping the last reference to a pool drops its tasks, which are not our code.
        contain(|| again = charge.upgrade().and_then(|charge| charge.attend(now)));
        if let Some(again) = again {
            // Not before now: others whose time has come meanwhile have their turn.
            lock(&self.0).agenda.add(again.max(now), charge);
        }
    }
}

#[cfg(test)]
mod tests;
