//! The queue of an executor: the jobs that its owner has taken from the inbox and not yet run, by level.
//!
//! Jobs leave the inbox and the queue under one small lock, so a thread that aborts all queued jobs finds each of
//! them in one of the two. Only the owner and threads that abort use the lock; the path of an idle executor does
//! not.
//!
//! `L` is what the jobs run on.

use std::mem;

use super::level::Level;
use crate::inbox::{FifoList, Inbox};
use crate::sync::{Mutex, Number, lock};
use crate::task::{Fault, Task};

/// The queue of an executor. The fields that submitters write come first.
#[repr(C)]
pub(super) struct Queue<L> {
    /// Jobs that were submitted so far.
    submitted: Number,
    /// 1 once a job of another level than [`Level::NORMAL`] was submitted.
    leveled: Number,
    /// Jobs in the buckets. Changed under the lock. The owner, which alone adds, may read it without the lock: it
    /// may read a number that is too high, never one that is too low.
    buffered: Number,
    buckets: Mutex<LevelBuckets<L>>,
    /// Jobs that the owner has taken out.
    taken: Number,
    /// Jobs that were aborted here.
    aborted: Number,
    longest: Number,
}

impl<L> Queue<L> {
    pub(super) fn new() -> Self {
        Self {
            submitted: Number::new(0),
            leveled: Number::new(0),
            buffered: Number::new(0),
            buckets: Mutex::new(LevelBuckets::new()),
            taken: Number::new(0),
            aborted: Number::new(0),
            longest: Number::new(0),
        }
    }

    /// Counts a job that is about to be pushed.
    pub(super) fn announce(&self, level: Level) {
        self.submitted.add(1);
        // The owner sees this with the job, which is published after it.
        if level != Level::NORMAL && self.leveled.get() == 0 {
            self.leveled.set(1);
        }
    }

    /// Takes an announcement back, because the job was not accepted.
    pub(super) fn retract(&self) {
        self.submitted.subtract(1);
    }

    /// Takes the next job, if `may` accepts it. For the owner.
    pub(super) fn pop_if(
        &self,
        inbox: &Inbox<Task<L>>,
        may: impl Fn(&Task<L>) -> bool,
    ) -> Option<Task<L>> {
        let job = self.with_buckets(|buckets| {
            // While all jobs have one level, those in the inbox come after those in the buckets.
            if buckets.len == 0 || self.leveled.get() != 0 {
                self.refill(buckets, inbox);
            }
            let job = buckets.pop_if(may);
            self.buffered.set(buckets.len);
            job
        })?;
        self.taken.add_own(1);
        Some(job)
    }

    /// Adds a job past the inbox, to a queue that is empty. For the owner.
    pub(super) fn push(&self, job: Task<L>) {
        self.with_buckets(|buckets| {
            buckets.push(job);
            self.buffered.set(buckets.len);
        });
    }

    /// Returns `true` if no job is in the buckets. For the owner.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.buffered.get() == 0
    }

    /// Aborts all queued jobs, and returns how many of them had not been aborted before.
    pub(super) fn abort_all(&self, inbox: &Inbox<Task<L>>) -> usize {
        let (mut all, mut newest_first) = self.with_buckets(|buckets| {
            self.buffered.set(0);
            (mem::replace(buckets, LevelBuckets::new()), inbox.detach())
        });
        // Not under the lock: there may be many.
        let (jobs, count) = newest_first.take_newest(usize::MAX);
        all.extend(jobs, count, self.leveled.get() != 0);
        self.aborted.add(all.len);
        all.abort()
    }

    /// The length of the queue, and the largest one observed.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let length = self.length();
        (length, self.longest.get().max(length))
    }

    fn with_buckets<R>(&self, f: impl FnOnce(&mut LevelBuckets<L>) -> R) -> R {
        f(&mut lock(&self.buckets))
    }

    fn length(&self) -> usize {
        // Read before the submitted ones, which are never fewer.
        let gone = self.taken.get() + self.aborted.get();
        self.submitted.get().saturating_sub(gone)
    }

    /// Moves the jobs of the inbox into the buckets.
    fn refill(&self, buckets: &mut LevelBuckets<L>, inbox: &Inbox<Task<L>>) {
        let (jobs, count) = inbox.detach().take_newest(usize::MAX);
        if count == 0 {
            return;
        }
        self.longest.set(self.longest.get().max(self.length()));
        buckets.extend(jobs, count, self.leveled.get() != 0);
    }
}

/// Jobs by level.
struct LevelBuckets<L> {
    /// By rank: the highest level first.
    lists: [FifoList<Task<L>>; Level::COUNT],
    /// By rank: the jobs of higher levels that have overtaken the one which is next.
    overtakes: [usize; Level::COUNT],
    len: usize,
    /// A job of another level than [`Level::NORMAL`] was added.
    leveled: bool,
}

impl<L> LevelBuckets<L> {
    fn new() -> Self {
        Self {
            lists: std::array::from_fn(|_| FifoList::new()),
            overtakes: [0; Level::COUNT],
            len: 0,
            leveled: false,
        }
    }

    /// Adds jobs in their order. Unless `leveled`, all of them have the normal level.
    fn extend(&mut self, mut jobs: FifoList<Task<L>>, count: usize, leveled: bool) {
        if !leveled {
            self.lists[Level::NORMAL_RANK].append(&mut jobs);
            self.len += count;
            return;
        }
        while let Some(job) = jobs.pop_front() {
            self.push(job);
        }
    }

    fn push(&mut self, job: Task<L>) {
        let rank = Level::rank(job.user_bits());
        self.leveled |= rank != Level::NORMAL_RANK;
        self.lists[rank].push_back(job);
        self.len += 1;
    }

    /// Takes the oldest job of the level that is next, if `may` accepts it.
    fn pop_if(&mut self, may: impl Fn(&Task<L>) -> bool) -> Option<Task<L>> {
        let rank = self.next_rank()?;
        let job = self.lists[rank].pop_front()?;
        if !may(&job) {
            let mut rest = mem::replace(&mut self.lists[rank], FifoList::new());
            self.lists[rank].push_back(job);
            self.lists[rank].append(&mut rest);
            return None;
        }
        self.len -= 1;
        if self.leveled {
            self.count_overtakes(rank);
        }
        Some(job)
    }

    /// The rank of the highest level that has a job, or of one whose next job was overtaken too often.
    fn next_rank(&self) -> Option<usize> {
        if !self.leveled {
            return (self.len > 0).then_some(Level::NORMAL_RANK);
        }
        let has_jobs = |&rank: &usize| !self.lists[rank].is_empty();
        let is_due = |&rank: &usize| self.overtakes[rank] >= Level::MAX_OVERTAKES;
        // The lowest one first, so that the limit holds for each.
        let due = (0..Level::COUNT).rev().filter(has_jobs).find(is_due);
        due.or_else(|| (0..Level::COUNT).find(has_jobs))
    }

    /// Counts a job of this rank that runs before those of lower levels.
    fn count_overtakes(&mut self, rank: usize) {
        self.overtakes[rank] = 0;
        for lower in rank + 1..Level::COUNT {
            if !self.lists[lower].is_empty() {
                self.overtakes[lower] += 1;
            }
        }
    }

    /// Aborts all jobs, the oldest first, and returns how many had not been aborted before.
    fn abort(mut self) -> usize {
        let mut aborted = 0;
        while let Some(job) = self.pop_if(|_| true) {
            if job.fail(Fault::cancelled()) {
                aborted += 1;
            }
        }
        aborted
    }
}
