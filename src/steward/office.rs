//! The list of those who are looked after, and the thread that does.

use std::io;
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::Ward;
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, lock};
use crate::unwind::contain;

/// How often the steward looks after somebody.
const PERIOD: Duration = Duration::from_millis(5);

static OFFICE: Mutex<Office> = Mutex::new(Office {
    steward: None,
    wards: Vec::new(),
});

struct Office {
    steward: Option<Thread>,
    /// All are visited equally often: the first of the list is the first due.
    wards: Vec<Watched>,
}

struct Watched {
    ward: Weak<dyn Ward>,
    due: Instant,
}

pub(super) fn watch<W: Ward>(ward: &Arc<W>) -> io::Result<()> {
    let mut office = lock(&OFFICE);
    let steward = match &office.steward {
        Some(steward) => steward.clone(),
        None => {
            let steward = thread::Builder::new().name(String::from("throng-steward"));
            steward.spawn(serve)?.thread().clone()
        }
    };
    let ward: Weak<W> = Arc::downgrade(ward);
    office.wards.push(Watched {
        ward,
        due: Instant::now() + PERIOD,
    });
    // It may be parked only if there was nobody on the list.
    if office.wards.len() == 1 {
        steward.unpark();
    }
    office.steward = Some(steward);
    Ok(())
}

/// The life of the steward.
fn serve() {
    loop {
        let first = lock(&OFFICE).wards.first().map(|watched| watched.due);
        match first {
            None => thread::park(),
            Some(due) if due > Instant::now() => {
                thread::park_until(due);
            }
            Some(_) => visit_first(),
        }
    }
}

/// Visits the first of the list, who then becomes the last of it, or leaves it.
fn visit_first() {
    let watched = lock(&OFFICE).wards.remove(0);
    let mut again = false;
    // Dropping the last reference to a pool drops its tasks, which are not our code.
    contain(|| again = watched.ward.upgrade().is_some_and(|ward| ward.visit()));
    if again {
        lock(&OFFICE).wards.push(Watched {
            due: Instant::now() + PERIOD,
            ..watched
        });
    }
}
