//! [`State`]: who is there, and what waits. Every change is one critical section; `PROTOCOL.md` beside
//! this file argues why no task is stranded and no wake-up lost.

mod need;
mod waits;

use std::io;
use std::time::Duration;

use self::need::Pause;
use self::waits::Waits;
use super::metrics::Metrics;
use super::samples::{Sample, Samples};
use super::shared::{Comes, Shared};
use super::worker::Parker;
use crate::inbox::FifoList;
use crate::join::{RunContext, RunCounts};
use crate::sync::Arc;
use crate::task::Task;

/// The largest bound on the wake-ups in flight.
const MAX_WAKING: usize = 32;
/// How many threads are woken in one section at most.
const WOKEN_AT_ONCE: usize = 4;

/// Who is there, and what waits.
pub(super) struct State {
    queue: FifoList<Task<RunContext>>,
    /// How many are in the queue, with those that need not run any more.
    linked: usize,
    /// How many of those need not run any more. Who aborts a task counts it after the fact: if a thread
    /// comes across the task before that, this is one too small meanwhile, and `queued` one too large.
    /// That costs a look at most; but never is `queued` more than what there is to take.
    gone: isize,
    /// Idle threads, the one that has waited the longest first: the last one is woken first, so that
    /// the others reach their keep-alive.
    idle: Vec<Arc<Parker>>,
    /// Threads that were woken and have not come back yet. They will look at the queue.
    waking: usize,
    /// How many may be. It doubles while no task ends between one thread's getting up and the next, and
    /// falls to one when some do: then tasks are shorter than a wake-up takes.
    wakes: usize,
    /// A task has ended since a woken thread got up.
    ended: bool,
    closed: bool,
    /// Threads that are being created. They will look at the queue.
    starting: usize,
    /// Threads that exist, without those that are being created.
    threads: usize,
    /// The number of tasks queued so far.
    submitted: usize,
    samples: Samples,
    /// What is seldom looked at; the above is on few lines of the cache.
    rest: Box<Rest>,
}

/// What is seldom looked at.
struct Rest {
    limits: Limits,
    waits: Waits,
    /// The outcomes of the tasks of each thread.
    tallies: Vec<Arc<RunCounts>>,
    /// How many of those that start are there, and run a hook.
    standing: usize,
    /// Threads that are not counted any more and not yet done: they run a hook.
    leaving: usize,
    /// How many threads were created so far, for their names.
    created: usize,
    /// Nothing is run any more.
    emptied: bool,
    pause: Option<Pause>,
    /// The pool, while the timer is to look after it: it must not go before.
    armed: Option<Arc<Shared>>,
    /// What will have been taken from the queue when the timer looks next, if no thread comes back from a
    /// task until then; and how many threads it creates then.
    taken_then: usize,
    burst: usize,
    /// How many were taken out of the queue, and not by a thread that would run them.
    removed: usize,
    /// What only ever counts up. Of what was submitted, here is only what was never in the queue.
    totals: Metrics,
}

/// What can be set while the pool works.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) core_threads: usize,
    pub(super) max_threads: usize,
    pub(super) keep_alive: Duration,
    pub(super) core_timeout: bool,
}

