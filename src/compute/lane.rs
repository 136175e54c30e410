//! [`Lane`]: the tasks of one worker, and whether the worker is awake.
//!
//! ```text
//! submitters --push--> inbox --drain--> stealable (in chunks) --> local --pop--> run
//!                        |                 |                       |
//!                        +-------- thieves take from each ---------+
//! ```

use std::collections::VecDeque;

use super::counters::{Counters, MAX_BATCH};
use super::pinned::PinnedQueue;
use crate::inbox::{Batch, FifoList, Inbox, LifoList, LocalQueue, Refused, Tags};
use crate::join::RunContext;
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Number, Ordering, lock};
use crate::task::Task;

/// The worker sleeps, and the inbox is empty. The thread that clears this tag wakes the worker.
const PARKED: Tags = Tags::bit(0);
/// The lane accepts no more tasks from outside.
const SEALED: Tags = Tags::bit(1);
/// The worker was woken to search, and has the right to do so.
const CALLED: Tags = Tags::bit(2);

/// The most chunks for which an empty list keeps its memory.
const MAX_IDLE_CHUNKS: usize = 256;

/// Tasks that are run as a batch, and their number.
pub(super) type Chunk = (FifoList<Task<RunContext>>, usize);

/// The tasks of one worker.
#[repr(align(128))]
pub(super) struct Lane {
    inbox: Inbox<Task<RunContext>>,
    /// Tasks pushed by others. In the cache line that a push has just written to.
    pushed: Number,
    /// The worker is in a long task. The timer sets and clears this.
    stuck: AtomicBool,
    own: Own,
}

/// The fields that the worker of the lane writes to, in cache lines of their own.
#[repr(align(128))]
struct Own {
    /// The rest of the batch that runs now.
    local: LocalQueue<Task<RunContext>>,
    /// Tasks that were drained from the inbox and are not in `local`, the oldest first.
    stealable: Mutex<VecDeque<Chunk>>,
    /// The number of chunks in `stealable`, for a check without the lock.
    chunks: AtomicUsize,
    /// The worker takes tasks, which are in none of the queues meanwhile.
    taking: Number,
    pinned: PinnedQueue,
    thread: Mutex<Option<Thread>>,
    counters: Counters,
}

/// A batch that the worker runs next.
pub(super) struct Refill {
    /// The first task. The others are in `local`.
    pub(super) first: Task<RunContext>,
    /// The number of the others.
    pub(super) others: usize,
    /// There are more tasks, which have just become stealable.
    pub(super) published: bool,
}

impl Lane {
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::new(),
            pushed: Number::new(0),
            stuck: AtomicBool::new(false),
            own: Own {
                local: LocalQueue::new(),
                stealable: Mutex::new(VecDeque::new()),
                chunks: AtomicUsize::new(0),
                taking: Number::new(0),
                pinned: PinnedQueue::new(),
                thread: Mutex::new(None),
                counters: Counters::new(),
            },
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.own.counters
    }

    pub(super) fn pinned(&self) -> &PinnedQueue {
        &self.own.pinned
    }
}

/// Pushing.
impl Lane {
    /// Queues tasks from any thread, and wakes the worker if it sleeps. Returns the batch if the lane is sealed.
    ///
    /// Returns the number of attempts: more than one means that others push here, too.
    #[inline]
    pub(super) fn push(
        &self,
        batch: Batch<Task<RunContext>>,
        tasks: usize,
    ) -> Result<usize, Batch<Task<RunContext>>> {
        let mut attempts = 0;
        let pushed = self.inbox.push(batch, |head| {
            attempts += 1;
            (!head.tags.has(SEALED)).then_some(head.tags.without(PARKED))
        });
        match pushed {
            Ok(head) => {
                self.pushed.add(tasks);
                if head.tags.has(PARKED) {
                    self.unpark_thread();
                }
                Ok(attempts)
            }
            Err(Refused { batch, .. }) => Err(batch),
        }
    }

    /// Queues tasks from the lane's own worker, which is awake. Returns the batch if the lane is sealed.
    #[inline]
    pub(super) fn push_own(
        &self,
        batch: Batch<Task<RunContext>>,
        tasks: usize,
    ) -> Result<(), Batch<Task<RunContext>>> {
        let pushed = self.inbox.push(batch, |head| {
            debug_assert!(!head.tags.has(PARKED), "a sleeping worker does not push");
            (!head.tags.has(SEALED)).then_some(head.tags)
        });
        if let Err(refused) = pushed {
            return Err(refused.batch);
        }
        self.own.counters.pushed.add_own(tasks);
        Ok(())
    }

    /// As `push_own`, also if the lane is sealed: the worker is awake, and so will find the task.
    pub(super) fn requeue(&self, task: Task<RunContext>) {
        self.own.counters.pushed.add_own(1);
        let pushed = self.inbox.push(Batch::of(task), |head| Some(head.tags));
        debug_assert!(pushed.is_ok());
    }

