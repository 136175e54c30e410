//! The tasks that poll small futures.
//!
//! A Tokio task costs several times as much as most jobs: memory that one thread allocates and another frees, and a
//! place in the runtime's list of tasks. So a job becomes a task only if its future is [large](super::start), or if it
//! waits more than once. Small futures are queued in their cells, which they have anyway, and a *runner*, which is a
//! task, polls them one after the other. A future that is pending after its first poll is *suspended*: it stays in its
//! cell, and is queued again when it is woken. If it is pending again, it becomes a task, which is spawned on the
//! thread that polled it. So the runtime balances a future that is woken many times like any other task.
//!
//! - A submission starts a runner if there is none. While jobs take long, it also starts one if there are fewer than the
//!   runtime has workers. While jobs are very short, a second runner starts only if earlier submissions are still
//!   queued, and runners start others when they leave enough work behind.
//! - A runner takes one job at a time, so that a job that blocks holds up no other job, and exits when nothing is left.
//!   It does not outlive its runtime. If it is dropped before it exits, it cancels the queued and the suspended jobs.
//!   Jobs that are submitted later are left to the runtime, which drops them.
//! - A wake-up drops no job, since its caller may hold a lock that the drop acquires. A job that is woken while its
//!   runtime shuts down is left to the runners that have not been dropped yet, or else to the watchdog.
//! - Once a job has been suspended, one runner *parks* instead of exiting, until the stream's queue is dropped. So there
//!   always is one that the runtime drops when it shuts down. It is the next one to be started.
//! - A watchdog starts one more runner when no job has been taken for some milliseconds: all runners may be running
//!   jobs that block their threads, which the runtime may have replaced. When such jobs end and more runners wait for a
//!   worker than there are workers, one of them exits.

mod parking;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop;

use self::parking::Parking;
use crate::drops::drop_nested_owned;
use crate::inbox::{Batch, FifoList, Inbox, Tags};
use crate::join::{RunContext, Spawn, Work};
use crate::sync::{
    Arc, AtomicBool, AtomicUsize, MODEL, Mutex, Number, Ordering, Weak, cyclic, lock,
};
use crate::task::{Fault, Stepped, Task};
use crate::timer::{self, Watchdog};

/// The maximum number of jobs that a runner polls before it lets other tasks run.
const JOBS_PER_QUANTUM: usize = if MODEL { 2 } else { 64 };
/// The time after which it lets other tasks run.
const QUANTUM_TIME: Duration = Duration::from_micros(50);
/// The number of jobs between two looks at the clock, each of which takes as long as a tiny job.
const JOBS_PER_CLOCK_READ: usize = 8;
/// The number of full quanta after which a runner lets the runtime process timers and I/O too.
const QUANTA_PER_YIELD: u32 = 8;
/// The number of quanta for which a runner that was busy waits for more jobs before it exits.
const IDLE_QUANTA: u32 = 2;
/// The amount of queued work that justifies starting a runner, in nanoseconds.
const RUNNER_COST_NS: usize = if MODEL { 1 } else { 10_000 };
/// Jobs that take less are not worth a runner each: the runner that is busy with one soon takes the next.
const SHORT_JOB_NS: usize = 2_000;
/// The number of the watchdog's checks without any runner after which it stops.
const IDLE_CHECKS: u32 = if MODEL { 1 } else { 10 };

/// The runners of one runtime.
pub(super) struct Runners {
    this: Weak<Self>,
    runtime: Box<dyn Spawn>,
    /// The maximum number of runners, not counting those that the watchdog starts.
    limit: usize,
    /// The number of runners.
    count: AtomicUsize,
    /// The approximate number of runners that run a job.
    busy: Number,
    /// A runner was dropped before it exited: the runtime has shut down.
    runtime_gone: AtomicBool,
    /// Jobs that were submitted or resumed.
    submitted: Inbox<Task<RunContext>>,
    queue: Mutex<RunQueue>,
    parking: Parking,
    take_suspended: Box<TakeSuspended>,
    /// A moving average of how long a job takes, in nanoseconds.
    job_cost: Number,
    /// The watchdog is armed.
    watched: AtomicBool,
    watch: Mutex<WatchState>,
}

