//! Tasks of one key: one at a time, in order.
//!
//! A key falls on one of many inboxes. Who pushes to one that nobody owns owns it, for a *turn*: a task
//! of the pool, which can be stolen as any other, and which runs what is there. A turn that gets long
//! ends, and another one follows: others of its lane want to run, too.

use std::hash::{BuildHasher, Hash, RandomState};

use super::shared::Shared;
use super::worker;
use crate::inbox::{Batch, FifoList, Inbox, Tags};
use crate::join::RunContext;
use crate::sync::Arc;
use crate::task::{Call, Ran, Task};

/// How many inboxes there are for each thread.
const PER_THREAD: usize = if cfg!(all(test, throng_loom)) { 1 } else { 64 };
/// How many tasks a turn runs.
const TURN: usize = if cfg!(all(test, throng_loom)) { 1 } else { 64 };

/// Somebody runs the tasks, or is about to.
const OWNED: Tags = Tags::bit(0);

pub(super) struct Keys {
    inboxes: Box<[Inbox<Task<RunContext>>]>,
    hasher: RandomState,
}

impl Keys {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            inboxes: (0..threads * PER_THREAD).map(|_| Inbox::new()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// The inbox of a key.
    pub(super) fn find(&self, key: &(impl Hash + ?Sized)) -> usize {
        (self.hasher.hash_one(key) % self.inboxes.len() as u64) as usize
    }

    /// Drops what is queued.
    pub(super) fn cancel(&self, shared: &Shared) {
        self.inboxes
            .iter()
            .for_each(|inbox| shared.drop_all(inbox.take()));
    }
}

/// Queues a task of a key.
pub(super) fn push(shared: &Arc<Shared>, inbox: usize, task: Task<RunContext>) {
    let pushed =
        shared.keys.inboxes[inbox].push(Batch::of(task), |seen| Some(seen.tags.with(OWNED)));
    if pushed.is_ok_and(|seen| !seen.tags.has(OWNED)) {
        Turn::new(shared, inbox).queue();
    }
}

/// The right to run the tasks of an inbox. Dropping it drops them.
struct Turn {
    shared: Arc<Shared>,
    inbox: usize,
    /// What was taken and has not run: older than what is in the inbox.
    taken: FifoList<Task<RunContext>>,
    /// The inbox was left empty, and is nobody's.
    over: bool,
}

impl Turn {
    fn new(shared: &Arc<Shared>, inbox: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            inbox,
            taken: FifoList::new(),
            over: false,
        }
    }

    /// Has a worker take the turn.
    fn queue(self) {
        let shared = Arc::clone(&self.shared);
        let task = Task::detached(Call(move |context: &mut RunContext| self.take(context)));
        if let Some(lane) = shared.own_lane() {
            shared.lanes[lane].requeue(task);
        } else if let Err(refused) = shared.push(Batch::of(task), 1) {
            // The pool is closed, and its threads may have ended. What was accepted before runs: here.
            let mut chain = refused.into_fifo();
            while let Some(task) = chain.pop_front() {
                task.run(&mut shared.context());
            }
        }
    }

    /// Runs tasks: for a while on a worker, where others wait, and else until there are none.
    fn take(mut self, context: &mut RunContext) {
        let lane = self.shared.own_lane();
        if let Some(lane) = lane {
            self.shared.lanes[lane].tally().turns.add_own(1);
        }
        for _ in 0..lane.map_or(usize::MAX, |_| TURN) {
            let Some(task) = self.next() else { break };
            self.run(lane, task, context);
        }
        // It was not a task that somebody has submitted.
        context.skip_accounting();
        if !self.over {
            self.queue();
        }
    }

    fn run(&self, lane: Option<usize>, task: Task<RunContext>, context: &mut RunContext) {
        match lane {
            Some(lane) => {
                let lane = &self.shared.lanes[lane];
                lane.count_foreign();
                worker::run(&self.shared, lane, context, task);
            }
            // The pool has ended, and with it all counts but that of places.
            None if self.shared.is_cancelling() => self.shared.drop_one(task),
            None if task.run(context) == Ran::Cancelled => self.shared.leave(),
            None => {}
        }
    }

    /// The next task; `None`: there is none, and the turn is over.
    fn next(&mut self) -> Option<Task<RunContext>> {
        while !self.over {
            if self.taken.is_empty() {
                self.taken = self.inbox().take();
            }
            if let Some(task) = self.taken.pop_front() {
                return Some(task);
            }
            self.over = self.inbox().exchange_empty(OWNED, Tags::NONE).is_ok();
        }
        None
    }

    fn inbox(&self) -> &Inbox<Task<RunContext>> {
        &self.shared.keys.inboxes[self.inbox]
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // Dropped as a task by a pool that was shut down, which it is not.
        self.shared.retract();
        while let Some(task) = self.next() {
            self.shared.drop_one(task);
        }
    }
}
