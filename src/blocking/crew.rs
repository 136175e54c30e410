//! The threads of a pool and the tasks that wait for them, under one lock; `PROTOCOL.md` beside this
//! file argues why no task is stranded and no wake-up lost.

use std::io;
use std::time::{Duration, Instant};

use super::builder::Options;
use super::metrics::Metrics;
use super::worker::{self, Bed};
use crate::bell::Bell;
use crate::inbox::Chain;
use crate::join::Seat;
use crate::room::Room;
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::task::{Fault, Ran, Task};

/// After the system has refused a thread, no other is asked for during this time, as long as there
/// are threads at all.
const GROWTH_PAUSE: Duration = Duration::from_millis(50);

/// What all handles and all threads of a pool share.
pub(super) struct Crew {
    pub(super) options: Options,
    /// Tasks that are accepted and not finished.
    pub(super) room: Arc<Room>,
    roster: Mutex<Roster>,
    /// Told when the last thread of a closed pool has ended.
    terminated: Bell,
}

/// Who is there, and what waits. Every change is one critical section.
pub(super) struct Roster {
    queue: Chain<Task<Seat>>,
    queued: usize,
    /// Idle threads, the one that has waited the longest first: the last one is woken first, so that
    /// the others reach their keep-alive.
    idle: Vec<Arc<Bed>>,
    /// Threads that were woken and have not come back yet. They will look at the queue.
    waking: usize,
    /// Threads that are being created. They will look at the queue.
    starting: usize,
    /// Threads that exist, without those that are being created.
    threads: usize,
    /// How many threads were created so far, for their names.
    created: usize,
    closed: bool,
    grow_after: Option<Instant>,
    /// What only ever counts up.
    totals: Metrics,
}

/// A task that was not accepted, and why.
pub(super) enum Unaccepted {
    Closed(Task<Seat>),
    NoThread(Task<Seat>, io::Error),
}

impl Crew {
    pub(super) fn new(options: Options) -> Self {
        let limit = match options.queue_capacity {
            Some(capacity) => capacity.saturating_add(options.max_threads),
            None => usize::MAX,
        };
        Self {
            options,
            room: Arc::new(Room::new(limit)),
            roster: Mutex::new(Roster::new()),
            terminated: Bell::new(),
        }
    }

    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// Takes a task that has a place in the room, and sees to it that a thread will run it. An
    /// unaccepted task has lost its place.
    pub(super) fn accept(this: &Arc<Self>, task: Task<Seat>) -> Result<(), Unaccepted> {
        let mut roster = this.roster();
        // Again, until it need not: by the time that the lock is back, the new thread may have taken
        // another task, or have left.
        while roster.must_grow(&this.options) {
            roster = match Self::grow(this, roster) {
                Ok(roster) => roster,
                Err(why) => return Err(this.turn_away(Unaccepted::NoThread(task, why))),
            };
        }
        if roster.closed {
            drop(roster);
            return Err(this.turn_away(Unaccepted::Closed(task)));
        }
        roster.push(task);
        let woken = roster.wake_one();
        drop(roster);
        worker::wake(woken);
        Ok(())
    }

    /// Creates a thread. The lock is given up meanwhile: creating one takes long.
    fn grow<'a>(
        this: &'a Arc<Self>,
        mut roster: MutexGuard<'a, Roster>,
    ) -> io::Result<MutexGuard<'a, Roster>> {
        let number = roster.created;
        roster.created += 1;
        roster.starting += 1;
        drop(roster);
        let started = worker::start(this, number);
        let mut roster = this.roster();
        let Err(why) = started else {
            return Ok(roster);
        };
        roster.starting -= 1;
        roster.totals.spawn_failures += 1;
        roster.grow_after = Instant::now().checked_add(GROWTH_PAUSE);
        if roster.is_staffed() {
            return Ok(roster);
        }
        this.strand(roster, &why);
        Err(why)
    }

    /// There is no thread, and none to be had: whatever was queued in the hope of one is told.
    fn strand(&self, mut roster: MutexGuard<'_, Roster>, why: &io::Error) {
        let mut queue = roster.take_queue();
        roster.grow_after = None;
        let over = roster.is_over();
        drop(roster);
        while let Some(task) = queue.pop_front() {
            // First, as at the end of a task that runs: who learns of it finds its place free.
            self.room.leave();
            task.fail(Fault::rejected(io::Error::new(why.kind(), why.to_string())));
        }
        if over {
            self.tell_terminated();
        }
    }

    fn turn_away(&self, unaccepted: Unaccepted) -> Unaccepted {
        self.room.leave();
        self.reject();
        unaccepted
    }

    /// Counts a task that was not accepted.
    pub(super) fn reject(&self) {
        self.roster().totals.rejected += 1;
    }

    /// Refuses tasks from now on, and lets the threads go when what is queued has run.
    pub(super) fn close(&self) {
        self.room.close();
        let mut roster = self.roster();
        roster.closed = true;
        let woken = roster.wake_all();
        let over = roster.is_over();
        drop(roster);
        worker::wake(woken);
        if over {
            self.tell_terminated();
        }
    }

    /// A thread ends: it has left the roster, under the lock that it gives up here.
    pub(super) fn leave(&self, roster: MutexGuard<'_, Roster>) {
        let over = roster.is_over();
        drop(roster);
        if over {
            self.tell_terminated();
        }
    }

    /// Wakes those who wait for the end.
    fn tell_terminated(&self) {
        self.terminated.ring_all();
    }

    pub(super) async fn terminated(&self) {
        self.terminated
            .wait(|| self.roster().is_over().then_some(()))
            .await;
    }

    pub(super) fn metrics(&self) -> Metrics {
        let roster = self.roster();
        let idle = roster.idle.len() + roster.waking;
        Metrics {
            threads: roster.threads + roster.starting,
            idle,
            busy: roster.threads - idle,
            queued: roster.queued,
            ..roster.totals.clone()
        }
    }
}

