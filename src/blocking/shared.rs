//! [`Shared`]: the threads of a pool and the tasks that wait for them.

use std::io;
use std::num::NonZeroUsize;
use std::time::Instant;

use super::builder::Options;
use super::metrics::Metrics;
use super::samples::Sample;
use super::state::{Limits, State};
use super::worker;
use crate::inbox::FifoList;
use crate::join::{RunContext, TrySpawnError};
use crate::semaphore::{Semaphore, TryAcquireError};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::task::{Fault, Ran, Task};
use crate::wait_queue::WaitQueue;

/// What all handles and all threads of a pool share.
pub(super) struct Shared {
    pub(super) options: Options,
    /// Tasks that are accepted and not finished, if there is a bound to them.
    pub(super) room: Option<Semaphore>,
    state: Mutex<State>,
    /// Told when the last thread of a closed pool has ended.
    terminated: WaitQueue,
}

/// Tasks that were not accepted, and why.
pub(super) enum Unaccepted {
    Closed(FifoList<Task<RunContext>>),
    NoThread(FifoList<Task<RunContext>>, io::Error),
}

/// Whether a task comes from outside, or is the next of several of which one was accepted before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comes {
    Anew,
    After,
}

impl Unaccepted {
    /// The one task that was not accepted, as what it is taken for.
    pub(super) fn one<B>(self, back: impl FnOnce(Task<RunContext>) -> B) -> TrySpawnError<B> {
        let first = |mut tasks: FifoList<_>| back(tasks.pop_front().expect("there is one"));
        match self {
            Self::Closed(tasks) => TrySpawnError::closed(first(tasks)),
            Self::NoThread(tasks, why) => TrySpawnError::no_thread(first(tasks), why),
        }
    }

    /// All of them.
    pub(super) fn each<B>(self, back: impl Fn(Task<RunContext>) -> B) -> Vec<TrySpawnError<B>> {
        let mut all = Vec::new();
        let (mut tasks, why) = match self {
            Self::Closed(tasks) => (tasks, None),
            Self::NoThread(tasks, why) => (tasks, Some(why)),
        };
        while let Some(task) = tasks.pop_front() {
            let task = back(task);
            all.push(match &why {
                None => TrySpawnError::closed(task),
                Some(why) => TrySpawnError::no_thread(task, again(why)),
            });
        }
        all
    }
}

