//! [`CompletionQueue`]: where the completions of a stream arrive.

use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::task::Waker;

use tokio::runtime::{self, Handle};

use super::jobs::Jobs;
use super::runners::Runners;
use super::spill::{Spill, Spilled};
use crate::inbox::{Batch, FifoList, Inbox, Link, Linked, Tags};
use crate::join::{Id, RunContext, Work};
use crate::semaphore::Semaphore;
use crate::sync::{Arc, Mutex, MutexGuard, Number, UnsafeCell, Weak, cyclic, lock};
use crate::task::{Abort, Destination, Done, Job, Outcome, Promise, Resumed, Task};
use crate::unwind::contain;
use crate::waker::WakerCell;

/// Where the completions of a stream arrive: an inbox, its reader's waker, the limit of running jobs, and the records
/// of the jobs.
///
/// A completion stays in its cell until it is read. That costs nothing but the cell's memory, which is several times
/// as large as what most jobs return. So when many completions have arrived and the reader does not take them, a
/// thread that delivers one moves all of them into the [spill](Spill).
pub(super) struct CompletionQueue<T, K> {
    inbox: Inbox<Finished<T, K>>,
    reader: WakerCell,
    /// Limits the jobs that have not completed.
    pub(super) running: Semaphore,
    jobs: Mutex<Jobs<T, K>>,
    /// The number of completions that stay in their cells, however long they are unread.
    spill_threshold: usize,
    /// The number of completions that have arrived under keys from `spill_threshold` on.
    over_threshold: Number,
    this: Weak<Self>,
    /// Those of the first runtime that a future was submitted on.
    runners: OnceLock<(runtime::Id, Arc<Runners>)>,
}

/// In the inbox's head: the reader is gone, and completions that arrive are dropped. Never cleared.
const SEALED: Tags = Tags::bit(0);
/// In the inbox's head: the reader has left its waker. Set by the reader, cleared by the completion that
/// wakes it.
const PARKED: Tags = Tags::bit(1);
/// In the inbox's head: the spill is not empty. Its completions are older than those in the inbox. Set by the thread
/// that spills, cleared by the reader, both under the lock.
const SPILLED: Tags = Tags::bit(2);

/// Of this many completions that arrive over the threshold, one checks whether to spill.
const ARRIVALS_PER_CHECK: usize = 256;