    /// Counts a task that the worker runs without having taken it from a queue of the lane.
    pub(super) fn count_unqueued(&self) {
        self.own.counters.pushed.add_own(1);
    }

    /// Returns the number of tasks that were pushed since the inbox was last drained, once for every few that the
    /// worker itself pushes. `tasks` is the number that it has just pushed.
    #[inline]
    pub(super) fn undrained(&self, tasks: usize) -> Option<usize> {
        let own = self.own.counters.pushed.get();
        (own / MAX_BATCH != own.wrapping_sub(tasks) / MAX_BATCH)
            .then(|| self.pushed().wrapping_sub(self.own.counters.drained.get()))
    }

    fn pushed(&self) -> usize {
        let own = self.own.counters.pushed.get();
        self.pushed.get().wrapping_add(own)
    }
}

/// Running and stealing.
impl Lane {
    /// Returns the next task of the batch. For the worker.
    #[inline]
    pub(super) fn pop(&self) -> Option<Task<RunContext>> {
        self.own.local.pop()
    }

    /// Returns the next batch, from the stealable chunks or else from the inbox. For the worker, whose local queue is
    /// empty.
    pub(super) fn refill(&self, chunks: &mut Vec<Chunk>) -> Option<Refill> {
        if let Some(chunk) = self.next_chunk() {
            return self.fill_local(chunk, false);
        }
        let pushed = self.pushed();
        self.set_taking(true);
        let oldest = split(self.inbox.detach(), self.own.counters.batch_size(), chunks);
        let published = !chunks.is_empty();
        if published {
            self.publish(chunks.drain(..).rev());
            chunks.shrink_to(MAX_IDLE_CHUNKS);
        }
        self.set_taking(false);
        self.own.counters.drained.set(pushed);
        self.fill_local(oldest?, published)
    }

    fn fill_local(&self, (mut list, tasks): Chunk, published: bool) -> Option<Refill> {
        let first = list.pop_front()?;
        self.own.local.fill(list);
        Some(Refill {
            first,
            others: tasks - 1,
            published,
        })
    }

    /// Adds the tasks that the worker has stolen, the oldest first, to the stealable ones.
    pub(super) fn adopt(&self, stolen: &mut Vec<Chunk>) {
        self.own.counters.stolen.add_own(tasks(stolen));
        self.publish(stolen.drain(..));
        stolen.shrink_to(MAX_IDLE_CHUNKS);
    }

    /// Steals the newer half of the stealable chunks. Returns `false` if there are none.
    pub(super) fn steal_half(&self, stolen: &mut Vec<Chunk>) -> bool {
        if !self.has_stealable() {
            return false;
        }
        let mut stealable = lock(&self.own.stealable);
        let keep = stealable.len() / 2;
        stolen.extend(stealable.drain(keep..));
        self.own.chunks.store(keep, Ordering::Relaxed);
        drop(stealable);
        self.count_removed(tasks(stolen));
        !stolen.is_empty()
    }

    /// Steals the tasks that wait behind a long one: the rest of the batch, and the inbox. Returns `false` if there are
    /// none.
    pub(super) fn steal_waiting(&self, stolen: &mut Vec<Chunk>) -> bool {
        let oldest = split(self.inbox.detach(), self.own.counters.batch_size(), stolen);
        stolen.extend(oldest);
        // The batch is older still.
        let batch = self.own.local.steal_all();
        if batch.1 > 0 {
            stolen.push(batch);
        }
        stolen.reverse();
        self.count_removed(tasks(stolen));
        !stolen.is_empty()
    }

    /// Takes all queued tasks.
    pub(super) fn take_all(&self) -> Vec<Chunk> {
        let mut all = vec![self.own.local.steal_all()];
        let mut stealable = lock(&self.own.stealable);
        all.extend(stealable.drain(..));
        self.own.chunks.store(0, Ordering::Relaxed);
        drop(stealable);
        all.push(self.inbox.detach().take_newest(usize::MAX));
        self.count_removed(tasks(&all));
        all
    }