impl Limits {
    pub(super) fn check(&self) -> io::Result<()> {
        let wrong = if self.max_threads == 0 {
            "a pool needs at least one thread"
        } else if self.core_threads > self.max_threads {
            "`core_threads` is larger than `max_threads`: raise the one or lower the other"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    }
}

/// Threads to be woken, once the lock is given up.
pub(super) type Woken = [Option<Arc<Parker>>; WOKEN_AT_ONCE];

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            queue: FifoList::new(),
            linked: 0,
            gone: 0,
            idle: Vec::new(),
            waking: 0,
            wakes: 1,
            ended: false,
            closed: false,
            starting: 0,
            threads: 0,
            submitted: 0,
            samples: Samples::new(),
            rest: Box::new(Rest {
                limits,
                waits: Waits::default(),
                tallies: Vec::new(),
                standing: 0,
                leaving: 0,
                created: 0,
                emptied: false,
                pause: None,
                armed: None,
                taken_then: 0,
                burst: 1,
                removed: 0,
                totals: Metrics::default(),
            }),
        }
    }

    pub(super) fn limits(&mut self) -> &mut Limits {
        &mut self.rest.limits
    }

    pub(super) fn totals(&mut self) -> &mut Metrics {
        &mut self.rest.totals
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut metrics = Metrics {
            threads: self.threads + self.starting,
            idle: self.idle.len() + self.waking,
            blocked: self.rest.waits.blocked(),
            queued: self.queued(),
            submitted: self.submitted as u64 + self.rest.totals.submitted,
            ..self.rest.totals.clone()
        };
        for tally in &self.rest.tallies {
            metrics.add(tally);
        }
        metrics
    }

    // ===== The queue =====

    /// How many tasks wait.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        let gone = usize::try_from(self.gone).unwrap_or(0);
        self.linked.saturating_sub(gone)
    }

    /// Whether there is something to take, be it only what need not run any more.
    pub(super) fn has_queued(&self) -> bool {
        self.linked > 0
    }

    #[inline]
    pub(super) fn push(&mut self, tasks: &mut FifoList<Task<RunContext>>, count: usize) {
        self.queue.append(tasks);
        let first = self.submitted;
        self.linked += count;
        self.submitted += count;
        self.samples.queued(first..self.submitted);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Task<RunContext>, Option<Sample>)> {
        let task = self.queue.pop_front()?;
        let place = self.submitted - self.linked;
        self.linked -= 1;
        Some((task, self.samples.taken(place)))
    }

    /// How many threads have taken.
    fn taken(&self) -> usize {
        self.submitted - self.linked - self.rest.removed
    }

    /// Takes one out, or all; whoever gets them says of each that it is gone.
    pub(super) fn pop_unrun(&mut self) -> Option<Task<RunContext>> {
        let (task, _) = self.pop()?;
        self.gone -= 1;
        self.rest.removed += 1;
        Some(task)
    }

    pub(super) fn pop_all_unrun(&mut self) -> FifoList<Task<RunContext>> {
        let mut tasks = FifoList::new();
        while let Some(task) = self.pop_unrun() {
            tasks.push_back(task);
        }
        tasks
    }

    /// A task in the queue, or on its way from there to a thread, need not run any more.
    pub(super) fn withdraw(&mut self) {
        self.gone += 1;
    }

    /// A thread has come across one of those.
    pub(super) fn found_withdrawn(&mut self) {
        self.gone -= 1;
    }

    /// What need not run any more, if it is most of what is in the queue: it is memory for nothing.
    pub(super) fn sweep(&mut self) -> FifoList<Task<RunContext>> {
        let (swept, lost) = sweep(&mut self.queue, &mut self.linked, &mut self.gone);
        if lost == 0 {
            return swept;
        }
        self.rest.removed += lost;
        self.samples.forget();
        swept
    }

    #[inline]
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    pub(super) fn cancelled(&mut self) {
        self.ended = true;
        self.rest.totals.cancelled += 1;
    }

    // ===== Threads =====

    /// Whether some thread will look at the queue.
    pub(super) fn is_staffed(&self) -> bool {
        self.threads + self.starting > 0
    }

    /// Whether the pool is closed and its last thread has ended.
    pub(super) fn is_over(&self) -> bool {
        self.closed && !self.is_staffed() && self.rest.leaving == 0
    }

    /// Whether a task is accepted.
    #[inline]
    pub(super) fn accepts(&self, comes: Comes) -> bool {
        match comes {
            Comes::Anew => !self.closed,
            Comes::After => !self.rest.emptied && (!self.closed || self.is_staffed()),
        }
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn empty(&mut self) {
        self.rest.emptied = true;
    }

    /// Returns `true` if the calling thread is surplus: the maximum was lowered, or a compensating thread is no
    /// longer needed. The last thread that does not wait is never surplus: the others may wait for tasks that
    /// only it can run.
    #[inline]
    pub(super) fn has_surplus(&self) -> bool {
        self.threads > self.most() && self.threads > self.rest.waits.blocked() + 1
    }

    /// How long a thread that goes idle now waits before it ends; `None`: it stays.
    pub(super) fn patience(&self) -> Option<Duration> {
        let stays = if self.rest.limits.core_timeout {
            0
        } else {
            self.rest.limits.core_threads
        };
        (self.threads > stays).then_some(self.rest.limits.keep_alive)
    }

    /// A thread that is neither idle nor woken ends.
    pub(super) fn depart(&mut self) {
        self.threads -= 1;
        self.rest.leaving += 1;
    }

    /// It has. What it counted is kept.
    pub(super) fn gone(&mut self, tally: &Arc<RunCounts>) {
        self.rest.leaving -= 1;
        self.rest.totals.add(tally);
        self.rest.tallies.retain(|other| !Arc::ptr_eq(other, tally));
    }

    // ===== Sleep =====

    /// Whom a submitter wakes, now that tasks wait: the thread that went idle last, unless one has been
    /// woken already. That one, when it has taken a task, wakes the next: a wake-up costs more than many
    /// a task, and one thread may be enough.
    #[inline]
    pub(super) fn wake_one(&mut self) -> Option<Arc<Parker>> {
        if self.linked == 0 || self.waking > 0 {
            return None;
        }
        self.wake()
    }

    /// Whom a thread wakes that has taken a task: as many as may be woken at a time, and find one.
    #[inline]
    pub(super) fn wake_some(&mut self) -> Woken {
        let mut woken = [const { None }; WOKEN_AT_ONCE];
        if self.idle.is_empty() {
            return woken;
        }
        for place in &mut woken {
            if self.waking >= self.wakes.min(self.linked) {
                break;
            }
            *place = self.wake();
        }
        woken
    }

    #[inline]
    fn wake(&mut self) -> Option<Arc<Parker>> {
        let bed = self.idle.pop()?;
        self.waking += 1;
        Some(bed)
    }

    pub(super) fn wake_all(&mut self) -> Vec<Arc<Parker>> {
        self.waking += self.idle.len();
        std::mem::take(&mut self.idle)
    }

    /// Whether nobody has taken the bed off the state, to wake its thread.
    pub(super) fn is_parked(&self, bed: &Arc<Parker>) -> bool {
        self.idle.iter().any(|idle| Arc::ptr_eq(idle, bed))
    }

    #[inline]
    pub(super) fn park(&mut self, bed: &Arc<Parker>) {
        debug_assert!(bed.set_lying(true), "it lies already");
        self.idle.push(Arc::clone(bed));
    }

    /// A thread gets up, woken or by itself. It must have lain down since it last got up: if its bed is not among
    /// the idle ones, this concludes that the thread was woken, and counted as such.
    pub(super) fn unpark(&mut self, bed: &Arc<Parker>) {
        debug_assert!(bed.set_lying(false), "it has not lain down");
        match self.idle.iter().position(|idle| Arc::ptr_eq(idle, bed)) {
            Some(index) => drop(self.idle.remove(index)),
            None => {
                self.waking -= 1;
                self.wakes = match self.ended {
                    true => 1,
                    false => (self.wakes * 2).min(MAX_WAKING),
                };
                self.ended = false;
            }
        }
    }
}

/// Takes out of a queue what need not run any more, if it is most of what is in there. How many those are.
pub(super) fn sweep(
    queue: &mut FifoList<Task<RunContext>>,
    linked: &mut usize,
    gone: &mut isize,
) -> (FifoList<Task<RunContext>>, usize) {
    let (mut swept, mut lost) = (FifoList::new(), 0);
    if *gone < 64 || gone.unsigned_abs() <= *linked / 2 {
        return (swept, lost);
    }
    let mut all = std::mem::replace(queue, FifoList::new());
    while let Some(task) = all.pop_front() {
        if task.is_claimed() {
            lost += 1;
            swept.push_back(task);
        } else {
            queue.push_back(task);
        }
    }
    *linked -= lost;
    *gone -= lost.cast_signed();
    (swept, lost)
}
