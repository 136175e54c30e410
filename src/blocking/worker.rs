//! A thread of a pool: takes tasks while there are any, waits, and ends.

use std::cell::Cell;
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Instant;

use super::crew::Crew;
use super::roster::Roster;
use super::samples::Sample;
use crate::join::{Host, Seat, Work, move_in, move_out};
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
fn work(crew: &Arc<Crew>) {
    if let Some(runtime) = &crew.options.runtime {
        // Never left: a guard that a task leaks would make leaving panic, and the thread ends with
        // the context anyway.
        mem::forget(runtime.enter());
    }
    let post = Rc::new(Post::new(crew));
    move_in(Rc::clone(&post) as Rc<dyn Host>);
    take_tasks(crew, &post);
    crew.options.on_thread_stop.call();
    move_out();
    let mut roster = crew.roster();
    post.unblock(&mut roster);
    roster.gone();
    crew.leave(roster);
}

/// Comes back when the thread is off the roster.
fn take_tasks(crew: &Arc<Crew>, post: &Post) {
    let bed = Arc::new(Bed {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let mut seat = Seat::default();
    let mut roster = crew.roster();
    roster.stand_up();
    roster = Crew::grow(crew, roster);
    if crew.options.on_thread_start.is_set() {
        drop(roster);
        crew.options.on_thread_start.call();
        roster = crew.roster();
        post.unblock(&mut roster);
    }
    roster.arrive();
    let mut taken = roster.pop();
    loop {
        if let Some((task, sample)) = taken {
            roster = run(crew, &mut seat, roster, task, sample);
            post.unblock(&mut roster);
            taken = match roster.has_surplus() {
                false => roster.pop(),
                true => break,
            };
        } else if roster.is_closed() || roster.has_surplus() {
            break;
        } else if let Some(up) = rest(crew, roster, &bed) {
            roster = up;
            taken = roster.pop();
        } else {
            return;
        }
    }
    roster.depart();
    let woken = roster.wake_some();
    drop(roster);
    wake(woken.into_iter().flatten());
}

/// Runs a task without the lock, after waking others if there is more to do.
fn run<'a>(
    crew: &'a Crew,
    seat: &mut Seat,
    mut roster: MutexGuard<'a, Roster>,
    task: Task<Seat>,
    sample: Option<Sample>,
) -> MutexGuard<'a, Roster> {
    let woken = roster.wake_some();
    drop(roster);
    wake(woken.into_iter().flatten());
    let ran = Work::new(task).run_in(seat);
    crew.ran(seat, ran, sample)
}

/// Waits to be woken, and comes back with the lock; `None`: the keep-alive has passed, nothing was
/// queued, and the thread is off the roster.
fn rest<'a>(
    crew: &'a Crew,
    mut roster: MutexGuard<'a, Roster>,
    bed: &Arc<Bed>,
) -> Option<MutexGuard<'a, Roster>> {
    let mut deadline = deadline(&roster);
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
        if roster.patience().is_some() {
            roster.get_up(bed);
            roster.depart();
            return None;
        }
        deadline = None;
    }
}

/// When a thread that goes idle now will end; `None`: never, it is one of those that stay.
fn deadline(roster: &Roster) -> Option<Instant> {
    Instant::now().checked_add(roster.patience()?)
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

/// A thread of a pool, as its tasks see it.
struct Post {
    crew: Arc<Crew>,
    /// The task that runs has waited for another: a thread may stand in for this one.
    blocked: Cell<bool>,
}

impl Post {
    fn new(crew: &Arc<Crew>) -> Self {
        Self {
            crew: Arc::clone(crew),
            blocked: Cell::new(false),
        }
    }

    /// The task that may have waited has ended.
    fn unblock(&self, roster: &mut Roster) {
        if self.blocked.take() {
            roster.unblock();
        }
    }
}

impl Host for Post {
    fn name(&self) -> NonZeroUsize {
        Crew::name(&self.crew)
    }

    fn ran_here(&self, ran: Ran) {
        self.crew.ran_beside(ran);
    }

    fn waits(&self) -> bool {
        if self.blocked.get() {
            return true;
        }
        let mut roster = self.crew.roster();
        let may = roster.block();
        self.blocked.set(may);
        if may {
            drop(Crew::grow(&self.crew, roster));
        }
        may
    }
}