/// Takes the suspended jobs from their cells, for a caller that drops them.
type TakeSuspended = dyn Fn() -> FifoList<Task<RunContext>> + Send + Sync;

/// The tasks that were taken out of the inbox, oldest first.
struct RunQueue {
    tasks: FifoList<Task<RunContext>>,
    len: usize,
    /// The number of tasks that have been taken out of this queue.
    taken: usize,
}

/// The results of the last check of the watchdog.
#[derive(Default)]
struct WatchState {
    /// The value of `RunQueue::taken` at its last check.
    taken: usize,
    /// The value of `RunQueue::taken` when it last started a runner.
    helped_at: Option<usize>,
    /// The number of consecutive checks without any runner.
    idle_checks: u32,
}

/// Submitting.
impl Runners {
    pub(super) fn new(
        runtime: Box<dyn Spawn>,
        limit: usize,
        take_suspended: Box<TakeSuspended>,
    ) -> Arc<Self> {
        let queue = RunQueue {
            tasks: FifoList::new(),
            len: 0,
            taken: 0,
        };
        cyclic(|this| Self {
            this,
            runtime,
            limit,
            count: AtomicUsize::new(0),
            busy: Number::new(0),
            runtime_gone: AtomicBool::new(false),
            submitted: Inbox::new(),
            queue: Mutex::new(queue),
            parking: Parking::new(),
            take_suspended,
            // Until jobs have been timed, each is assumed to justify a runner.
            job_cost: Number::new(RUNNER_COST_NS),
            watched: AtomicBool::new(false),
            watch: Mutex::new(WatchState::default()),
        })
    }

    /// Queues a job that has not been polled.
    pub(super) fn submit(this: &Arc<Self>, task: Task<RunContext>) {
        if this.runtime_gone.load(Ordering::Relaxed) {
            // Dropped by itself. A runner would cancel everything that is queued, whose drops may submit other jobs,
            // and so on: the stack would be as deep as the queue is long.
            let this = Arc::clone(this);
            drop_nested_owned(move || drop(this.runtime.spawn_work(Work::new(task))));
            return;
        }
        Self::push(this, task, IfDropped::CancelIfLast);
    }

    /// Queues a job that was suspended and has been woken.
    pub(super) fn resume(this: &Arc<Self>, task: Task<RunContext>) {
        Self::push(this, task, IfDropped::Leave);
    }

    fn push(this: &Arc<Self>, task: Task<RunContext>, if_dropped: IfDropped) {
        let pushed = this.submitted.push(Batch::of(task), |seen| Some(seen.tags));
        let others_wait = pushed.is_ok_and(|seen| !seen.empty);
        let limit = this.limit_for_submit(others_wait);
        // Relaxed is enough: it comes after the push, see `unregister`.
        if this.count.load(Ordering::Relaxed) < limit {
            Self::start_below(this, limit, if_dropped);
        }
    }

    /// The number of runners below which a submission starts another.
    fn limit_for_submit(&self, others_wait: bool) -> usize {
        match (self.job_cost.get() < SHORT_JOB_NS, others_wait) {
            (false, _) => self.limit,
            // The only runner may itself be queued where only its own worker takes it from.
            (true, true) => self.limit.min(2),
            (true, false) => 1,
        }
    }

    /// Starts a runner if there are fewer than `limit`.
    #[cold]
    fn start_below(this: &Arc<Self>, limit: usize, if_dropped: IfDropped) {
        let one_more = |count: usize| (count < limit).then_some(count + 1);
        // Relaxed is enough: the number tells nothing about what the runners do.
        let registered = this
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if registered.is_ok() {
            Self::start(this, if_dropped);
        }
    }

