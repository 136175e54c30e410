//! Threads that wait for tasks of their own pool, and compensating threads, which run in their place.

use super::State;
use crate::task::Abort;

/// Threads whose tasks have waited for others of the pool.
#[derive(Default)]
pub(super) struct Waits {
    /// One entry for each thread, until its task has ended: after the wait, the task may wait again.
    blocked: Vec<Blocked>,
    /// The number of those for which a compensating thread may run.
    compensated: usize,
}

struct Blocked {
    /// The number of the thread.
    thread: usize,
    /// The jobs that it waits for. After a job's end, this keeps only the memory of its cell.
    awaited: Vec<Abort>,
}

impl Blocked {
    /// Returns `true` if one of the jobs that it has polled, and keeps the handle of, has not ended.
    fn waits(&self) -> bool {
        self.awaited.iter().any(Abort::is_awaited)
    }

    /// Adds a job. It stays at least until the next one is added.
    fn add(&mut self, awaited: Abort) {
        self.awaited.retain(Abort::is_awaited);
        if !self
            .awaited
            .iter()
            .any(|other| other.address() == awaited.address())
        {
            self.awaited.push(awaited);
        }
    }
}

impl Waits {
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Returns how many threads may run beyond the maximum.
    #[inline]
    pub(super) fn compensated(&self) -> usize {
        self.compensated
    }

    /// Raises the number of compensating threads as far as allowed. It never falls here, since threads that
    /// wait for tasks that have not begun may rely on them.
    fn compensate(&mut self, blocked: usize, max_threads: usize) {
        self.compensated = self.compensated.max(blocked.min(max_threads));
    }

    fn find(&self, thread: usize) -> Option<usize> {
        let mut blocked = self.blocked.iter();
        blocked.position(|blocked| blocked.thread == thread)
    }
}

impl State {
    /// A thread is about to wait for a task of this pool. Returns `false` if it must not: because
    /// `must_compensate` is set and no compensating thread is allowed, or because every thread would wait.
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
            Some(index) => all[index].add(awaited),
            None => all.push(Blocked {
                thread,
                awaited: vec![awaited],
            }),
        }
        true
    }

    /// Returns `true` if every thread that exists, or is allowed, would wait once this one does. Then none of
    /// those waits would end. No thread begins to wait meanwhile, since that takes the lock. A thread whose
    /// awaited task has ended is not counted.
    fn all_would_wait(&self, thread: usize, awaited: &Abort) -> bool {
        let blocked = self.rest.waits.blocked.iter();
        let others = blocked.filter(|other| other.thread != thread && other.waits());
        // Threads run hooks before they arrive, and when they leave.
        let there = self.threads + self.rest.standing + self.rest.leaving;
        awaited.is_awaited() && others.count() + 1 >= there.max(self.most())
    }

    /// The task of a thread that has waited has ended.
    pub(in crate::blocking) fn unblock(&mut self, thread: usize) {
        let waits = &mut self.rest.waits;
        if let Some(index) = waits.find(thread) {
            waits.blocked.swap_remove(index);
            waits.compensated = waits.compensated.min(waits.blocked.len());
        }
    }

    /// The maximum number of threads has changed.
    pub(in crate::blocking) fn change_compensation(&mut self) {
        let (blocked, max_threads) = (self.rest.waits.blocked(), self.rest.limits.max_threads);
        self.rest.waits.compensate(blocked, max_threads);
    }
}
