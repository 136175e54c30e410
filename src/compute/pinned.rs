//! [`PinnedQueue`]: tasks that only the worker of a lane may run.

use crate::inbox::FifoList;
use crate::join::RunContext;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::task::Task;

/// Tasks that only the worker of a lane may run. The caller wakes the worker after a push.
pub(super) struct PinnedQueue {
    /// For a check without the lock.
    has_tasks: AtomicBool,
    /// `None` once the worker has exited.
    tasks: Mutex<Option<FifoList<Task<RunContext>>>>,
}

impl PinnedQueue {
    pub(super) fn new() -> Self {
        Self {
            has_tasks: AtomicBool::new(false),
            tasks: Mutex::new(Some(FifoList::new())),
        }
    }

    /// Adds a task, or returns it if the worker has exited.
    pub(super) fn push(&self, task: Task<RunContext>) -> Result<(), Task<RunContext>> {
        match &mut *lock(&self.tasks) {
            Some(tasks) => {
                tasks.push_back(task);
                // Relaxed is enough: the caller wakes the worker by a read-modify-write of the lane's head, and the
                // worker checks this after it has changed that head, before it sleeps.
                self.has_tasks.store(true, Ordering::Relaxed);
                Ok(())
            }
            None => Err(task),
        }
    }

    #[inline]
    pub(super) fn has_tasks(&self) -> bool {
        self.has_tasks.load(Ordering::Relaxed)
    }

    /// Removes all tasks.
    pub(super) fn take(&self) -> FifoList<Task<RunContext>> {
        let mut tasks = lock(&self.tasks);
        self.has_tasks.store(false, Ordering::Relaxed);
        tasks.as_mut().map_or_else(FifoList::new, |tasks| {
            std::mem::replace(tasks, FifoList::new())
        })
    }

    /// Refuses tasks from now on. Returns `false`, and changes nothing, if there are any.
    pub(super) fn close(&self) -> bool {
        let mut tasks = lock(&self.tasks);
        let is_empty = tasks.as_ref().is_none_or(FifoList::is_empty);
        if is_empty {
            *tasks = None;
        }
        is_empty
    }
}
