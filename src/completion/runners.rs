//! Who polls futures for the first time.
//!
//! A Tokio task costs several times what most jobs do: its memory, which one thread allocates and another
//! frees, and a place in the runtime's list of tasks. So not each job becomes one, unless its future is
//! [large](super::start). The task of a job that is ready at once goes on with those that were submitted
//! meanwhile, which are queued in the cells that they have anyway: it is a *runner*. Only a future that is
//! pending when a runner has polled it becomes a task of its own, allocated on the thread that will likely
//! run it.
//!
//! - A job gets a task if there is no runner, and while jobs take long as long as there are fewer than the
//!   runtime has workers. While they take next to no time, a second one is only hired if what was submitted
//!   before has not been taken; more of them by runners that leave behind what is worth it.
//! - A runner whose own job is pending is a runner no more.
//! - It takes one job at a time, so that nothing is in the hands of one that is held up, and ends when
//!   there is nothing left. None outlives its runtime: one that is dropped before its end cancels what is
//!   queued, and what comes later is left to the runtime, which drops that, too.
//! - the timer hires one more when nothing has been taken for some milliseconds: all of them may be in
//!   jobs that block their threads, in place of which the runtime may have others. When these are back,
//!   and more runners wait for a worker than there are workers, one of them ends.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::task::coop;

use crate::inbox::{Batch, FifoList, Inbox, Tags};
use crate::join::{RunContext, Spawn, Work};
use crate::sync::{
    Arc, AtomicBool, AtomicUsize, MODEL, Mutex, Number, Ordering, Weak, cyclic, lock,
};
use crate::task::{Fault, Task};
use crate::timer::{self, Watchdog};

/// How many jobs a runner polls, at most, before it lets other tasks run.
const JOBS_PER_TURN: usize = if MODEL { 2 } else { 64 };
/// For how long it does.
const TURN: Duration = Duration::from_micros(50);
/// After how many jobs it looks at the clock, which takes as long as a tiny job does.
const LOOK: usize = 8;
/// After how many full turns it lets the runtime look at timers and I/O, too.
const TURNS: u32 = 8;
/// For how many turns a runner that has had much to do waits for more before it ends.
const IDLE_TURNS: u32 = 2;
/// How many nanoseconds of work a runner is worth.
const WORTH_NS: usize = if MODEL { 1 } else { 10_000 };
/// Jobs that take less are not worth one each: who is busy with one will soon take the next.
const FAST_NS: usize = 2_000;
/// How many visits the timer pays while nobody is hired.
const QUIET_VISITS: u32 = if MODEL { 1 } else { 10 };

/// The runners of one runtime.
pub(super) struct Runners {
    this: Weak<Self>,
    runtime: Box<dyn Spawn>,
    /// How many there are at most, but for those that the timer hires.
    limit: usize,
    /// How many there are.
    hired: AtomicUsize,
    /// How many of them have a job in hand, about.
    busy: Number,
    /// One was dropped before its end: the runtime is gone.
    gone: AtomicBool,
    submitted: Inbox<Task<RunContext>>,
    queue: Mutex<Queue>,
    /// How many nanoseconds a job takes, of late.
    pace: Number,
    /// the timer comes.
    watched: AtomicBool,
    sight: Mutex<Sight>,
}

/// What was taken out of the inbox, oldest first.
struct Queue {
    tasks: FifoList<Task<RunContext>>,
    len: usize,
    /// How many tasks have been taken out of it.
    taken: usize,
}

/// What the timer has seen.
#[derive(Default)]
struct Sight {
    /// How many tasks had been taken at its last visit.
    taken: usize,
    /// How many had been taken when it hired somebody.
    helped: Option<usize>,
    /// For how many visits there has been nobody.
    quiet: u32,
}

