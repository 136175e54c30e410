//! A thread of a pool: runs what is in its lane, helps others, rests.

use std::hint;
use std::io;
use std::mem;
use std::time::Instant;

use super::lane::{Chunk, Lane, Refill};
use super::shared::Shared;
use crate::join::{RunContext, Work};
use crate::sync::{Arc, MODEL, thread};
use crate::task::{Ran, Task, flush};

/// How many pauses of a processor there are between two looks at what others do: about 1 us.
const PATIENCE: usize = if MODEL { 0 } else { 24 };
/// Of so many fast tasks, some are measured.
const MEASURED: usize = 64;
/// How many looks at its inbox a worker takes at most before it rests, where there are many cores.
const MAX_LOOKS: usize = 128;

/// Creates the thread of a lane.
pub(super) fn start(shared: &Arc<Shared>, lane: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{lane}", shared.options.name));
    if let Some(bytes) = shared.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    shared.add_thread();
    let worker = Worker::new(Arc::clone(shared), lane);
    let started = builder.spawn(move || worker.work()).map(drop);
    if started.is_err() {
        shared.remove_thread();
    }
    started
}

struct Worker {
    shared: Arc<Shared>,
    lane: usize,
    context: RunContext,
    /// Whether it has the right to search.
    searching: bool,
    /// Tasks run since some were measured.
    unmeasured: usize,
    /// Where chunks are kept for a moment.
    chunks: Vec<Chunk>,
    /// Where it is kept for a moment how many tasks others have begun.
    begun: Vec<usize>,
    /// How often to look at the inbox before a rest: few times where it was in vain.
    looks: usize,
}

impl Worker {
    fn new(shared: Arc<Shared>, lane: usize) -> Self {
        Self {
            lane,
            context: shared
                .context()
                .counting_panics(Arc::clone(&shared.lanes[lane].tally().ended)),
            searching: false,
            unmeasured: 0,
            chunks: Vec::new(),
            begun: Vec::new(),
            looks: shared.options.looks(MAX_LOOKS),
            shared,
        }
    }

    /// The life of a thread.
    fn work(mut self) {
        if let Some(runtime) = &self.shared.options.runtime {
            // Never left: a guard that a task leaks would make leaving panic, and the thread ends with
            // the context anyway.
            mem::forget(runtime.enter());
        }
        self.shared.enlist(self.lane);
        Shared::arm_watchdog(&self.shared);
        loop {
            if self.shared.is_help_wanted() {
                self.search();
            }
            let lane = &self.shared.lanes[self.lane];
            if let Some(refill) = lane.refill(&mut self.chunks) {
                self.work_off(refill);
            } else if !self.search() && !self.rest() {
                break;
            }
        }
        // The others may sleep, in the belief that there is something left.
        self.shared.lanes.iter().for_each(Lane::wake);
        flush();
        self.shared.discharge();
        self.shared.remove_thread();
    }

    /// Runs what is in hand.
    fn work_off(&mut self, refill: Refill) {
        self.stop_searching();
        self.shared
            .share(self.lane, refill.in_hand, refill.published);
        let begun = self.measures(refill.in_hand + 1).then(Instant::now);
        let lane = &self.shared.lanes[self.lane];
        let (mut next, mut tasks) = (Some(refill.first), 0);
        while let Some(task) = next {
            run(&self.shared, lane, &mut self.context, task);
            tasks += 1;
            next = lane.pop();
        }
        if let Some(begun) = begun {
            lane.learn(begun.elapsed(), tasks);
        }
    }

    /// Whether to measure how long the tasks in hand take. To read the clock takes as long as a tiny
    /// task: not for each.
    fn measures(&mut self, in_hand: usize) -> bool {
        self.unmeasured += in_hand;
        let measures = self.unmeasured >= MEASURED || !self.lane().is_fast();
        if measures {
            self.unmeasured = 0;
        }
        measures
    }

    /// Looks for something to steal, if nobody else does; `false`: there was nothing.
    fn search(&mut self) -> bool {
        self.searching = self.searching || self.shared.begin_search();
        if !self.searching {
            return false;
        }
        let mut before = mem::take(&mut self.begun);
        before.extend(self.others().map(|lane| lane.tally().ran.get()));
        let mut loot = mem::take(&mut self.chunks);
        self.lane().set_taking(true);
        // First what nobody else will run: the surplus of others is run by themselves.
        let mut behind = |lane: &Lane| lane.is_stuck() && lane.steal_behind(&mut loot);
        let mut found = self.others().any(&mut behind)
            || self.others().any(|lane| lane.steal_surplus(&mut loot));
        if !found {
            // What is not surplus is taken only from those who make no progress.
            (0..PATIENCE).for_each(|_| hint::spin_loop());
            found = self.others().zip(&before).any(|(lane, &before)| {
                lane.steal_surplus(&mut loot)
                    || lane.tally().ran.get() == before && lane.steal_behind(&mut loot)
            });
        }
        before.clear();
        self.begun = before;
        self.lane().take_over(&mut loot);
        self.lane().set_taking(false);
        self.chunks = loot;
        found
    }

    /// Sleeps until there is something to do; `false`: there will be nothing any more.
    fn rest(&mut self) -> bool {
        if self.look() {
            return true;
        }
        flush();
        if !self.lane().park() {
            self.stop_searching();
            return true;
        }
        let again = self.shared.park(mem::take(&mut self.searching));
        // After both: whoever ends wakes it from then on, and of those who lie down the last sees all.
        let over = self.shared.is_over(self.lane);
        self.searching = if (again || over) && self.lane().unpark() {
            again
        } else {
            self.lane().sleep() || again
        };
        self.shared.unpark();
        if over {
            self.stop_searching();
            return false;
        }
        Shared::arm_watchdog(&self.shared);
        true
    }

    /// Looks at the inbox for a moment; `true`: there is something.
    fn look(&mut self) -> bool {
        let looks = self.looks;
        let found = (0..looks).any(|_| {
            hint::spin_loop();
            self.lane().has_queued()
        });
        self.looks = if found { looks * 2 } else { looks / 2 };
        self.looks = self.looks.clamp(
            self.shared.options.looks(1),
            self.shared.options.looks(MAX_LOOKS),
        );
        found
    }

    fn stop_searching(&mut self) {
        if mem::take(&mut self.searching) {
            self.shared.end_search();
        }
    }

    fn lane(&self) -> &Lane {
        &self.shared.lanes[self.lane]
    }

    /// The lanes of the others, in an order that differs between workers.
    fn others(&self) -> impl Iterator<Item = &Lane> {
        let (before, from) = self.shared.lanes.split_at(self.lane);
        from[1..].iter().chain(before)
    }
}

/// Runs a task, unless it was aborted, or the pool drops what has not started.
#[inline]
pub(super) fn run(shared: &Shared, lane: &Lane, context: &mut RunContext, task: Task<RunContext>) {
    if shared.is_cancelling() {
        lane.count_lost(1);
        return shared.drop_one(task);
    }
    lane.tally().ran.add_own(1);
    let ran = if task.is_blocking() {
        task.run(context)
    } else {
        Work::new(task).run_in(context)
    };
    if ran == Ran::Cancelled {
        // It did not come to use its context.
        shared.leave();
        lane.tally().cancelled.add_own(1);
    }
}
