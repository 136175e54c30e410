//! [`ComputeWorker`]: a thread of a pool, which runs the tasks of its lane, helps other lanes, and sleeps.

use std::hint;
use std::io;
use std::mem;
use std::time::Instant;

use super::lane::{Chunk, Lane, Refill};
use super::options::ThreadHook;
use super::shared::Shared;
use crate::join::{RunContext, Work};
use crate::sync::{Arc, MODEL, thread};
use crate::task::{Ran, Task, flush};
use crate::unwind::contain;

/// The number of spins between two checks of the progress of others: about 1 us.
const SPINS_BEFORE_STEAL: usize = if MODEL { 0 } else { 24 };
/// The number of fast tasks from one measurement of their cost to the next.
const TASKS_PER_MEASUREMENT: usize = 64;
/// The most spins of a worker before it sleeps, on a machine with many cores.
const MAX_SPINS: usize = 128;

/// Creates the thread of a lane.
pub(super) fn start(shared: &Arc<Shared>, lane: usize) -> io::Result<()> {
    let mut builder = thread::Builder::new().name(format!("{}-{lane}", shared.options.name));
    if let Some(bytes) = shared.options.stack_size {
        builder = builder.stack_size(bytes);
    }
    shared.add_thread();
    let worker = ComputeWorker::new(Arc::clone(shared), lane);
    let started = builder.spawn(move || worker.work()).map(drop);
    if started.is_err() {
        shared.remove_thread();
    }
    started
}

struct ComputeWorker {
    shared: Arc<Shared>,
    number: usize,
    context: RunContext,
    /// This worker has the right to search.
    searching: bool,
    /// The number of tasks since the last measurement.
    unmeasured: usize,
    /// A buffer for chunks.
    chunks: Vec<Chunk>,
    /// A buffer for the numbers of tasks that others have started.
    started: Vec<usize>,
    /// The number of spins before the next sleep: few if spinning was in vain.
    spins: usize,
}

impl ComputeWorker {
    fn new(shared: Arc<Shared>, number: usize) -> Self {
        let outcomes = Arc::clone(&shared.lanes[number].counters().outcomes);
        Self {
            number,
            context: shared.context().counting_panics(outcomes),
            searching: false,
            unmeasured: 0,
            chunks: Vec::new(),
            started: Vec::new(),
            spins: shared.options.spins(MAX_SPINS),
            shared,
        }
    }

    /// The life of the thread.
    fn work(mut self) {
        if let Some(runtime) = &self.shared.options.runtime {
            // Entered once, and never left: a guard that a task leaks would make leaving panic, and the context of the
            // runtime ends with the thread anyway.
            mem::forget(runtime.enter());
        }
        self.shared.attach_worker(self.number);
        self.call_hook(self.shared.options.on_thread_start.as_ref());
        Shared::arm_watchdog(&self.shared);
        while self.run_some() || self.search() || self.sleep() {}
        // The others may sleep because they believe that there is something left.
        self.shared.lanes.iter().for_each(Lane::wake);
        self.call_hook(self.shared.options.on_thread_stop.as_ref());
        flush();
        self.shared.detach_worker();
        self.shared.remove_thread();
    }

    fn call_hook(&self, hook: Option<&ThreadHook>) {
        if let Some(hook) = hook {
            contain(|| hook(self.number));
        }
    }

    /// Runs the pinned tasks, or the next batch. Returns `false` if there are none.
    fn run_some(&mut self) -> bool {
        if self.shared.watchdog().take_help_wanted() {
            self.search();
        }
        if self.lane().pinned().has_tasks() {
            self.run_pinned();
            return true;
        }
        let lane = &self.shared.lanes[self.number];
        let Some(refill) = lane.refill(&mut self.chunks) else {
            return false;
        };
        self.run_batch(refill);
        true
    }

    fn run_batch(&mut self, refill: Refill) {
        self.end_search();
        self.shared
            .share(self.number, refill.others, refill.published);
        let begun = self.measures(refill.others + 1).then(Instant::now);
        let lane = &self.shared.lanes[self.number];
        let (mut next, mut tasks) = (Some(refill.first), 0);
        while let Some(task) = next {
            run(&self.shared, lane, &mut self.context, task);
            tasks += 1;
            next = lane.pop();
        }
        if let Some(begun) = begun {
            lane.counters().record_cost(begun.elapsed(), tasks);
        }
    }

