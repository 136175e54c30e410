//! A thread of a pool: takes tasks while there are any, waits, and ends.

use std::io;
use std::mem;
use std::time::Instant;

use super::crew::{Crew, Roster};
use crate::join::{Seat, Work};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, MutexGuard, Ordering};
use crate::task::{Ran, Task, settle};

/// Where a thread lies when it is idle.
pub(super) struct Bed {
    thread: Thread,
    /// Set by whoever has taken the bed off the roster; cleared by the thread before it lies down.
    woken: AtomicBool,
}

/// Creates a thread, which was counted as starting.
pub(super) fn start(crew: &Arc<Crew>, number: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{number}", crew.options.name));
    if let Some(bytes) = crew.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    let crew = Arc::clone(crew);
    builder.spawn(move || work(&crew)).map(drop)
}

/// Wakes threads that were taken off the roster.
pub(super) fn wake(beds: impl IntoIterator<Item = Arc<Bed>>) {
    for bed in beds {
        // Relaxed is enough: unparking publishes it, and all else is under the lock.
        bed.woken.store(true, Ordering::Relaxed);
        bed.thread.unpark();
    }
}

/// The life of a thread.
fn work(crew: &Crew) {
    if let Some(runtime) = &crew.options.runtime {
        // Never left: a guard that a task leaks would make leaving panic, and the thread ends with
        // the context anyway.
        mem::forget(runtime.enter());
    }
    let bed = Arc::new(Bed {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let mut seat = Seat::in_room(Arc::clone(&crew.room));
    let mut roster = crew.roster();
    roster.arrive();
    loop {
        if let Some(task) = roster.pop() {
            roster = run(crew, &mut seat, roster, task);
        } else if roster.is_closed() {
            break;
        } else if let Some(up) = rest(crew, roster, &bed) {
            roster = up;
        } else {
            return;
        }
    }
    roster.depart();
    crew.leave(roster);
}

/// Runs a task without the lock, after waking the next thread if there is more to do.
fn run<'a>(
    crew: &'a Crew,
    seat: &mut Seat,
    mut roster: MutexGuard<'a, Roster>,
    task: Task<Seat>,
) -> MutexGuard<'a, Roster> {
    let woken = roster.wake_one();
    drop(roster);
    wake(woken);
    let ran = Work::new(task).run_in(seat);
    if ran == Ran::Cancelled {
        // It did not come to use its seat.
        crew.room.leave();
    }
    let mut roster = crew.roster();
    roster.count(ran);
    roster
}

/// Waits to be woken, and comes back with the lock; `None`: the keep-alive has passed, nothing was
/// queued, and the thread has left.
fn rest<'a>(
    crew: &'a Crew,
    mut roster: MutexGuard<'a, Roster>,
    bed: &Arc<Bed>,
) -> Option<MutexGuard<'a, Roster>> {
    let core_threads = crew.options.core_threads;
    let mut deadline = keep_alive_from_now(crew, &roster);
    bed.woken.store(false, Ordering::Relaxed);
    roster.lie_down(bed);
    drop(roster);
    // What it has freed is somebody's home: an idle thread holds nothing back.
    settle();
    loop {
        let woken = sleep(bed, deadline);
        let mut roster = crew.roster();
        // Whoever wakes takes the bed off the roster under the lock: look there, not at the clock.
        if woken || !roster.is_lying(bed) || roster.has_queued() || roster.is_closed() {
            roster.get_up(bed);
            return Some(roster);
        }
        if roster.is_above(core_threads) {
            roster.get_up(bed);
            roster.depart();
            crew.leave(roster);
            return None;
        }
        deadline = None;
    }
}

/// When a thread that goes idle now will end; `None`: never, it is one of the core threads.
fn keep_alive_from_now(crew: &Crew, roster: &Roster) -> Option<Instant> {
    if roster.is_above(crew.options.core_threads) {
        Instant::now().checked_add(crew.options.keep_alive)
    } else {
        None
    }
}

/// Sleeps until woken (`true`), or until the deadline has passed.
fn sleep(bed: &Bed, deadline: Option<Instant>) -> bool {
    // What a task left of park tokens makes this loop turn once more, nothing else.
    while !bed.woken.load(Ordering::Relaxed) {
        match deadline {
            None => thread::park(),
            Some(deadline) if thread::park_until(deadline) => {
                return bed.woken.load(Ordering::Relaxed);
            }
            Some(_) => {}
        }
    }
    true
}