/// For who submits.
impl Runners {
    pub(super) fn new(runtime: Box<dyn Spawn>, limit: usize) -> Arc<Self> {
        let queue = Queue {
            tasks: FifoList::new(),
            len: 0,
            taken: 0,
        };
        cyclic(|this| Self {
            this,
            runtime,
            limit,
            hired: AtomicUsize::new(0),
            busy: Number::new(0),
            gone: AtomicBool::new(false),
            submitted: Inbox::new(),
            queue: Mutex::new(queue),
            // Until it is known, each is thought to be worth a runner.
            pace: Number::new(WORTH_NS),
            watched: AtomicBool::new(false),
            sight: Mutex::new(Sight::default()),
        })
    }

    /// Queues a job that nobody has polled.
    pub(super) fn submit(this: &Arc<Self>, mut task: Task<RunContext>) {
        if this.gone.load(Ordering::Relaxed) {
            // Dropped alone. A runner would cancel all that is queued, and what the drop of one job submits,
            // and so on: the stack would be as deep as the queue is long.
            drop(this.runtime.spawn_work(Work::new(task)));
            return;
        }
        let most = this.worth(!this.submitted.peek().empty);
        // Relaxed is enough, for a hint.
        if this.hired.load(Ordering::Relaxed) < most {
            match Self::start_thread(this, most, Some(task)) {
                None => return,
                Some(back) => task = back,
            }
        }
        let pushed = this.submitted.push(Batch::of(task), |seen| Some(seen.tags));
        debug_assert!(pushed.is_ok());
        // Relaxed is enough: it comes after the push, see `leave`.
        if this.hired.load(Ordering::Relaxed) == 0 {
            Self::start_thread(this, 1, None);
        }
    }

    /// How many runners one more job is worth.
    fn worth(&self, others_wait: bool) -> usize {
        match (self.pace.get() < FAST_NS, others_wait) {
            (false, _) => self.limit,
            // The one that there is may itself wait, where only its own worker takes it from.
            (true, true) => self.limit.min(2),
            (true, false) => 1,
        }
    }

    /// Hires a runner for a job, or for what is queued; hands the job back if there are so many.
    #[cold]
    fn start_thread(
        this: &Arc<Self>,
        limit: usize,
        own: Option<Task<RunContext>>,
    ) -> Option<Task<RunContext>> {
        let more = |hired: usize| (hired < limit).then_some(hired + 1);
        // Relaxed is enough: the number says nothing of what the runners do.
        let hired = this
            .hired
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if hired.is_err() {
            return own;
        }
        Self::start(this, own, limit > this.limit);
        None
    }

    /// Starts a runner that has been counted.
    fn start(this: &Arc<Self>, own: Option<Task<RunContext>>, begun: bool) {
        Self::arm_watchdog(this);
        let runner = Runner {
            runners: Some(Arc::clone(this)),
            own: own.map(Work::new),
            full_turns: 0,
            patience: 0,
            begun,
        };
        // Where it is refused it is dropped.
        drop(this.runtime.spawn_work(Work::future(runner)));
    }
}

/// For runners.
impl Runners {
    /// The next job, and whether it leaves enough behind for another runner.
    fn next(&self) -> Option<(Task<RunContext>, bool)> {
        let mut queue = lock(&self.queue);
        if queue.tasks.is_empty() {
            (queue.tasks, queue.len) = self.submitted.detach().take_newest(usize::MAX);
        }
        let task = queue.tasks.pop_front()?;
        queue.len -= 1;
        queue.taken += 1;
        let left = queue.len.saturating_mul(self.pace.get());
        let shared = self.hired.load(Ordering::Relaxed).saturating_mul(WORTH_NS);
        Some((task, queue.len > 0 && left >= shared))
    }

    /// How many jobs to poll in a turn.
    fn jobs_per_turn(&self) -> usize {
        let jobs = TURN.as_nanos() as usize / self.pace.get().max(1);
        jobs.clamp(1, JOBS_PER_TURN)
    }

    /// Learns how long jobs take.
    fn learn(&self, elapsed: Duration, jobs: usize) {
        // In models time is not what decides: their schedules could not be repeated.
        if !MODEL {
            let elapsed = usize::try_from(elapsed.as_nanos()).unwrap_or(usize::MAX);
            self.pace.set(self.pace.get() / 2 + elapsed / jobs / 2);
        }
    }