    /// Starts a runner that has been counted.
    fn start(this: &Arc<Self>, if_dropped: IfDropped) {
        let watched = Self::arm_watchdog(this);
        if let Some(parked) = this.parking.unpark() {
            parked.wake();
            return;
        }
        let runner = RunnerTask {
            runners: Some(Arc::clone(this)),
            full_quanta: 0,
            idle_quanta: 0,
            park: None,
            // Without a watchdog, jobs that are left would not end.
            if_dropped: match watched {
                true => if_dropped,
                false => IfDropped::CancelIfLast,
            },
        };
        // A runtime that refuses it drops it.
        drop(this.runtime.spawn_work(Work::future(runner)));
    }
}

/// Running.
impl Runners {
    /// Takes the next job. The second value is `true` if the queue that is left justifies another runner.
    fn next(&self) -> Option<(Task<RunContext>, bool)> {
        let mut queue = lock(&self.queue);
        if queue.tasks.is_empty() {
            (queue.tasks, queue.len) = self.submitted.detach().take_newest(usize::MAX);
        }
        let task = queue.tasks.pop_front()?;
        queue.len -= 1;
        queue.taken += 1;
        let left = queue.len.saturating_mul(self.job_cost.get());
        let started = self
            .count
            .load(Ordering::Relaxed)
            .saturating_mul(RUNNER_COST_NS);
        Some((task, queue.len > 0 && left >= started))
    }

    /// The number of jobs to poll in a quantum.
    fn jobs_per_quantum(&self) -> usize {
        let jobs = QUANTUM_TIME.as_nanos() as usize / self.job_cost.get().max(1);
        jobs.clamp(1, JOBS_PER_QUANTUM)
    }

    fn record_cost(&self, elapsed: Duration, jobs: usize) {
        // Models must not depend on time: their schedules could not be repeated.
        if !MODEL {
            let elapsed = usize::try_from(elapsed.as_nanos()).unwrap_or(usize::MAX);
            self.job_cost
                .set(self.job_cost.get() / 2 + elapsed / jobs / 2);
        }
    }

    /// Unregisters the calling runner if more runners than the limit wait for a worker. They take over what is queued.
    fn exit_if_excess(&self) -> bool {
        let waiting = |count: usize| count.saturating_sub(self.busy.get());
        let one_less = |count: usize| (waiting(count) > self.limit).then(|| count - 1);
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }

    /// Unregisters the calling runner, which has found no job or can take no more. Returns `false`, and does nothing, if
    /// jobs are queued.
    fn exit_if_idle(&self) -> bool {
        self.unregister();
        // A runner that has filled the queue may have exited because this one was there.
        let idle = self.submitted.peek().empty && lock(&self.queue).tasks.is_empty();
        if !idle {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        idle
    }

    /// Handles the drop of a registered runner: the runtime has shut down.
    fn dropped(&self, if_dropped: IfDropped) {
        let others = self.unregister();
        if if_dropped.cancels(others) {
            self.cancel_all();
        } else {
            self.runtime_gone.store(true, Ordering::Relaxed);
        }
    }

    /// Cancels the queued and the suspended jobs.
    fn cancel_all(&self) {
        // Takes all suspended jobs first: the drop of one may wake others, which would then be left to the watchdog.
        let suspended = (self.take_suspended)();
        self.runtime_gone.store(true, Ordering::Relaxed);
        while let Some((task, _)) = self.next() {
            task.fail(Fault::cancelled());
        }
        drop(suspended);
    }

    /// Subtracts a runner. The caller sees every job whose submitter has counted on that runner. Returns `true` if there
    /// are other runners.
    fn unregister(&self) -> bool {
        // Relaxed is enough, because of what follows.
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a runner is counted before it is started");
        // Changes the word to the same value. A push comes either before it, and is seen by the caller, or after it,
        // and the submitter then sees the lower count (the Release of this, and the Acquire of the push).
        self.submitted.retag(Tags::NONE, Tags::NONE);
        before > 1
    }
}

/// Parking.
impl Runners {
    /// Lets the parked runner exit: no job is left, and none will come.
    pub(super) fn dismiss(&self) {
        let register = || {
            self.count.fetch_add(1, Ordering::Relaxed);
        };
        if let Some(waker) = self.parking.dismiss(register) {
            waker.wake();
        }
    }
}

/// Watching.
impl Runners {
    /// Returns `false` if there is no watchdog.
    fn arm_watchdog(this: &Arc<Self>) -> bool {
        // Ordering: Release, with the count and the push before it, pairs with the Acquire in `is_quiet`.
        let armed = this.watched.swap(true, Ordering::AcqRel) || timer::watch(this).is_ok();
        if !armed {
            // Jobs wait behind those that block. The next runner tries again.
            this.watched.store(false, Ordering::Relaxed);
        }
        armed
    }