    fn run_pinned(&mut self) {
        self.end_search();
        let lane = &self.shared.lanes[self.number];
        let mut tasks = lane.pinned().take();
        while let Some(task) = tasks.pop_front() {
            lane.count_unqueued();
            run(&self.shared, lane, &mut self.context, task);
        }
    }

    /// Returns `true` if the next batch is to be measured. Reading the clock takes as long as a tiny task, so not all are.
    fn measures(&mut self, tasks: usize) -> bool {
        self.unmeasured += tasks;
        let measures =
            self.unmeasured >= TASKS_PER_MEASUREMENT || !self.lane().counters().is_fast();
        if measures {
            self.unmeasured = 0;
        }
        measures
    }

    /// Searches for tasks to steal, unless another worker does. Returns `false` if there are none.
    fn search(&mut self) -> bool {
        self.searching = self.searching || self.shared.begin_search();
        if !self.searching {
            return false;
        }
        let mut before = mem::take(&mut self.started);
        before.extend(self.others().map(|lane| lane.counters().started.get()));
        let mut stolen = mem::take(&mut self.chunks);
        self.lane().set_taking(true);
        // First what nobody else will run: awake workers run their stealable tasks themselves.
        let mut waiting = |lane: &Lane| lane.is_stuck() && lane.steal_waiting(&mut stolen);
        let mut found = self.others().any(&mut waiting)
            || self.others().any(|lane| lane.steal_half(&mut stolen));
        if !found {
            // Other tasks are stolen only from workers that make no progress.
            (0..SPINS_BEFORE_STEAL).for_each(|_| hint::spin_loop());
            found = self.others().zip(&before).any(|(lane, &before)| {
                lane.steal_half(&mut stolen)
                    || lane.counters().started.get() == before && lane.steal_waiting(&mut stolen)
            });
        }
        before.clear();
        self.started = before;
        self.lane().adopt(&mut stolen);
        self.lane().set_taking(false);
        self.chunks = stolen;
        found
    }

    /// Sleeps until there is something to do. Returns `false` if the worker must exit.
    fn sleep(&mut self) -> bool {
        if self.spin() {
            return true;
        }
        flush();
        if !self.lane().park() {
            self.end_search();
            return true;
        }
        let found = self.shared.begin_sleep(mem::take(&mut self.searching));
        // After both: a worker that exits wakes this one from now on, and the last worker to go to sleep sees everything.
        let is_over = self.shared.is_over(self.number);
        let stays_awake = found || is_over || self.lane().pinned().has_tasks();
        self.shared.notify_idle();
        self.searching = if stays_awake && self.lane().unpark() {
            found
        } else {
            self.lane().sleep() || found
        };
        self.shared.end_sleep();
        if is_over {
            self.end_search();
            return !self.lane().pinned().close();
        }
        Shared::arm_watchdog(&self.shared);
        true
    }

    /// Watches the inbox for a moment. Returns `true` if there is something in the lane.
    fn spin(&mut self) -> bool {
        let found = (0..self.spins).any(|_| {
            hint::spin_loop();
            self.lane().has_queued()
        });
        let spins = if found {
            self.spins * 2
        } else {
            self.spins / 2
        };
        let options = &self.shared.options;
        self.spins = spins.clamp(options.spins(1), options.spins(MAX_SPINS));
        found
    }

    fn end_search(&mut self) {
        if mem::take(&mut self.searching) {
            self.shared.end_search();
        }
    }

    fn lane(&self) -> &Lane {
        &self.shared.lanes[self.number]
    }

    /// The other lanes, in an order that differs between workers.
    fn others(&self) -> impl Iterator<Item = &Lane> {
        let (before, from) = self.shared.lanes.split_at(self.number);
        from[1..].iter().chain(before)
    }
}

/// Runs a task, unless it was aborted, or a shutdown drops it.
#[inline]
pub(super) fn run(shared: &Shared, lane: &Lane, context: &mut RunContext, task: Task<RunContext>) {
    if shared.is_aborting() {
        lane.count_removed(1);
        return shared.drop_task(task);
    }
    lane.counters().started.add_own(1);
    let ran = if task.is_blocking() {
        task.run(context)
    } else {
        Work::new(task).run_in(context)
    };
    if ran == Ran::Cancelled {
        // The task has not used its context.
        shared.release_permit();
        lane.counters().cancelled.add_own(1);
    }
}