    /// A runner ends, or does not: so many others wait for a worker, too, that it is one too many. It leaves
    /// them what it has taken from the inbox.
    fn end_surplus(&self) -> bool {
        let waiting = |hired: usize| hired.saturating_sub(self.busy.get());
        let fewer = |hired: usize| (waiting(hired) > self.limit).then(|| hired - 1);
        self.hired
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
    }

    /// A runner that has found nothing, or can go on with nothing, ends; `false`: there is something.
    fn end(&self) -> bool {
        self.leave();
        // Whoever has filled the queue may have ended in the belief that we would go on.
        let over = self.submitted.peek().empty && lock(&self.queue).tasks.is_empty();
        if !over {
            self.hired.fetch_add(1, Ordering::Relaxed);
        }
        over
    }

    /// A runner is dropped: the runtime is gone, and runs nobody any more.
    ///
    /// One that was refused to who submits leaves what is queued to the others, if there are any: drops of
    /// other jobs than its own are nothing that who submits should run.
    fn cancel(&self, begun: bool) {
        self.gone.store(true, Ordering::Relaxed);
        let others = self.leave();
        if others && !begun {
            return;
        }
        while let Some((task, _)) = self.next() {
            task.fail(Fault::cancelled());
        }
    }

    /// One runner less, for whoever submits from now on; what was submitted before can be seen. Says whether
    /// there are others.
    fn leave(&self) -> bool {
        // Relaxed is enough, because of what follows.
        let others = self.hired.fetch_sub(1, Ordering::Relaxed) > 1;
        // A change, if of nothing: a push comes either before it, and is seen, or after it, and who pushes
        // then finds one less (the Release of this, and the Acquire of the push).
        self.submitted.retag(Tags::NONE, Tags::NONE);
        others
    }
}

/// the timer.
impl Runners {
    fn arm_watchdog(this: &Arc<Self>) {
        // Ordering: Release, with the hiring before it, pairs with the Acquire in `is_quiet`.
        if !this.watched.swap(true, Ordering::AcqRel) && timer::watch(this).is_err() {
            // Without one, jobs wait behind those that block. The next to be hired tries again.
            this.watched.store(false, Ordering::Relaxed);
        }
    }

    /// Whether what is queued waits for runners none of which has taken anything since the last visit. Of
    /// help that has not come yet there need not be more.
    fn needs_help(&self, sight: &mut Sight) -> bool {
        let queue = lock(&self.queue);
        let waits = !queue.tasks.is_empty() || !self.submitted.peek().empty;
        let stuck = waits && queue.taken == sight.taken && sight.helped != Some(queue.taken);
        sight.taken = queue.taken;
        if stuck {
            sight.helped = Some(queue.taken);
        }
        stuck
    }

    /// Whether the timer need not come again.
    fn is_quiet(&self, sight: &mut Sight) -> bool {
        let hired = || self.hired.load(Ordering::Relaxed) > 0;
        sight.quiet = if hired() { 0 } else { sight.quiet + 1 };
        if sight.quiet < QUIET_VISITS {
            return false;
        }
        sight.quiet = 0;
        // Ordering: Acquire pairs with the Release in `arm_watchdog`: who was hired and found us here is
        // seen. Who comes after this calls us again.
        self.watched.swap(false, Ordering::AcqRel);
        // Somebody else may have called us again already.
        !hired() || self.watched.swap(true, Ordering::AcqRel)
    }
}

impl Watchdog for Runners {
    fn check(&self) -> bool {
        let mut sight = lock(&self.sight);
        let needs_help = self.needs_help(&mut sight);
        let quiet = self.is_quiet(&mut sight);
        // Where the runtime is gone, the drops of jobs come now.
        drop(sight);
        if needs_help && let Some(this) = self.this.upgrade() {
            Self::start_thread(&this, usize::MAX, None);
        }
        !quiet
    }
}

