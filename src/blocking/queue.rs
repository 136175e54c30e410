//! [`TaskQueue`]: tasks in the order in which they were accepted.

use crate::inbox::FifoList;
use crate::join::RunContext;
use crate::task::Task;

/// Below this number, cancelled tasks stay in the queue until a thread reaches them.
const SWEEP_FROM: isize = 64;

/// Tasks that wait, first in first out.
///
/// Aborting a task drops its captures at once, but leaves its cell in the queue.
pub(super) struct TaskQueue {
    tasks: FifoList<Task<RunContext>>,
    /// Tasks in `tasks`, including cancelled ones.
    len: usize,
    /// Cancelled tasks that no thread has come across yet. The canceller updates this afterwards: if a thread finds
    /// the task before that, this is one too low meanwhile, perhaps negative.
    cancelled: isize,
}

impl TaskQueue {
    pub(super) fn new() -> Self {
        Self {
            tasks: FifoList::new(),
            len: 0,
            cancelled: 0,
        }
    }

    /// The number of tasks in the queue, including cancelled ones.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of tasks that wait. Never more than `len`.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        let cancelled = usize::try_from(self.cancelled).unwrap_or(0);
        self.len.saturating_sub(cancelled)
    }

    pub(super) fn push_back(&mut self, task: Task<RunContext>) {
        self.tasks.push_back(task);
        self.len += 1;
    }

    #[inline]
    pub(super) fn append(&mut self, tasks: &mut FifoList<Task<RunContext>>, count: usize) {
        self.tasks.append(tasks);
        self.len += count;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Task<RunContext>> {
        let task = self.tasks.pop_front()?;
        self.len -= 1;
        Some(task)
    }

    /// A task of this queue was cancelled. It is still in the queue, or a thread has just taken it.
    pub(super) fn add_cancelled(&mut self) {
        self.cancelled += 1;
    }

    /// A thread has come across a cancelled task.
    pub(super) fn remove_cancelled(&mut self) {
        self.cancelled -= 1;
    }

    /// Takes out the cancelled tasks, if they are most of the queue: they only occupy memory. Calls `kept` for each
    /// task of the queue, in order.
    pub(super) fn sweep(
        &mut self,
        mut kept: impl FnMut(bool),
    ) -> (FifoList<Task<RunContext>>, usize) {
        let (mut swept, mut count) = (FifoList::new(), 0);
        if self.cancelled < SWEEP_FROM || self.cancelled.unsigned_abs() <= self.len / 2 {
            return (swept, count);
        }
        let mut all = std::mem::replace(&mut self.tasks, FifoList::new());
        while let Some(task) = all.pop_front() {
            let is_cancelled = task.is_claimed();
            kept(!is_cancelled);
            if is_cancelled {
                count += 1;
                swept.push_back(task);
            } else {
                self.tasks.push_back(task);
            }
        }
        self.len -= count;
        self.cancelled -= count.cast_signed();
        (swept, count)
    }
}
