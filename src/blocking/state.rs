//! [`State`]: the threads and the queued tasks of a pool, under one lock.
//!
//! Every change is one critical section. `PROTOCOL.md` beside this file defines the states of a thread, and argues why
//! no task is stranded and no wake-up is lost.

mod growth;

use std::time::Duration;

use super::metrics::Metrics;
use super::options::Limits;
use super::parker::Parker;
use super::pause::Pause;
use super::queue::TaskQueue;
use super::samples::{Sample, Samples, Times};
use super::stopwatch::Lap;
use super::waits::{Wait, Waits};
use crate::inbox::FifoList;
use crate::join::{RunContext, RunCounts};
use crate::sync::{Arc, MODEL};
use crate::task::Task;

/// The largest number of wake-ups in flight.
const MAX_WAKING: usize = 32;
/// The number of threads woken in one critical section at most.
const WOKEN_AT_ONCE: usize = 4;

/// The threads and the queued tasks of a pool.
pub(super) struct State {
    queue: TaskQueue,
    /// Idle threads, the one that has waited longest first. The last one is woken first, so that the others reach
    /// their keep-alive.
    idle: Vec<Arc<Parker>>,
    /// Threads that were woken and do not hold the lock again yet. They will look at the queue.
    waking: usize,
    /// The maximum of `waking`. It doubles as long as no task ends between two wake-ups, and falls to one when a
    /// task ends: then tasks are shorter than a wake-up takes.
    wake_limit: usize,
    /// A task has ended since the last thread woke up.
    has_ended: bool,
    closed: bool,
    /// The inbox is open.
    open: bool,
    /// Threads that are being created. They will look at the queue.
    starting: usize,
    /// Threads that exist, without those that are being created.
    threads: usize,
    /// Tasks queued so far. The last one has the position `submitted - 1`.
    submitted: usize,
    samples: Samples,
    /// Everything that few tasks need, so that the rest of the state occupies few cache lines.
    rest: Box<Rest>,
}

/// The part of the state that few tasks need.
struct Rest {
    limits: Limits,
    waits: Waits,
    /// The outcomes of the tasks of each thread.
    counts: Vec<Arc<RunCounts>>,
    /// Threads counted in `starting` that exist already, and may run a hook.
    hooking: usize,
    /// Threads that are no longer counted in `threads` but have not exited yet: they run a hook.
    leaving: usize,
    /// Threads created so far, which numbers them.
    created: usize,
    /// Queued tasks were aborted by a shutdown, so no more run.
    aborted: bool,
    /// Futures that wait until the pool is idle.
    idle_waiters: usize,
    pause: Option<Pause>,
    /// The timer is armed for this pool.
    armed: bool,
    /// The number of tasks taken from the queue when the timer fires next, if no thread takes another task until
    /// then.
    taken_at_tick: usize,
    /// The number of threads that the timer creates then.
    burst: usize,
    /// Tasks removed from the queue without being taken by a thread.
    removed: usize,
    /// Counters. Of the tasks submitted, this counts only those that were never in the queue.
    totals: Metrics,
}

/// Where a task that is accepted comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A caller submits it. A closed pool refuses it.
    Caller,
    /// A bulkhead has accepted it earlier. A closed pool still runs it.
    Bulkhead,
}

