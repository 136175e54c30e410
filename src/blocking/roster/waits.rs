//! Threads that wait for tasks of their own pool, and compensating threads, which run in their place.

use super::Roster;
use crate::task::Abort;

/// Threads whose tasks have waited for others of the pool.
#[derive(Default)]
pub(super) struct Waits {
    /// One for each thread, until its task has ended: nobody knows what it does when the wait is over.
    blocked: Vec<Blocked>,
    /// For how many of those there may be a compensating thread.
    compensated: usize,
}

struct Blocked {
    /// The number of the thread.
    thread: usize,
    /// What it has waited for last. Of a job that has ended, this keeps the memory of its cell and no more.
    awaited: Abort,
}

impl Waits {
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// How many more threads there may be.
    #[inline]
    pub(super) fn compensated(&self) -> usize {
        self.compensated
    }

    /// Has compensating threads for as many as may have one. Never for fewer than before: they may have been
    /// promised to threads that wait for what nobody has begun.
    fn compensate(&mut self, blocked: usize, max_threads: usize) {
        self.compensated = self.compensated.max(blocked.min(max_threads));
    }

    fn find(&self, thread: usize) -> Option<usize> {
        let mut blocked = self.blocked.iter();
        blocked.position(|blocked| blocked.thread == thread)
    }
}

impl Roster {
    /// A thread is about to wait for a task of this pool. `false`: it must not, because no other thread may
    /// compensate for it, although `must_compensate` says so; or because no thread would be left that does
    /// not wait.
    pub(in crate::blocking) fn block(
        &mut self,
        thread: usize,
        awaited: Abort,
        must_compensate: bool,
    ) -> bool {
        let found = self.rest.waits.find(thread);
        let blocked = self.rest.waits.blocked() + usize::from(found.is_none());
        let max_threads = self.rest.limits.max_threads;
        self.rest.waits.compensate(blocked, max_threads);
        if blocked > self.rest.waits.compensated
            && (must_compensate || self.all_would_wait(thread, &awaited))
        {
            return false;
        }
        let all = &mut self.rest.waits.blocked;
        match found {
            Some(index) => all[index].awaited = awaited,
            None => all.push(Blocked { thread, awaited }),
        }
        true
    }

    /// Whether each thread that there is, or may be, waits, when this one does: then none of those waits would
    /// end. Under the lock nobody begins to wait: who has gone on, because what he waited for has ended, is not
    /// counted.
    fn all_would_wait(&self, thread: usize, awaited: &Abort) -> bool {
        let blocked = self.rest.waits.blocked.iter();
        let others = blocked.filter(|other| other.thread != thread && other.awaited.is_awaited());
        // Threads run hooks before they arrive, and when they leave.
        let there = self.threads + self.rest.standing + self.rest.leaving;
        awaited.is_awaited() && others.count() + 1 >= there.max(self.most())
    }

    /// The task of a thread has ended that has waited.
    pub(in crate::blocking) fn unblock(&mut self, thread: usize) {
        let waits = &mut self.rest.waits;
        if let Some(index) = waits.find(thread) {
            waits.blocked.swap_remove(index);
            waits.compensated = waits.compensated.min(waits.blocked.len());
        }
    }

    /// There may be more threads than before, or fewer.
    pub(in crate::blocking) fn change_compensation(&mut self) {
        let (blocked, max_threads) = (self.rest.waits.blocked(), self.rest.limits.max_threads);
        self.rest.waits.compensate(blocked, max_threads);
    }
}
