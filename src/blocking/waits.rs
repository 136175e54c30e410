//! [`Waits`]: threads that wait for tasks of their own pool, and the compensating threads that run in their place.

use crate::task::Abort;

/// Threads whose tasks have waited for other tasks of the pool.
#[derive(Default)]
pub(super) struct Waits {
    /// One entry for each thread, until its task has ended: after the wait, the task may wait again.
    blocked: Vec<Blocked>,
    /// The number of threads for which a compensating thread may run.
    compensated: usize,
}

/// A thread that is about to wait.
pub(super) struct Wait {
    /// The number of the thread.
    pub(super) thread: usize,
    pub(super) awaited: Abort,
    /// The wait is only allowed if a compensating thread is.
    pub(super) must_compensate: bool,
}

struct Blocked {
    /// The number of the thread.
    thread: usize,
    /// The tasks that it waits for. After a task's end, this keeps only the memory of its cell.
    awaited: Vec<Abort>,
}

impl Blocked {
    /// Returns `true` if one of the tasks that it has polled, and whose handle it keeps, has not ended.
    fn waits(&self) -> bool {
        self.awaited.iter().any(Abort::is_awaited)
    }

    /// Adds a task. It stays at least until the next one is added.
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
    /// The number of threads whose task has waited.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// The number of threads that may run beyond the maximum.
    #[inline]
    pub(super) fn compensated(&self) -> usize {
        self.compensated
    }

    /// Registers a wait in a pool of `max_threads` in which `threads` exist. Returns `false` if the thread must not
    /// wait: because a compensating thread is required and not allowed, or because every thread would wait.
    pub(super) fn block(&mut self, wait: Wait, max_threads: usize, threads: usize) -> bool {
        let Wait {
            thread,
            awaited,
            must_compensate,
        } = wait;
        let found = self.find(thread);
        let blocked = self.blocked.len() + usize::from(found.is_none());
        self.compensate(blocked, max_threads);
        let most = threads.max(max_threads.saturating_add(self.compensated));
        if blocked > self.compensated
            && (must_compensate || self.all_would_wait(thread, &awaited, most))
        {
            return false;
        }
        match found {
            Some(index) => self.blocked[index].add(awaited),
            None => self.blocked.push(Blocked {
                thread,
                awaited: vec![awaited],
            }),
        }
        true
    }

    /// Returns `true` if all `most` threads that exist, or are allowed, would wait once this one does. Then none of
    /// those waits would end. No thread begins to wait meanwhile, since that takes the lock. A thread whose awaited
    /// task has ended is not counted.
    fn all_would_wait(&self, thread: usize, awaited: &Abort, most: usize) -> bool {
        let blocked = self.blocked.iter();
        let others = blocked.filter(|other| other.thread != thread && other.waits());
        awaited.is_awaited() && others.count() + 1 >= most
    }

    /// The task of a thread that may have waited has ended.
    pub(super) fn unblock(&mut self, thread: usize) {
        if let Some(index) = self.find(thread) {
            self.blocked.swap_remove(index);
            self.compensated = self.compensated.min(self.blocked.len());
        }
    }

    /// The maximum number of threads has changed.
    pub(super) fn set_max_threads(&mut self, max_threads: usize) {
        self.compensate(self.blocked.len(), max_threads);
    }

    /// Raises the number of compensating threads as far as allowed. It never falls here, since threads that wait for
    /// tasks that have not started may rely on them.
    fn compensate(&mut self, blocked: usize, max_threads: usize) {
        self.compensated = self.compensated.max(blocked.min(max_threads));
    }

    fn find(&self, thread: usize) -> Option<usize> {
        let mut blocked = self.blocked.iter();
        blocked.position(|blocked| blocked.thread == thread)
    }
}