impl<T, K> CompletionQueue<T, K> {
    pub(super) fn new(max_running: usize, spill_threshold: usize) -> Arc<Self> {
        cyclic(|this| Self {
            inbox: Inbox::new(),
            reader: WakerCell::new(),
            running: Semaphore::new(max_running),
            jobs: Mutex::new(Jobs::new()),
            spill_threshold,
            over_threshold: Number::new(0),
            this,
            runners: OnceLock::new(),
        })
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, Jobs<T, K>> {
        lock(&self.jobs)
    }

    /// Takes everything that has arrived, in order. Completions that were spilled are older than the others and are
    /// put into `spill`, which must be empty.
    #[inline]
    pub(super) fn take(&self, spill: &mut Spill<T, K>) -> FifoList<Finished<T, K>> {
        match self.inbox.take_unless(SPILLED) {
            Some(arrived) => arrived,
            None => self.take_with_spill(spill),
        }
    }

    /// Nothing is spilled while the lock is held, so everything in the inbox is younger than the spill.
    #[cold]
    fn take_with_spill(&self, spill: &mut Spill<T, K>) -> FifoList<Finished<T, K>> {
        let mut jobs = self.jobs();
        self.inbox.retag(Tags::NONE, SPILLED);
        *spill = jobs.take_spill();
        self.inbox.take()
    }

    /// Registers `waker` for the next completion. Returns `false` if one has already arrived; `waker` may then not be
    /// woken.
    pub(super) fn park(&self, waker: &Waker) -> bool {
        self.reader.register(waker);
        let seen = self.inbox.retag(PARKED, Tags::NONE);
        seen.empty && !seen.tags.has(SPILLED)
    }

    /// Returns `true` if the reader waits for a completion.
    #[cfg(feature = "tracing")]
    pub(super) fn is_parked(&self) -> bool {
        self.inbox.peek().tags.has(PARKED)
    }

    /// Wakes the reader for something other than a completion.
    pub(super) fn wake_reader(&self) {
        self.reader.wake();
    }

    /// Drops what has arrived, and what will arrive, except for the spill.
    pub(super) fn seal(&self) {
        self.inbox.retag(SEALED, Tags::NONE);
        drop(self.inbox.take());
        self.reader.clear();
    }

    /// Moves a completion out of its cell, for the caller.
    pub(super) fn spill(finished: Finished<T, K>, jobs: &mut Jobs<T, K>) -> Spilled<T, K> {
        let seq = jobs.spill(finished.key());
        let (id, tag, outcome) = finished.into_parts();
        Spilled::new(id, seq, tag, outcome)
    }

    /// Puts a completion into the inbox. The same operation tells whether the reader waits, so only the first
    /// completion after the reader has parked wakes it.
    fn push(&self, finished: Finished<T, K>) {
        self.running.release();
        let key = finished.key();
        let pushed = self.inbox.push(Batch::of(finished), |seen| {
            (!seen.tags.has(SEALED)).then_some(seen.tags.without(PARKED))
        });
        match pushed {
            Ok(seen) if seen.tags.has(PARKED) => self.wake_reader(),
            // Keys are dense: there is none this large unless as many jobs were outstanding at a time.
            Ok(_) if key >= self.spill_threshold => self.pushed_over_threshold(),
            Ok(_) => {}
            Err(refused) => drop(refused),
        }
    }

    /// Spills what has arrived if it exceeds the threshold. Only one of several calls checks.
    #[cold]
    fn pushed_over_threshold(&self) {
        let period = ARRIVALS_PER_CHECK.min(self.spill_threshold);
        if !self.over_threshold.add(1).is_multiple_of(period) {
            return;
        }
        let mut jobs = self.jobs();
        if jobs.in_cells().saturating_sub(self.running.count()) < self.spill_threshold {
            return;
        }
        // Before anything is moved: from here on the reader needs the lock, so it cannot take younger completions
        // before those that are spilled.
        self.inbox.retag(SPILLED, Tags::NONE);
        self.spill_arrived(&mut jobs);
    }

    fn spill_arrived(&self, jobs: &mut Jobs<T, K>) {
        let (mut arrived, len) = self.inbox.detach().take_newest(usize::MAX);
        let mut batch = Vec::with_capacity(len);
        while let Some(finished) = arrived.pop_front() {
            batch.push(Self::spill(finished, jobs));
        }
        jobs.keep(batch);
    }
}

impl<T: Send + 'static, K: Send + 'static> CompletionQueue<T, K> {
    /// Runs a future on a runtime: by the stream's runners, or as a task of its own if those are of another runtime.
    pub(super) fn run(&self, runtime: &Handle, work: Work) {
        let (id, runners) = self.runners.get_or_init(|| {
            let workers = runtime.metrics().num_workers();
            let this = Weak::clone(&self.this);
            let end_suspended = Box::new(move || Self::end_suspended(&this));
            let runners = Runners::new(Box::new(runtime.clone()), workers, end_suspended);
            (runtime.id(), runners)
        });
        match work.into_task() {
            Ok(task) if *id == runtime.id() => Runners::submit(runners, task),
            Ok(task) => drop(runtime.spawn(Work::new(task))),
            Err(started) => drop(runtime.spawn(started)),
        }
    }

    /// Cancels the futures that wait in their cells: their runtime has shut down.
    fn end_suspended(this: &Weak<Self>) {
        let Some(queue) = this.upgrade() else { return };
        let all: Vec<_> = queue.jobs().aborts().collect();
        all.iter().for_each(Abort::end_suspended);
    }
}

impl<T, K> Drop for CompletionQueue<T, K> {
    fn drop(&mut self) {
        if let Some((_, runners)) = self.runners.get() {
            runners.dismiss();
        }
    }
}

/// The destination of a cell whose completion arrives in a queue.
pub(super) struct QueueEntry<T, K> {
    /// Links the cell in the queue's inbox. The link of the cell's header cannot be used: a job that is aborted while
    /// it is queued elsewhere arrives here at once, and leaves that queue later.
    link: Link,
    /// Taken by the thread that delivers the cell.
    queue: UnsafeCell<ManuallyDrop<Arc<CompletionQueue<T, K>>>>,
    /// Taken by the reader of the completion.
    tag: UnsafeCell<ManuallyDrop<K>>,
    id: Id,
    /// The key of the job's record, until the job is released or its completion is spilled.
    key: usize,
}

// SAFETY: `queue` and `tag` are each used by one party at a time: by the one that delivers, by the one that reads.
unsafe impl<T: Send, K: Send> Sync for QueueEntry<T, K> {}
// SAFETY: as above, and a cell may end on any thread.
unsafe impl<T: Send, K: Send> Send for QueueEntry<T, K> {}

impl<T: Send + 'static, K: Send + 'static> QueueEntry<T, K> {
    pub(super) fn new(queue: Arc<CompletionQueue<T, K>>, tag: K, key: usize) -> Self {
        Self {
            link: Link::new(),
            queue: UnsafeCell::new(ManuallyDrop::new(queue)),
            tag: UnsafeCell::new(ManuallyDrop::new(tag)),
            id: Id::next(),
            key,
        }
    }

