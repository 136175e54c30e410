//! What the owner has taken from the inbox and not yet run: levels, and those who cancel.
//!
//! Jobs leave the inbox, and the queue, under one small lock: so whoever cancels finds each queued job
//! either in the inbox or here. Only the owner and those who cancel use it; the path of an idle
//! executor does not.

use std::mem;

use super::core::Queued;
use crate::inbox::{FifoList, Inbox};
use crate::sync::{Mutex, Number, lock};
use crate::task::Fault;

/// Which jobs go first: see [`SerialExecutor::submit_at`](crate::SerialExecutor::submit_at).
///
/// Levels compare as one would think: `HIGH` is the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(i8);

impl Level {
    /// Before all others.
    pub const HIGH: Self = Self(1);
    /// What [`submit`](crate::SerialExecutor::submit) and [`post`](crate::SerialExecutor::post) use,
    /// and the default.
    pub const NORMAL: Self = Self(0);
    /// After all others.
    pub const LOW: Self = Self(-1);

    /// How many jobs of higher levels go, at most, while one of this level waits to be next: 16. Then
    /// it goes first, so that no level starves.
    pub const PATIENCE: usize = 16;

    /// The mark of a job of this level. One without a mark is a normal one.
    pub(super) fn mark(self) -> u8 {
        match self {
            Self::HIGH => 1,
            Self::LOW => 2,
            _ => 0,
        }
    }
}

/// How many levels there are.
const LEVELS: usize = 3;
/// Where the normal jobs are among them.
const NORMAL: usize = 1;

/// The queue of an executor. What others than the owner write comes first.
#[repr(C)]
pub(super) struct Queue<S> {
    /// How many jobs have come.
    came: Number,
    /// 1 once there was a job of another level than the normal one.
    leveled: Number,
    /// How many jobs are in the buckets. Changed under the lock; the owner, who alone adds, may look
    /// without it, and may see too many, never too few.
    left: Number,
    buckets: Mutex<Buckets<S>>,
    /// How many jobs have gone to the owner, and how many were cancelled here.
    gone: Number,
    cancelled: Number,
    longest: Number,
}

impl<S> Queue<S> {
    pub(super) fn new() -> Self {
        Self {
            came: Number::new(0),
            leveled: Number::new(0),
            left: Number::new(0),
            buckets: Mutex::new(Buckets::new()),
            gone: Number::new(0),
            cancelled: Number::new(0),
            longest: Number::new(0),
        }
    }

    /// A job of this level is about to be pushed.
    pub(super) fn comes(&self, level: Level) {
        self.came.add(1);
        // The owner sees it with the job, which is published after it.
        if level != Level::NORMAL && self.leveled.get() == 0 {
            self.leveled.set(1);
        }
    }

    /// It was not accepted.
    pub(super) fn does_not_come(&self) {
        self.came.subtract(1);
    }

    /// The next job, if it is one that may be taken now. For the owner.
    pub(super) fn next(
        &self,
        inbox: &Inbox<Queued<S>>,
        may: impl Fn(&Queued<S>) -> bool,
    ) -> Option<Queued<S>> {
        let job = self.with_buckets(|buckets| {
            // With one level in use, what is in the inbox comes after what is here.
            if buckets.left == 0 || self.leveled.get() != 0 {
                self.take(buckets, inbox);
            }
            let job = buckets.pop_if(may);
            self.left.set(buckets.left);
            job
        })?;
        self.gone.add_own(1);
        Some(job)
    }

    /// Adds a job past the inbox, of an executor whose queue is empty. For the owner.
    pub(super) fn add(&self, job: Queued<S>) {
        self.with_buckets(|buckets| {
            buckets.add(job);
            self.left.set(buckets.left);
        });
    }