/// Threads to be woken once the lock is released.
pub(super) type Woken = [Option<Arc<Parker>>; WOKEN_AT_ONCE];

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            queue: TaskQueue::new(),
            idle: Vec::new(),
            waking: 0,
            wake_limit: 1,
            has_ended: false,
            closed: false,
            open: false,
            starting: 0,
            threads: 0,
            submitted: 0,
            samples: Samples::new(),
            rest: Box::new(Rest {
                limits,
                waits: Waits::default(),
                counts: Vec::new(),
                hooking: 0,
                leaving: 0,
                created: 0,
                aborted: false,
                idle_waiters: 0,
                pause: None,
                armed: false,
                taken_at_tick: 0,
                burst: 1,
                removed: 0,
                totals: Metrics::default(),
            }),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.rest.limits
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.rest.waits.set_max_threads(limits.max_threads);
        self.rest.limits = limits;
    }

    pub(super) fn totals(&mut self) -> &mut Metrics {
        &mut self.rest.totals
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut metrics = Metrics {
            threads: (self.threads + self.starting) as u64,
            idle: (self.idle.len() + self.waking) as u64,
            blocked: self.rest.waits.blocked() as u64,
            queued: self.queue.waiting() as u64,
            submitted: self.submitted as u64 + self.rest.totals.submitted,
            core_threads: self.rest.limits.core_threads as u64,
            max_threads: self.rest.limits.max_threads as u64,
            queue_wait: self.samples.queue_wait.clone(),
            run_time: self.samples.run_time.clone(),
            ..self.rest.totals.clone()
        };
        for counts in &self.rest.counts {
            metrics.add(counts);
        }
        metrics
    }

    // ===== The queue =====

    /// Returns `true` if a thread finds something in the queue, which may be a cancelled task.
    pub(super) fn has_queued(&self) -> bool {
        self.queue.len() > 0
    }

    /// Queues tasks. If there is only one, `is_chosen` determines whether it is in the sample.
    #[inline]
    pub(super) fn push(
        &mut self,
        tasks: &mut FifoList<Task<RunContext>>,
        count: usize,
        is_chosen: bool,
    ) {
        let first = self.submitted;
        self.push_untimed(tasks, count);
        self.samples.push(first..self.submitted, is_chosen);
    }

    /// Queues tasks that are not in the sample.
    #[inline]
    pub(super) fn push_untimed(&mut self, tasks: &mut FifoList<Task<RunContext>>, count: usize) {
        self.queue.append(tasks, count);
        self.submitted += count;
    }

    /// Returns `true` if the next task needs nothing but to be queued: no thread has to be created or woken for it, and
    /// it is not timed. A running or woken thread will take it.
    #[inline]
    pub(super) fn needs_only_queue(&self) -> bool {
        let is_attended = self.idle.is_empty() || self.waking > 0;
        is_attended && !self.closed && self.is_at_limit() && (self.are_tasks_short() || MODEL)
    }

    /// Records that the inbox is open, or closed. Returns `true` if it was open.
    #[inline]
    pub(super) fn set_open(&mut self, open: bool) -> bool {
        std::mem::replace(&mut self.open, open)
    }

    /// Takes the next task, for the calling thread to run.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Task<RunContext>, Option<Sample>)> {
        let position = self.submitted - self.queue.len();
        let task = self.queue.pop()?;
        Some((task, self.samples.pop(position)))
    }

    /// The number of tasks that threads have taken.
    fn taken(&self) -> usize {
        self.submitted - self.queue.len() - self.rest.removed
    }

    /// Takes the next task, to end it without running it. Ending it counts it as cancelled, so this counts it as
    /// found.
    pub(super) fn pop_to_cancel(&mut self) -> Option<Task<RunContext>> {
        let (task, _) = self.pop()?;
        self.queue.remove_cancelled();
        self.rest.removed += 1;
        Some(task)
    }

    pub(super) fn pop_all_to_cancel(&mut self) -> FifoList<Task<RunContext>> {
        let mut tasks = FifoList::new();
        while let Some(task) = self.pop_to_cancel() {
            tasks.push_back(task);
        }
        tasks
    }

    /// A task in the queue, or on its way from there to a thread, was cancelled.
    pub(super) fn add_cancelled(&mut self) {
        self.queue.add_cancelled();
    }

    /// A thread has come across a cancelled task.
    pub(super) fn remove_cancelled(&mut self) {
        self.queue.remove_cancelled();
    }

    /// Takes out the cancelled tasks, if they are most of the queue. The caller drops them without the lock.
    pub(super) fn sweep(&mut self) -> FifoList<Task<RunContext>> {
        let mut kept = Vec::new();
        let (swept, count) = self.queue.sweep(|is_kept| kept.push(is_kept));
        if count > 0 {
            self.rest.removed += count;
            self.samples.retain(&kept, self.submitted);
        }
        swept
    }

    /// Counts a task that ends without running.
    pub(super) fn count_cancelled(&mut self) {
        self.has_ended = true;
        self.rest.totals.cancelled += 1;
    }

    /// A task has run to its end.
    #[inline]
    pub(super) fn task_ended(&mut self, times: Option<Times>) {
        self.has_ended = true;
        if let Some(times) = times {
            self.samples.record(&times);
        }
    }

    /// Tasks have run that were not timed one by one.
    #[inline]
    pub(super) fn lap_ended(&mut self, lap: Option<Lap>) {
        if let Some(lap) = lap {
            self.samples.record_lap(&lap);
        }
    }

    /// Returns `true` if almost all of the recent tasks were short.
    #[inline]
    pub(super) fn are_tasks_short(&self) -> bool {
        self.samples.are_short()
    }

    /// A thread has waited for a task. It may find none, since others are faster.
    pub(super) fn thread_waited(&mut self, time: Duration) {
        if self.has_queued() {
            self.samples.thread_waited(time);
        }
    }

    // ===== Threads =====

    /// Returns `true` if some thread will look at the queue.
    pub(super) fn is_staffed(&self) -> bool {
        self.threads + self.starting > 0
    }

    /// Returns `true` if the pool is closed and its last thread has exited.
    pub(super) fn is_terminated(&self) -> bool {
        self.closed && !self.is_staffed() && self.rest.leaving == 0
    }

    /// Returns `true` if no task is queued and no thread runs one.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.waiting() == 0 && self.threads == self.idle.len() + self.waking
    }

    /// Registers, or unregisters, a future that waits until the pool is idle.
    pub(super) fn idle_waiters(&mut self) -> &mut usize {
        &mut self.rest.idle_waiters
    }

    /// Returns `true` if the pool is idle, and futures wait for that.
    pub(super) fn must_notify_idle(&self) -> bool {
        self.rest.idle_waiters > 0 && self.is_idle()
    }

    /// Returns `true` if a task from this source is accepted.
    #[inline]
    pub(super) fn accepts(&self, source: Source) -> bool {
        match source {
            Source::Caller => !self.closed,
            Source::Bulkhead => !self.rest.aborted && (!self.closed || self.is_staffed()),
        }
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Accepts no more tasks from bulkheads either.
    pub(super) fn set_aborted(&mut self) {
        self.rest.aborted = true;
    }

    /// Returns `true` if the calling thread is one too many: the maximum was lowered, or a compensating thread is no
    /// longer needed. The last thread that does not wait never is, since the others may wait for tasks that only it
    /// can run.
    #[inline]
    pub(super) fn has_excess_thread(&self) -> bool {
        self.threads > self.max_allowed() && self.threads > self.rest.waits.blocked() + 1
    }

    /// How long a thread that becomes idle now waits before it exits; `None` if it never exits.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        let limits = &self.rest.limits;
        let stay = if limits.core_timeout {
            0
        } else {
            limits.core_threads
        };
        (self.threads > stay).then_some(limits.keep_alive)
    }

    /// A thread that is neither idle nor woken is about to exit.
    pub(super) fn begin_exit(&mut self) {
        debug_assert!(!self.open, "the inbox must be closed before a thread exits");
        self.threads -= 1;
        self.rest.leaving += 1;
    }

    /// It has run its hook. Its counts are kept.
    pub(super) fn end_exit(&mut self, counts: &Arc<RunCounts>) {
        self.rest.leaving -= 1;
        self.rest.totals.add(counts);
        self.rest.counts.retain(|other| !Arc::ptr_eq(other, counts));
    }

    /// A thread is about to wait for a task of this pool. Returns `false` if it must not.
    pub(super) fn block(&mut self, wait: Wait) -> bool {
        // Threads run hooks before they look at the queue, and when they exit.
        let threads = self.threads + self.rest.hooking + self.rest.leaving;
        let max_threads = self.rest.limits.max_threads;
        self.rest.waits.block(wait, max_threads, threads)
    }

    /// The task of a thread that may have waited has ended.
    pub(super) fn unblock(&mut self, thread: usize) {
        self.rest.waits.unblock(thread);
    }

    // ===== Sleep =====

    /// The thread that a submitter wakes now that tasks wait: the one that became idle last, unless another has been
    /// woken already. That one wakes the next when it has taken a task. A wake-up costs more than many a task, and one
    /// thread may be enough.
    #[inline]
    pub(super) fn wake_one(&mut self) -> Option<Arc<Parker>> {
        if !self.has_queued() || self.waking > 0 {
            return None;
        }
        self.wake()
    }

    /// The threads that a thread wakes which has taken a task: as many as there are tasks and as may be waking at a
    /// time.
    #[inline]
    pub(super) fn wake_some(&mut self) -> Woken {
        let mut woken = [const { None }; WOKEN_AT_ONCE];
        for slot in &mut woken {
            if !self.must_wake() {
                break;
            }
            *slot = self.wake();
        }
        woken
    }

    /// Returns `true` if a thread that has taken a task wakes another.
    #[inline]
    pub(super) fn must_wake(&self) -> bool {
        self.waking < self.wake_limit.min(self.queue.len()) && !self.idle.is_empty()
    }

    #[inline]
    fn wake(&mut self) -> Option<Arc<Parker>> {
        let parker = self.idle.pop()?;
        self.waking += 1;
        Some(parker)
    }

    pub(super) fn wake_all(&mut self) -> Vec<Arc<Parker>> {
        self.waking += self.idle.len();
        std::mem::take(&mut self.idle)
    }

    /// Returns `true` if no other thread has decided to wake this one.
    pub(super) fn is_parked(&self, parker: &Arc<Parker>) -> bool {
        self.idle.iter().any(|idle| Arc::ptr_eq(idle, parker))
    }

    #[inline]
    pub(super) fn park(&mut self, parker: &Arc<Parker>) {
        debug_assert!(parker.set_parked(true), "the thread is parked already");
        self.idle.push(Arc::clone(parker));
    }

    /// A thread is no longer idle. It must have parked since the last call: if its parker is not among the idle ones,
    /// this concludes that another thread has woken it, and counted it as such.
    pub(super) fn unpark(&mut self, parker: &Arc<Parker>) {
        debug_assert!(parker.set_parked(false), "the thread has not parked");
        match self.idle.iter().position(|idle| Arc::ptr_eq(idle, parker)) {
            Some(index) => drop(self.idle.remove(index)),
            None => {
                self.waking -= 1;
                self.wake_limit = match self.has_ended {
                    true => 1,
                    false => (self.wake_limit * 2).min(MAX_WAKING),
                };
                self.has_ended = false;
            }
        }
    }
}