    /// Returns `true` if jobs are queued and no runner has taken one since the last check. If a runner was started for
    /// that and has taken no job yet, no other is needed.
    fn needs_help(&self, watch: &mut WatchState) -> bool {
        let queue = lock(&self.queue);
        let queued = !queue.tasks.is_empty() || !self.submitted.peek().empty;
        let stuck = queued && queue.taken == watch.taken && watch.helped_at != Some(queue.taken);
        watch.taken = queue.taken;
        if stuck {
            watch.helped_at = Some(queue.taken);
        }
        stuck
    }

    /// Returns `true` if the watchdog may stop.
    fn is_quiet(&self, watch: &mut WatchState) -> bool {
        // Jobs without a runner are those that a wake-up has left.
        let is_needed = || self.count.load(Ordering::Relaxed) > 0 || !self.submitted.peek().empty;
        watch.idle_checks = if is_needed() {
            0
        } else {
            watch.idle_checks + 1
        };
        if watch.idle_checks < IDLE_CHECKS {
            return false;
        }
        watch.idle_checks = 0;
        // Ordering: Acquire pairs with the Release in `arm_watchdog`: a runner that found the watchdog armed is seen
        // below, or the job that it was started for. A runner that starts after this arms it again.
        self.watched.swap(false, Ordering::AcqRel);
        // Another runner may have armed it again already.
        !is_needed() || self.watched.swap(true, Ordering::AcqRel)
    }
}

impl Watchdog for Runners {
    fn check(&self) -> bool {
        let mut watch = lock(&self.watch);
        let needs_help = self.needs_help(&mut watch);
        let quiet = self.is_quiet(&mut watch);
        // If the runtime is gone, starting a runner drops jobs: not under the lock.
        drop(watch);
        if needs_help && let Some(this) = self.this.upgrade() {
            Self::start_below(&this, usize::MAX, IfDropped::Cancel);
        }
        !quiet
    }
}

/// The work that a runner did in one poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuantumOutcome {
    /// There was no job.
    Empty,
    /// It took all jobs that there were.
    TookAll,
    /// There may be more jobs.
    Full,
}

/// The action of a runner that is dropped before it exits.
#[derive(Clone, Copy)]
enum IfDropped {
    /// It cancels all jobs: the runtime has polled it, or the watchdog has started it.
    Cancel,
    /// It cancels them if there is no other runner. It was started where a job was submitted: the submitter should not
    /// run the drops of jobs other than its own.
    CancelIfLast,
    /// It leaves them to the other runners, or to the watchdog. It was started by a wake-up.
    Leave,
}

impl IfDropped {
    fn cancels(self, others: bool) -> bool {
        match self {
            Self::Cancel => true,
            Self::CancelIfLast => !others,
            Self::Leave => false,
        }
    }
}

/// A task that polls jobs.
struct RunnerTask {
    /// `None` once it has exited.
    runners: Option<Arc<Runners>>,
    /// The number of its current park. It is kept until the runner finds that it has been started again.
    park: Option<u64>,
    full_quanta: u32,
    /// The number of quanta that it still waits for more jobs.
    idle_quanta: u32,
    if_dropped: IfDropped,
}