    /// Returns `true` if other workers can steal chunks.
    #[inline]
    pub(super) fn has_stealable(&self) -> bool {
        self.own.chunks.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if any task is queued. A hint.
    pub(super) fn has_queued(&self) -> bool {
        !self.own.local.is_empty()
            || self.has_stealable()
            || !self.inbox.peek().empty
            || self.own.taking.get() != 0
    }

    /// Marks that the worker takes tasks, or has queued them in the lane.
    pub(super) fn set_taking(&self, taking: bool) {
        self.own.taking.set(usize::from(taking));
    }

    /// Returns the nanoseconds that the stealable tasks, and this number of others, are expected to take.
    #[inline]
    pub(super) fn expected_backlog(&self, others: usize) -> usize {
        let counters = &self.own.counters;
        let stealable = self.own.chunks.load(Ordering::Relaxed) * counters.batch_size();
        counters.expected_ns(stealable + others)
    }

    /// Returns the number of queued tasks.
    pub(super) fn backlog(&self) -> usize {
        let counters = &self.own.counters;
        let gone = counters.started.get().wrapping_add(counters.removed.get());
        let come = self.pushed().wrapping_add(counters.stolen.get());
        // The numbers are not read at one moment.
        usize::try_from(come.wrapping_sub(gone).cast_signed()).unwrap_or(0)
    }

    /// Counts tasks that have left the lane without having run there.
    pub(super) fn count_removed(&self, tasks: usize) {
        self.own.counters.removed.add(tasks);
    }

    /// Removes the oldest chunk of the stealable ones.
    fn next_chunk(&self) -> Option<Chunk> {
        if !self.has_stealable() {
            return None;
        }
        let mut stealable = lock(&self.own.stealable);
        let chunk = stealable.pop_front();
        if stealable.is_empty() {
            // A flood may have made the list large.
            stealable.shrink_to(MAX_IDLE_CHUNKS);
        }
        self.own.chunks.store(stealable.len(), Ordering::Relaxed);
        chunk
    }

    fn publish(&self, chunks: impl Iterator<Item = Chunk>) {
        let mut stealable = lock(&self.own.stealable);
        stealable.extend(chunks);
        self.own.chunks.store(stealable.len(), Ordering::Relaxed);
    }
}

/// Sleeping.
impl Lane {
    /// Names the current thread as the worker's.
    pub(super) fn attach_thread(&self) {
        *lock(&self.own.thread) = Some(thread::current());
    }

    #[inline]
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_parked(&self) -> bool {
        self.inbox.peek().tags.has(PARKED)
    }

    /// Returns `true` if the worker is parked, or on its way to it, and has no task of its own.
    pub(super) fn is_idle(&self) -> bool {
        self.is_parked() && !self.pinned().has_tasks()
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.inbox.peek().tags.has(SEALED)
    }

    /// Refuses tasks from now on, and wakes the worker.
    pub(super) fn seal(&self) {
        if self.inbox.retag(SEALED, PARKED).tags.has(PARKED) {
            self.unpark_thread();
        }
    }

    /// Parks the lane: from now on, a push wakes the worker. Returns `false` if the inbox is not empty.
    pub(super) fn park(&self) -> bool {
        self.exchange(Tags::NONE, PARKED)
    }

    /// Unparks the lane from its own worker. Returns `false` if another thread has woken the worker.
    pub(super) fn unpark(&self) -> bool {
        self.exchange(PARKED, Tags::NONE)
    }

    /// Wakes the worker to check all its conditions. If it is awake, it sees what the caller has done before when it
    /// parks next.
    pub(super) fn wake(&self) {
        if self.inbox.retag(Tags::NONE, PARKED).tags.has(PARKED) {
            self.unpark_thread();
        }
    }

    /// Sleeps until woken. Returns `true` if the worker was called to search.
    pub(super) fn sleep(&self) -> bool {
        // A park token that a task has left only makes this loop go round once more.
        while self.is_parked() {
            thread::park();
        }
        self.inbox.peek().tags.has(CALLED) && self.inbox.retag(Tags::NONE, CALLED).tags.has(CALLED)
    }

    /// Wakes the worker to search. Returns `false` if it is awake.
    pub(super) fn call(&self) -> bool {
        let called = self.exchange(PARKED, CALLED);
        if called {
            self.unpark_thread();
        }
        called
    }

    /// Changes the tags of an empty inbox, sealed or not.
    fn exchange(&self, from: Tags, to: Tags) -> bool {
        let exchange = |seal: Tags| self.inbox.exchange_empty(from.with(seal), to.with(seal));
        exchange(Tags::NONE).is_ok() || exchange(SEALED).is_ok()
    }

    #[cold]
    fn unpark_thread(&self) {
        let thread = lock(&self.own.thread).clone();
        thread.expect("a sleeping worker has a thread").unpark();
    }
}

/// Splits a list into chunks, the newest first, and returns the last one, which is the oldest.
fn split(
    mut list: LifoList<Task<RunContext>>,
    batch_size: usize,
    chunks: &mut Vec<Chunk>,
) -> Option<Chunk> {
    let mut last = None;
    loop {
        // Larger chunks in a flood: a list of many small ones would be large itself.
        let limit = if chunks.len() < MAX_IDLE_CHUNKS {
            batch_size
        } else {
            MAX_BATCH
        };
        let chunk = list.take_newest(limit);
        if chunk.1 == 0 {
            return last;
        }
        chunks.extend(last.replace(chunk));
    }
}

fn tasks(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|(_, tasks)| tasks).sum()
}
