//! Keyed tasks: one at a time for each key, and in order.
//!
//! A push to an inbox that nobody owns takes ownership, and queues a [`KeyedDrain`]: a task of the pool that runs what is
//! in the inbox, and that can be stolen as any other. A long drain ends and queues itself again, so that other tasks of its
//! lane can run.

use super::shared::Shared;
use super::worker;
use crate::inbox::{Batch, FifoList, Inbox, Tags};
use crate::join::RunContext;
use crate::sync::Arc;
use crate::task::{Call, Ran, Task};

/// The most tasks that a drain runs before it queues itself again.
const MAX_DRAINED: usize = if cfg!(all(test, throng_loom)) { 1 } else { 64 };

/// A drain of this inbox is queued, or runs.
const OWNED: Tags = Tags::bit(0);

/// Queues a keyed task.
pub(super) fn push(shared: &Arc<Shared>, inbox: usize, task: Task<RunContext>) {
    let pushed = shared
        .keys
        .inbox(inbox)
        .push(Batch::of(task), |head| Some(head.tags.with(OWNED)));
    if pushed.is_ok_and(|head| !head.tags.has(OWNED)) {
        KeyedDrain::new(shared, inbox).queue();
    }
}

/// The ownership of an inbox, whose tasks it runs. Dropping it drops the tasks.
struct KeyedDrain {
    shared: Arc<Shared>,
    inbox: usize,
    /// Tasks that were taken and have not run: older than those in the inbox.
    taken: FifoList<Task<RunContext>>,
    /// The inbox was left empty, and its ownership released.
    is_over: bool,
}

impl KeyedDrain {
    fn new(shared: &Arc<Shared>, inbox: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            inbox,
            taken: FifoList::new(),
            is_over: false,
        }
    }

    /// Queues the drain as a task.
    fn queue(self) {
        let shared = Arc::clone(&self.shared);
        let task = Task::detached(Call(move |context: &mut RunContext| self.run(context)));
        if let Some(lane) = shared.own_lane() {
            shared.lanes[lane].requeue(task);
        } else if let Err(refused) = shared.push(Batch::of(task), 1) {
            // The pool is closed, and its threads may have exited. What was accepted before must run: here.
            let mut tasks = refused.into_fifo();
            while let Some(task) = tasks.pop_front() {
                task.run(&mut shared.context());
            }
        }
    }

    /// Runs the tasks: on a worker, where others wait, a limited number, and elsewhere all of them.
    fn run(mut self, context: &mut RunContext) {
        let lane = self.shared.own_lane();
        if let Some(lane) = lane {
            self.shared.lanes[lane].counters().drains.add_own(1);
        }
        for _ in 0..lane.map_or(usize::MAX, |_| MAX_DRAINED) {
            let Some(task) = self.next() else { break };
            self.run_task(lane, task, context);
        }
        // The drain itself was not submitted.
        context.skip_accounting();
        if !self.is_over {
            self.queue();
        }
    }

    fn run_task(&self, lane: Option<usize>, task: Task<RunContext>, context: &mut RunContext) {
        match lane {
            Some(lane) => {
                let lane = &self.shared.lanes[lane];
                lane.count_unqueued();
                worker::run(&self.shared, lane, context, task);
            }
            // The threads have exited, so nothing is counted but permits.
            None if self.shared.is_aborting() => self.shared.drop_task(task),
            None if task.run(context) == Ran::Cancelled => self.shared.release_permit(),
            None => {}
        }
    }

    /// Returns the next task, or releases the ownership if there is none.
    fn next(&mut self) -> Option<Task<RunContext>> {
        while !self.is_over {
            if self.taken.is_empty() {
                self.taken = self.inbox().take();
            }
            if let Some(task) = self.taken.pop_front() {
                return Some(task);
            }
            self.is_over = self.inbox().exchange_empty(OWNED, Tags::NONE).is_ok();
        }
        None
    }

    fn inbox(&self) -> &Inbox<Task<RunContext>> {
        self.shared.keys.inbox(self.inbox)
    }
}

impl Drop for KeyedDrain {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // A shutdown has dropped the drain, and counted it as a task.
        self.shared.uncount_dropped();
        while let Some(task) = self.next() {
            self.shared.drop_task(task);
        }
    }
}