impl RunnerTask {
    /// Polls some jobs.
    fn run_quantum(&mut self, runners: &Arc<Runners>) -> QuantumOutcome {
        let begin = Instant::now();
        runners.busy.add(1);
        let mut jobs = 0;
        let quantum = Self::run_queued(runners, begin, &mut jobs);
        runners.busy.subtract(1);
        if jobs > 0 {
            runners.record_cost(begin.elapsed(), jobs);
        }
        if jobs >= JOBS_PER_CLOCK_READ {
            self.idle_quanta = IDLE_QUANTA;
        }
        quantum
    }

    fn run_queued(runners: &Arc<Runners>, begin: Instant, jobs: &mut usize) -> QuantumOutcome {
        let max = runners.jobs_per_quantum();
        // At least one: a quantum without jobs means that there are none.
        while *jobs < max && (*jobs == 0 || coop::has_budget_remaining()) {
            let Some((task, justifies_another)) = runners.next() else {
                return match jobs {
                    0 => QuantumOutcome::Empty,
                    _ => QuantumOutcome::TookAll,
                };
            };
            if justifies_another {
                Runners::start_below(runners, runners.limit, IfDropped::CancelIfLast);
            }
            Self::poll_job(runners, task);
            *jobs += 1;
            if jobs.is_multiple_of(JOBS_PER_CLOCK_READ) && begin.elapsed() > QUANTUM_TIME {
                break;
            }
        }
        QuantumOutcome::Full
    }

    fn poll_job(runners: &Runners, task: Task<RunContext>) {
        match Work::queued(task).poll_or_suspend() {
            Stepped::Ended => {}
            Stepped::Suspended => runners.parking.note_suspended(),
            // If it is refused, it is dropped, which cancels it.
            Stepped::Pending(work) => drop(runners.runtime.spawn_work(work)),
        }
    }

    /// Returns `true` if the runner exits after this quantum.
    fn exits(&mut self, runners: &Runners, quantum: QuantumOutcome) -> bool {
        match quantum {
            QuantumOutcome::Empty | QuantumOutcome::TookAll if self.idle_quanta == 0 => {
                runners.exit_if_idle()
            }
            QuantumOutcome::Empty | QuantumOutcome::TookAll => {
                self.idle_quanta -= 1;
                runners.exit_if_excess()
            }
            QuantumOutcome::Full => runners.exit_if_excess(),
        }
    }

    /// Lets other tasks run. A worker with runnable tasks processes timers, I/O and Tokio's `yield_now` only after a
    /// number of polls, which would take milliseconds if each were a quantum. So a runner waits for these now and then.
    fn yield_quantum(&mut self, quantum: QuantumOutcome, cx: &mut Context<'_>) {
        if quantum == QuantumOutcome::Full {
            self.full_quanta += 1;
        }
        if self.full_quanta == QUANTA_PER_YIELD {
            self.full_quanta = 0;
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        } else {
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for RunnerTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.if_dropped = IfDropped::Cancel;
        let Some(runners) = self.runners.clone() else {
            return Poll::Ready(());
        };
        let is_parked = |park| runners.parking.is_parked(park, cx.waker());
        if self.park.is_some_and(is_parked) {
            return Poll::Pending;
        }
        self.park = None;
        let quantum = self.run_quantum(&runners);
        if !self.exits(&runners, quantum) {
            self.yield_quantum(quantum, cx);
            return Poll::Pending;
        }
        self.park = runners.parking.park(cx.waker());
        if self.park.is_some() {
            return Poll::Pending;
        }
        self.runners = None;
        Poll::Ready(())
    }
}

impl Drop for RunnerTask {
    fn drop(&mut self) {
        let Some(runners) = self.runners.take() else {
            return;
        };
        if self.park.is_some_and(|park| runners.parking.end_park(park)) {
            // It is not registered. A job may be queued whose wake-up has started another runner.
            runners.cancel_all();
        } else {
            runners.dropped(self.if_dropped);
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