impl Roster {
    fn new() -> Self {
        Self {
            queue: Chain::new(),
            queued: 0,
            idle: Vec::new(),
            waking: 0,
            starting: 0,
            threads: 0,
            created: 0,
            closed: false,
            grow_after: None,
            totals: Metrics::default(),
        }
    }

    /// Scale first: one more task is one more than the threads that will look at the queue.
    fn must_grow(&self, options: &Options) -> bool {
        self.queued + 1 > self.idle.len() + self.waking + self.starting
            && self.threads + self.starting < options.max_threads
            && !self.closed
            && !self.is_growth_paused()
    }

    fn is_growth_paused(&self) -> bool {
        self.is_staffed() && self.grow_after.is_some_and(|after| Instant::now() < after)
    }

    /// Whether some thread will look at the queue.
    fn is_staffed(&self) -> bool {
        self.threads + self.starting > 0
    }

    /// Whether the pool is closed and its last thread has ended.
    fn is_over(&self) -> bool {
        self.closed && !self.is_staffed()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_above(&self, core_threads: usize) -> bool {
        self.threads > core_threads
    }

    fn push(&mut self, task: Task<Seat>) {
        self.queue.push_back(task);
        self.queued += 1;
        self.totals.submitted += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Task<Seat>> {
        let task = self.queue.pop_front()?;
        self.queued -= 1;
        Some(task)
    }

    fn take_queue(&mut self) -> Chain<Task<Seat>> {
        self.queued = 0;
        std::mem::replace(&mut self.queue, Chain::new())
    }

    /// Whom to wake, now that a task waits: the thread that went idle last, unless one has been
    /// woken already. That one, when it has taken a task, wakes the next: a wake-up costs more than
    /// many a task, and one thread may be enough.
    pub(super) fn wake_one(&mut self) -> Option<Arc<Bed>> {
        if self.queued == 0 || self.waking > 0 {
            return None;
        }
        let bed = self.idle.pop()?;
        self.waking += 1;
        Some(bed)
    }

    fn wake_all(&mut self) -> Vec<Arc<Bed>> {
        self.waking += self.idle.len();
        std::mem::take(&mut self.idle)
    }

    /// A created thread is there.
    pub(super) fn arrive(&mut self) {
        self.starting -= 1;
        self.threads += 1;
        self.totals.largest = self.totals.largest.max(self.threads);
    }

    /// A thread that is neither idle nor woken ends.
    pub(super) fn depart(&mut self) {
        self.threads -= 1;
    }

    pub(super) fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// Whether nobody has taken the bed off the roster, to wake its thread.
    pub(super) fn is_lying(&self, bed: &Arc<Bed>) -> bool {
        self.idle.iter().any(|idle| Arc::ptr_eq(idle, bed))
    }

    pub(super) fn lie_down(&mut self, bed: &Arc<Bed>) {
        self.idle.push(Arc::clone(bed));
    }

    /// A thread gets up, woken or by itself.
    pub(super) fn get_up(&mut self, bed: &Arc<Bed>) {
        match self.idle.iter().position(|idle| Arc::ptr_eq(idle, bed)) {
            Some(index) => drop(self.idle.remove(index)),
            None => self.waking -= 1,
        }
    }

    pub(super) fn count(&mut self, ran: Ran) {
        match ran {
            Ran::Returned => self.totals.completed += 1,
            Ran::Panicked => self.totals.panicked += 1,
            Ran::Cancelled => self.totals.cancelled += 1,
        }
    }
}