    pub(super) fn id(&self) -> Id {
        self.id
    }

    /// Returns `true` if the cell of a job with this destination is recycled memory.
    pub(super) fn is_small<J: Job<RunContext, Output = T>>() -> bool {
        Task::is_recycled::<J, Self>()
    }

    /// A job with this destination, and the means to abort it.
    pub(super) fn job<J: Job<RunContext, Output = T>>(self, job: J) -> (Task<RunContext>, Abort) {
        Task::bound_for(job, self)
    }

    /// A promise with this destination, and the means to abort it.
    pub(super) fn promise(self) -> (Promise<T, Self>, Abort) {
        Promise::new(self)
    }
}

impl<T: Send + 'static, K: Send + 'static> Destination<T> for QueueEntry<T, K> {
    const RESUMES: bool = true;

    fn deliver(done: Done<T, Self>) {
        done.complete();
        // SAFETY: a cell is delivered once, and this is the only place that takes the queue.
        let queue = done
            .destination()
            .queue
            .with_mut(|queue| unsafe { ManuallyDrop::take(&mut *queue) });
        queue.push(Finished(done));
        contain(|| drop(queue));
    }

    fn resume(&self, job: Resumed) {
        // SAFETY: the job has not been delivered, so the queue has not been taken.
        let runners = self
            .queue
            .with(|queue| unsafe { (*queue).runners.get() }.map(|(_, runners)| Arc::clone(runners)));
        // SAFETY: jobs with this destination are made for a `RunContext`: see `job`.
        let task = unsafe { job.into_task() };
        match runners {
            Some(runners) => contain(|| Runners::submit(&runners, task)),
            None => unreachable!("a runner has polled the job"),
        }
    }
}

/// A completion in its cell.
pub(super) struct Finished<T, K>(Done<T, QueueEntry<T, K>>);

impl<T, K> Finished<T, K> {
    pub(super) fn key(&self) -> usize {
        self.0.destination().key
    }

    pub(super) fn into_parts(self) -> (Id, K, Outcome<T>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let done = unsafe { std::ptr::read(&raw const this.0) };
        let id = done.destination().id;
        // SAFETY: the tag belongs to the completion's reader, which is this function; `this` is not dropped.
        let tag = unsafe { take_tag(done.destination()) };
        (id, tag, done.into_outcome())
    }
}

impl<T, K> Drop for Finished<T, K> {
    fn drop(&mut self) {
        // SAFETY: the tag belongs to the completion's reader, and the completion ends here.
        contain(|| drop(unsafe { take_tag(self.0.destination()) }));
    }
}

/// # Safety
///
/// The tag belongs to the caller and has not been taken.
unsafe fn take_tag<T, K>(entry: &QueueEntry<T, K>) -> K {
    // SAFETY: as the caller promises.
    entry
        .tag
        .with_mut(|tag| unsafe { ManuallyDrop::take(&mut *tag) })
}

// SAFETY: the link is in the destination of a cell that the completion keeps alive, and is reached
// by a pointer to the whole cell.
unsafe impl<T, K> Linked for Finished<T, K> {
    fn into_link(self) -> NonNull<Link> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let done = unsafe { std::ptr::read(&raw const this.0) };
        let entry = done.into_destination();
        // SAFETY: the link is at this offset in the entry.
        unsafe { entry.byte_add(offset_of!(QueueEntry<T, K>, link)).cast() }
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: the inverse of `into_link`.
        let entry = unsafe { link.byte_sub(offset_of!(QueueEntry<T, K>, link)).cast() };
        // SAFETY: it came from `into_destination` there.
        Self(unsafe { Done::from_destination(entry) })
    }
}