    /// Whether nothing is left here. For the owner.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.left.get() == 0
    }

    /// Cancels what is queued, and says how many jobs that were.
    pub(super) fn cancel(&self, inbox: &Inbox<Queued<S>>) -> usize {
        let (mut all, mut pile) = self.with_buckets(|buckets| {
            self.left.set(0);
            (mem::replace(buckets, Buckets::new()), inbox.detach())
        });
        // Not under the lock: they may be many.
        let (jobs, count) = pile.take_newest(usize::MAX);
        all.sort(jobs, count, self.leveled.get() != 0);
        self.cancelled.add(all.left);
        all.cancel()
    }

    /// How many jobs are queued, and how many there were at most.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let length = self.length();
        (length, self.longest.get().max(length))
    }

    fn with_buckets<R>(&self, f: impl FnOnce(&mut Buckets<S>) -> R) -> R {
        f(&mut lock(&self.buckets))
    }

    fn length(&self) -> usize {
        // First those who have gone: the others are never fewer.
        let left = self.gone.get() + self.cancelled.get();
        self.came.get().saturating_sub(left)
    }

    /// Takes what is in the inbox.
    fn take(&self, buckets: &mut Buckets<S>, inbox: &Inbox<Queued<S>>) {
        let (jobs, count) = inbox.detach().take_newest(usize::MAX);
        if count == 0 {
            return;
        }
        self.longest.set(self.longest.get().max(self.length()));
        buckets.sort(jobs, count, self.leveled.get() != 0);
    }
}

/// Jobs by level.
struct Buckets<S> {
    /// The highest level first.
    chains: [FifoList<Queued<S>>; LEVELS],
    /// How many jobs of higher levels have gone while one of this level waited to be next.
    passed: [usize; LEVELS],
    left: usize,
    /// There was a job of another level than the normal one.
    leveled: bool,
}

impl<S> Buckets<S> {
    fn new() -> Self {
        Self {
            chains: std::array::from_fn(|_| FifoList::new()),
            passed: [0; LEVELS],
            left: 0,
            leveled: false,
        }
    }

    /// Adds jobs, in their order; those of a queue that is not `leveled` are normal.
    fn sort(&mut self, mut jobs: FifoList<Queued<S>>, count: usize, leveled: bool) {
        if !leveled {
            self.chains[NORMAL].append(&mut jobs);
            self.left += count;
            return;
        }
        while let Some(job) = jobs.pop_front() {
            self.add(job);
        }
    }

    fn add(&mut self, job: Queued<S>) {
        let level = match job.user_bits() {
            1 => 0,
            2 => 2,
            _ => NORMAL,
        };
        self.leveled |= level != NORMAL;
        self.chains[level].push_back(job);
        self.left += 1;
    }

    /// The oldest job of the highest level, or of one that has waited for long enough; it stays if it may not
    /// be taken.
    fn pop_if(&mut self, may: impl Fn(&Queued<S>) -> bool) -> Option<Queued<S>> {
        let level = self.next_level()?;
        let job = self.chains[level].pop_front()?;
        if !may(&job) {
            let mut rest = mem::replace(&mut self.chains[level], FifoList::new());
            self.chains[level].push_back(job);
            self.chains[level].append(&mut rest);
            return None;
        }
        self.left -= 1;
        if self.leveled {
            self.age(level);
        }
        Some(job)
    }

    fn next_level(&self) -> Option<usize> {
        if !self.leveled {
            return (self.left > 0).then_some(NORMAL);
        }
        let waits = |&level: &usize| !self.chains[level].is_empty();
        let is_due = |&level: &usize| self.passed[level] >= Level::PATIENCE;
        // The lowest one first: so each waits for no more than that many of higher levels.
        let due = (0..LEVELS).rev().filter(waits).find(is_due);
        due.or_else(|| (0..LEVELS).find(waits))
    }

    /// A job of this level goes before those of lower ones.
    fn age(&mut self, level: usize) {
        self.passed[level] = 0;
        for lower in level + 1..LEVELS {
            if !self.chains[lower].is_empty() {
                self.passed[lower] += 1;
            }
        }
    }

    /// Cancels all jobs, oldest first; says how many had not been aborted before.
    fn cancel(mut self) -> usize {
        let mut cancelled = 0;
        while let Some(job) = self.pop_if(|_| true) {
            if job.fail(Fault::cancelled()) {
                cancelled += 1;
            }
        }
        cancelled
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
