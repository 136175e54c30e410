//! [`CompletionQueue`]: where the completions of a stream arrive.

use std::mem::{self, ManuallyDrop, offset_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::task::Waker;

use tokio::runtime::{self, Handle};

use super::jobs::Jobs;
use super::runners::Runners;
use super::spill::{Spill, Spilled};
use crate::inbox::{Batch, FifoList, Head, Inbox, Link, Linked, Tags};
use crate::join::{Id, RunContext, Work};
use crate::semaphore::Semaphore;
use crate::sync::{Arc, Mutex, MutexGuard, Number, UnsafeCell, Weak, cyclic, lock};
use crate::task::{Abort, Destination, Done, Job, Outcome, Promise, Resumed, Spent, Task};
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
    jobs: Mutex<Locked<T, K>>,
    /// The number of completions that stay in their cells, however long they are unread.
    spill_threshold: usize,
    /// The number of completions that have arrived under keys from `spill_threshold` on.
    over_threshold: Number,
    this: Weak<Self>,
    /// The runners of the first runtime on which a future was submitted, and the id of that runtime.
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
            jobs: Mutex::new(Locked::new()),
            spill_threshold,
            over_threshold: Number::new(0),
            this,
            runners: OnceLock::new(),
        })
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, Locked<T, K>> {
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
    pub(super) fn spill(finished: Finished<T, K>, jobs: &mut Locked<T, K>) -> Spilled<T, K> {
        let (seq, abort) = jobs.spill(finished.key());
        let (id, tag, outcome, cell) = finished.into_parts();
        jobs.keep_reference(cell.release_with(abort));
        Spilled::new(id, seq, tag, outcome)
    }

    /// Puts a completion into the inbox of its queue. The same operation tells whether the reader waits, so only the first
    /// completion after the reader has parked wakes it.
    fn push(finished: Finished<T, K>) {
        let queue = finished.queue();
        queue.running.release();
        let key = finished.key();
        // Keys are dense: there is none this large unless as many jobs were outstanding at a time.
        let over_threshold = key >= queue.spill_threshold;
        // The code after the push needs a reference of its own: the cell, and its reference, may be gone by then.
        let mut kept = None;
        let reference = std::ptr::from_ref(queue);
        let inbox = &raw const queue.inbox;
        let edit = |seen: Head| {
            if over_threshold || seen.tags.has(PARKED) {
                // SAFETY: the completion has not been pushed yet, so its cell keeps the queue.
                kept.get_or_insert_with(|| Arc::clone(unsafe { &*reference }));
            }
            (!seen.tags.has(SEALED)).then_some(seen.tags.without(PARKED))
        };
        // SAFETY: as above. `push` does not use the inbox any more once the completion is in it, as it documents.
        let pushed = unsafe { &*inbox }.push(Batch::of(finished), edit);
        match (pushed, kept) {
            (Ok(seen), Some(queue)) if seen.tags.has(PARKED) => queue.wake_reader(),
            (Ok(_), Some(queue)) if over_threshold => queue.pushed_over_threshold(),
            (Ok(_), _) => {}
            (Err(refused), _) => drop(refused),
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

    fn spill_arrived(&self, jobs: &mut Locked<T, K>) {
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
            let take_suspended = Box::new(move || Self::take_suspended(&this));
            let runners = Runners::new(Box::new(runtime.clone()), workers, take_suspended);
            (runtime.id(), runners)
        });
        match work.into_task() {
            Ok(task) if *id == runtime.id() => Runners::submit(runners, task),
            Ok(task) => drop(runtime.spawn(Work::new(task))),
            Err(started) => drop(runtime.spawn(started)),
        }
    }

    /// Takes the futures that wait in their cells.
    fn take_suspended(this: &Weak<Self>) -> FifoList<Task<RunContext>> {
        let mut tasks = FifoList::new();
        if let Some(queue) = this.upgrade() {
            for job in queue.jobs().take_suspended() {
                // SAFETY: jobs of a queue are made for a `RunContext`: see `QueueEntry::job`.
                tasks.push_back(unsafe { Task::from_resumed(job) });
            }
        }
        tasks
    }
}

impl<T, K> Drop for CompletionQueue<T, K> {
    fn drop(&mut self) {
        if let Some((_, runners)) = self.runners.get() {
            runners.dismiss();
        }
    }
}

/// The part of a queue that its lock protects.
pub(super) struct Locked<T, K> {
    jobs: Jobs<T, K>,
    /// References to the queue that released jobs held. New jobs reuse them, which costs less than changing the
    /// reference count, above all if jobs complete on other threads. Empty once the stream is closed and its reader
    /// is gone.
    spare: Vec<Arc<CompletionQueue<T, K>>>,
}

/// The most references that are kept.
const MAX_SPARE: usize = 1_024;

impl<T, K> Locked<T, K> {
    fn new() -> Self {
        Self {
            jobs: Jobs::new(),
            spare: Vec::new(),
        }
    }

    /// Returns a reference for a job.
    pub(super) fn reference_to(
        &mut self,
        queue: &Arc<CompletionQueue<T, K>>,
    ) -> Arc<CompletionQueue<T, K>> {
        self.spare.pop().unwrap_or_else(|| Arc::clone(queue))
    }