impl Shared {
    pub(super) fn new(options: Options) -> Self {
        let limits = options.limits.clone();
        let capacity = options.queue_capacity;
        let room = capacity.map(|tasks| Semaphore::new(tasks.saturating_add(limits.max_threads)));
        Self {
            options,
            room,
            state: Mutex::new(State::new(limits)),
            terminated: WaitQueue::new(),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Which pool this is, for as long as it has a task.
    pub(super) fn name(this: &Arc<Self>) -> NonZeroUsize {
        let address = std::ptr::from_ref::<Self>(this).addr();
        NonZeroUsize::new(address).expect("no reference is null")
    }

    // ===== Tasks =====

    /// Takes a place, if there is a bound.
    #[inline]
    pub(super) fn try_acquire(&self) -> Result<(), TryAcquireError> {
        self.room.as_ref().map_or(Ok(()), Semaphore::try_acquire)
    }

    /// Takes a place, whether or not there is one.
    pub(super) fn acquire_over_limit(&self) {
        if let Some(room) = &self.room {
            room.acquire_over_limit();
        }
    }

    /// Gives a place back.
    #[inline]
    pub(super) fn give_back(&self) {
        if let Some(room) = &self.room {
            room.release();
        }
    }

    /// Takes tasks that have places, and sees to it that threads will run them. Those that are not
    /// accepted have lost their places.
    #[inline]
    pub(super) fn accept(
        this: &Arc<Self>,
        mut tasks: FifoList<Task<RunContext>>,
        count: usize,
        comes: Comes,
    ) -> Result<(), Unaccepted> {
        let mut state = this.state();
        // Again, until it need not: by the time that the lock is back, the new thread may have taken
        // another task, or have left.
        loop {
            if !state.accepts(comes) {
                drop(state);
                this.turn_away(count, comes);
                return Err(Unaccepted::Closed(tasks));
            }
            if !state.must_start(1, count, &this.options) {
                break;
            }
            state = match Self::start_thread(this, state) {
                Err((state, why)) if !state.is_staffed() => {
                    this.strand(state, &why);
                    this.turn_away(count, comes);
                    return Err(Unaccepted::NoThread(tasks, why));
                }
                Ok(state) | Err((state, _)) => state,
            };
        }
        state.push(&mut tasks, count);
        let woken = state.wake_one();
        let due = state.arm(this);
        drop(state);
        worker::wake(woken);
        Self::arm(this, due);
        Ok(())
    }

    fn turn_away(&self, count: usize, comes: Comes) {
        for _ in 0..count {
            self.give_back();
        }
        match comes {
            Comes::Anew => self.reject(count),
            // They were accepted before. Whoever drops them says so.
            Comes::After => self.state().totals().submitted += count as u64,
        }
    }

    /// Counts tasks that were not accepted.
    pub(super) fn reject(&self, count: usize) {
        self.state().totals().rejected += count as u64;
    }

    /// A task will not run any more that was accepted. Its captures are gone.
    pub(super) fn withdrawn(&self) {
        self.give_back();
        let mut state = self.state();
        state.withdraw();
        state.cancelled();
        let swept = state.sweep();
        drop(state);
        drop(swept);
    }

    /// A thread has come to the end of a task that it took. If that ran, it has been counted.
    #[inline]
    pub(super) fn ran(
        &self,
        context: &mut RunContext,
        ran: Ran,
        sample: Option<Sample>,
    ) -> MutexGuard<'_, State> {
        let end = sample.as_ref().map(|_| Instant::now());
        let mut state = self.state();
        if ran == Ran::Cancelled {
            // Whoever claimed it has counted it.
            state.found_withdrawn();
            return state;
        }
        state.ended();
        if context.take_found_aborted() {
            state.cancelled();
        }
        if let (Some(sample), Some(end)) = (sample, end) {
            let totals = state.totals();
            totals.queue_wait.record(sample.started - sample.queued);
            totals.run_time.record(end - sample.started);
        }
        state
    }

    /// Drops the task that has waited the longest, whose handle says that it was cancelled, and takes a
    /// place for another in its stead. `false`: none waits.
    ///
    /// One for one: if it had to find a place that was given back, others might have been faster, and
    /// it would have to drop the next, and so all.
    pub(super) fn replace_oldest(&self) -> bool {
        loop {
            let oldest = self.state().pop_unrun();
            let Some(oldest) = oldest else { return false };
            self.acquire_over_limit();
            if oldest.fail(Fault::cancelled()) {
                return true;
            }
            // It was aborted, and its place is another matter.
            self.give_back();
        }
    }

    /// There is no thread, and none to be had: whatever was queued in the hope of one is told.
    pub(super) fn strand(&self, mut state: MutexGuard<'_, State>, why: &io::Error) {
        let mut queue = state.pop_all_unrun();
        self.leave(state);
        while let Some(task) = queue.pop_front() {
            task.fail(Fault::rejected(again(why)));
        }
    }

    // ===== The end =====

    /// Refuses tasks from now on, and lets the threads go when what is queued has run.
    pub(super) fn close(&self) {
        self.end(self.state());
    }

    /// The same, but drops what is queued. How many those were.
    pub(super) fn close_now(&self) -> usize {
        let mut state = self.state();
        state.empty();
        let mut queue = state.pop_all_unrun();
        self.end(state);
        let mut cancelled = 0;
        while let Some(task) = queue.pop_front() {
            cancelled += usize::from(task.fail(Fault::cancelled()));
        }
        cancelled
    }

    fn end(&self, mut state: MutexGuard<'_, State>) {
        state.close();
        let woken = state.wake_all();
        self.leave(state);
        worker::wake(woken);
        if let Some(room) = &self.room {
            room.close();
        }
    }

    /// Gives the lock up, and tells those who wait for the end if this is it.
    pub(super) fn leave(&self, mut state: MutexGuard<'_, State>) {
        if !state.is_over() {
            return;
        }
        // the timer may be armed for a time that is far away, and need not come any more.
        let armed = state.disarm();
        drop(state);
        drop(armed);
        self.terminated.notify_all();
    }

    pub(super) async fn terminated(&self) {
        self.terminated
            .wait(|| self.state().is_over().then_some(()))
            .await;
    }

    // ===== Settings =====

    /// Changes the limits; idle threads look at them.
    pub(super) fn set(this: &Arc<Self>, change: impl FnOnce(&mut Limits)) -> io::Result<()> {
        let mut state = this.state();
        let mut limits = state.limits().clone();
        change(&mut limits);
        limits.check()?;
        let max_threads = limits.max_threads;
        *state.limits() = limits;
        if let (Some(room), Some(capacity)) = (&this.room, this.options.queue_capacity) {
            room.set_limit(capacity.saturating_add(max_threads));
        }
        state.change_compensation();
        let woken = state.wake_all();
        drop(Self::grow(this, state));
        worker::wake(woken);
        if let Some(room) = &this.room {
            room.notify_all();
        }
        Ok(())
    }

    pub(super) fn metrics(&self) -> Metrics {
        self.state().metrics()
    }
}

/// The same error, for one more.
fn again(why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), why.to_string())
}