/// What a runner has done in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    FoundNothing,
    TookAll,
    /// There may be more.
    Full,
    /// Its own job is pending.
    OwnWaits,
}

/// The task of a job, and of those that it polls for the first time.
struct Runner {
    /// `None`: it is a runner no more.
    runners: Option<Arc<Runners>>,
    /// The job that it was hired for, until that has ended.
    own: Option<Work>,
    full_turns: u32,
    /// For how many turns it waits for more.
    patience: u32,
    /// The runtime has had it, or the timer was who hired it.
    begun: bool,
}

impl Runner {
    /// Polls some jobs.
    fn turn(&mut self, runners: &Arc<Runners>, cx: &mut Context<'_>) -> Turn {
        let begun = Instant::now();
        runners.busy.add(1);
        let mut jobs = usize::from(self.own.is_some());
        let turn = match self.poll_own(cx) {
            Poll::Pending => Turn::OwnWaits,
            Poll::Ready(()) => Self::take_turn(runners, begun, &mut jobs),
        };
        runners.busy.subtract(1);
        if jobs > 0 {
            runners.learn(begun.elapsed(), jobs);
        }
        if jobs >= LOOK {
            self.patience = IDLE_TURNS;
        }
        turn
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(own) = &mut self.own {
            ready!(Pin::new(own).poll(cx));
            self.own = None;
        }
        Poll::Ready(())
    }

    fn take_turn(runners: &Arc<Runners>, begun: Instant, jobs: &mut usize) -> Turn {
        let most = runners.jobs_per_turn();
        // At least one: who polls none takes it that there is none.
        while *jobs < most && (*jobs == 0 || coop::has_budget_remaining()) {
            let Some((task, left)) = runners.next() else {
                return match jobs {
                    0 => Turn::FoundNothing,
                    _ => Turn::TookAll,
                };
            };
            if left {
                Runners::start_thread(runners, runners.limit, None);
            }
            if let Some(pending) = Work::new(task).poll_once() {
                // Where it is refused it is dropped, which cancels it.
                drop(runners.runtime.spawn_work(pending));
            }
            *jobs += 1;
            if jobs.is_multiple_of(LOOK) && begun.elapsed() > TURN {
                break;
            }
        }
        Turn::Full
    }

    /// Whether it ends with this turn.
    fn ends(&mut self, runners: &Runners, turn: Turn) -> bool {
        match turn {
            Turn::FoundNothing | Turn::TookAll if self.patience == 0 => runners.end(),
            Turn::FoundNothing | Turn::TookAll => {
                self.patience -= 1;
                runners.end_surplus()
            }
            Turn::Full => runners.end_surplus(),
            Turn::OwnWaits => false,
        }
    }

    /// Goes on as the task of its own job only.
    fn stay(runners: &Arc<Runners>) {
        if !runners.end() {
            // In its place.
            Runners::start(runners, None, true);
        }
    }

    /// Lets other tasks run that can. Those who wait for timers, for I/O, or in Tokio's `yield_now`, a worker
    /// that has something to do looks at only after so many polls that, were each a turn, it would be some
    /// milliseconds: now and then, a runner waits for that, too.
    fn give_way(&mut self, turn: Turn, cx: &mut Context<'_>) {
        if turn == Turn::Full {
            self.full_turns += 1;
        }
        if self.full_turns == TURNS {
            self.full_turns = 0;
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        } else {
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for Runner {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.begun = true;
        let Some(runners) = self.runners.clone() else {
            return self.poll_own(cx);
        };
        let turn = self.turn(&runners, cx);
        if turn == Turn::OwnWaits {
            self.runners = None;
            Self::stay(&runners);
        } else if self.ends(&runners, turn) {
            self.runners = None;
            return Poll::Ready(());
        } else {
            self.give_way(turn, cx);
        }
        Poll::Pending
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(runners) = self.runners.take() {
            runners.cancel(self.begun);
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