    /// Keeps a reference for another job. The queue is not dropped here: the caller has a reference.
    fn keep_reference(&mut self, queue: Arc<CompletionQueue<T, K>>) {
        if self.spare.len() < MAX_SPARE && !self.jobs.is_closed() {
            self.spare.push(queue);
        }
    }

    /// Takes the references that were kept. A closed stream keeps no more.
    pub(super) fn take_spare(&mut self) -> Vec<Arc<CompletionQueue<T, K>>> {
        mem::take(&mut self.spare)
    }

    /// Releases a job that was read, and frees its cell.
    pub(super) fn release_cell(&mut self, cell: ReadCell<T, K>) {
        let abort = self.jobs.release(cell.key());
        self.keep_reference(cell.release_with(abort));
    }
}

impl<T, K> Deref for Locked<T, K> {
    type Target = Jobs<T, K>;

    fn deref(&self) -> &Jobs<T, K> {
        &self.jobs
    }
}

impl<T, K> DerefMut for Locked<T, K> {
    fn deref_mut(&mut self) -> &mut Jobs<T, K> {
        &mut self.jobs
    }
}

/// The destination of a cell whose completion arrives in a queue.
pub(super) struct QueueEntry<T, K> {
    /// Links the cell in the queue's inbox. The link of the cell's header cannot be used: a job that is aborted while
    /// it is queued elsewhere arrives here at once, and leaves that queue later.
    link: Link,
    /// Taken by the reader of the completion, when it releases the job.
    queue: UnsafeCell<ManuallyDrop<Arc<CompletionQueue<T, K>>>>,
    /// Taken by the reader of the completion.
    tag: UnsafeCell<ManuallyDrop<K>>,
    id: Id,
    /// The key of the job's record, until the job is released or its completion is spilled.
    key: usize,
}

// SAFETY: `tag` and, once the completion was pushed, `queue` belong to the party that reads. Before that, `queue` is only
// read, and by threads that have the job or its completion.
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
        CompletionQueue::push(Finished(done));
    }

    fn resume(&self, job: Resumed) {
        let runners = self.queue.with(|queue| {
            // SAFETY: the job has not been delivered, so the queue has not been taken.
            let queue = unsafe { &*queue };
            queue.runners.get().map(|(_, runners)| Arc::clone(runners))
        });
        // SAFETY: jobs with this destination are made for a `RunContext`: see `job`.
        let task = unsafe { Task::from_resumed(job) };
        match runners {
            Some(runners) => contain(|| Runners::resume(&runners, task)),
            None => unreachable!("only runners suspend jobs"),
        }
    }
}

/// A completion in its cell.
pub(super) struct Finished<T, K>(Done<T, QueueEntry<T, K>>);

impl<T, K> Finished<T, K> {
    pub(super) fn key(&self) -> usize {
        self.0.destination().key
    }

    fn queue(&self) -> &Arc<CompletionQueue<T, K>> {
        let entry = self.0.destination();
        // SAFETY: the completion has the queue, which is taken only with it.
        entry.queue.with(|queue| unsafe { &*queue })
    }

    /// Takes the completion out of its cell.
    pub(super) fn into_parts(self) -> (Id, K, Outcome<T>, ReadCell<T, K>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let done = unsafe { std::ptr::read(&raw const this.0) };
        let id = done.destination().id;
        // SAFETY: the tag belongs to the completion's reader, which is this function; `this` is not dropped.
        let tag = unsafe { take_tag(done.destination()) };
        let (outcome, cell) = done.take_outcome();
        (id, tag, outcome, ReadCell(cell))
    }
}

impl<T, K> Drop for Finished<T, K> {
    fn drop(&mut self) {
        // SAFETY: the tag and the queue belong to the completion's reader, and the completion ends here.
        contain(|| drop(unsafe { take_tag(self.0.destination()) }));
        // SAFETY: as above. The outcome is dropped after this, by `self.0`.
        contain(|| drop(unsafe { take_queue(self.0.destination()) }));
    }
}

/// The cell of a completion that was read.
pub(super) struct ReadCell<T, K>(Spent<QueueEntry<T, K>>);

impl<T, K> ReadCell<T, K> {
    fn key(&self) -> usize {
        self.0.destination().key
    }

    /// Frees the cell, unless another party has a reference. `abort` is that of the job's record.
    fn release_with(self, abort: Abort) -> Arc<CompletionQueue<T, K>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the cell reference is moved out once.
        let cell = unsafe { std::ptr::read(&raw const this.0) };
        // SAFETY: the queue belongs to the completion's reader; `this` is not dropped.
        let queue = unsafe { take_queue(cell.destination()) };
        cell.release_with(abort);
        queue
    }
}

impl<T, K> Drop for ReadCell<T, K> {
    fn drop(&mut self) {
        // SAFETY: the queue belongs to the completion's reader, and is not taken elsewhere.
        contain(|| drop(unsafe { take_queue(self.0.destination()) }));
    }
}

/// # Safety
///
/// The queue belongs to the caller and has not been taken.
unsafe fn take_queue<T, K>(entry: &QueueEntry<T, K>) -> Arc<CompletionQueue<T, K>> {
    // SAFETY: as the caller promises.
    entry
        .queue
        .with_mut(|queue| unsafe { ManuallyDrop::take(&mut *queue) })
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
