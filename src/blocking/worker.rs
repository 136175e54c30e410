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
use crate::join::{Host, Seat, Tally, Work, move_in, move_out};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, MutexGuard, Number, Ordering};
use crate::task::{Abort, Task, settle};

/// Where a thread lies when it is idle.
pub(super) struct Bed {
    thread: Thread,
    /// Set by whoever has taken the bed off the roster; cleared by the thread before it lies down.
    woken: AtomicBool,
    /// 1 if it has lain down since it last got up. Only debug builds write it, under the lock.
    lying: Number,
}

impl Bed {
    pub(super) fn new() -> Self {
        Self {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            lying: Number::new(0),
        }
    }

    /// `false`: it did already.
    pub(super) fn set_lying(&self, lying: bool) -> bool {
        let before = self.lying.get();
        self.lying.set(usize::from(lying));
        before != usize::from(lying)
    }
}

/// Creates a thread, which was counted as starting.
pub(super) fn start(crew: &Arc<Crew>, number: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{number}", crew.options.name));
    if let Some(bytes) = crew.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    let crew = Arc::clone(crew);
    builder.spawn(move || work(&crew, number)).map(drop)
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
fn work(crew: &Arc<Crew>, number: usize) {
    if let Some(runtime) = &crew.options.runtime {
        // Never left: a guard that a task leaks would make leaving panic, and the thread ends with
        // the context anyway.
        mem::forget(runtime.enter());
    }
    let post = Rc::new(Post::new(crew, number));
    move_in(Rc::clone(&post) as Rc<dyn Host>);
    take_tasks(crew, &post);
    crew.options.on_thread_stop.call();
    move_out();
    let mut roster = crew.roster();
    post.unblock(&mut roster);
    roster.gone(&post.tally);
    crew.leave(roster);
}

/// Comes back when the thread is off the roster.
fn take_tasks(crew: &Arc<Crew>, post: &Post) {
    let bed = Arc::new(Bed::new());
    let mut seat = post.seat();
    let mut roster = crew.roster();
    roster.stand_up(&post.tally);
    roster = Crew::grow(crew, roster);
    if crew.options.on_thread_start.is_set() {
        drop(roster);
        crew.options.on_thread_start.call();
        roster = crew.roster();
        post.unblock(&mut roster);
    }
    roster.arrive();
    // Wherever it comes from: one that is beyond the maximum takes no task.
    while !roster.has_surplus() {
        if let Some((task, sample)) = roster.pop() {
            roster = run(crew, post, &mut seat, roster, task, sample);
        } else if roster.is_closed() {
            break;
        } else if let Some(up) = rest(crew, roster, &bed) {
            roster = up;
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
    post: &Post,
    seat: &mut Seat,
    mut roster: MutexGuard<'a, Roster>,
    task: Task<Seat>,
    sample: Option<Sample>,
) -> MutexGuard<'a, Roster> {
    let woken = roster.wake_some();
    drop(roster);
    wake(woken.into_iter().flatten());
    post.tally.begin();
    let ran = Work::new(task).run_in(seat);
    post.tally.end();
    let mut roster = crew.ran(seat, ran, sample);
    post.unblock(&mut roster);
    roster
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
    /// The number of the thread.
    number: usize,
    tally: Arc<Tally>,
    /// The address of the job that the running task has waited for last, if it has waited. The roster keeps
    /// that job, so its address is not used again.
    awaited: Cell<Option<NonZeroUsize>>,
}

impl Post {
    fn new(crew: &Arc<Crew>, number: usize) -> Self {
        Self {
            crew: Arc::clone(crew),
            number,
            tally: Arc::default(),
            awaited: Cell::new(None),
        }
    }

    /// The task that may have waited has ended.
    fn unblock(&self, roster: &mut Roster) {
        if self.awaited.take().is_some() {
            roster.unblock(self.number);
        }
    }
}

impl Host for Post {
    fn name(&self) -> NonZeroUsize {
        Crew::name(&self.crew)
    }

    fn seat(&self) -> Seat {
        Seat::default().counted_by(Arc::clone(&self.tally))
    }

    fn waits(&self, awaited: Abort, must_compensate: bool) -> bool {
        let address = awaited.address();
        if self.awaited.get() == Some(address) {
            return true;
        }
        let mut roster = self.crew.roster();
        let may = roster.block(self.number, awaited, must_compensate);
        if may {
            self.awaited.set(Some(address));
            drop(Crew::grow(&self.crew, roster));
        }
        may
    }
}
