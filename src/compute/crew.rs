//! What the workers of a pool share: their lanes, who rests and who searches, and the end.
//!
//! What is queued in a lane is the business of its worker, which is awake as long as there is
//! anything: no task depends on what is here. What is here brings others in when one worker is not
//! enough. `PROTOCOL.md` argues that nobody sleeps while something is to be done.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::builder::Options;
use super::keyed::Keys;
use super::lane::{Lane, read};
use crate::inbox::{Batch, Chain};
use crate::join::Seat;
use crate::room::Room;
use crate::steward::{self, Ward};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Notify, Ordering, lock};
use crate::task::{Fault, Task};
use crate::unwind::contain;

/// In `rest`: somebody searches, or has been called to.
const SEARCHING: usize = 1;
/// In `rest`: one worker that sleeps, or is about to.
const RESTING: usize = 2;

/// Work that takes longer than this is worth waking somebody for: about what that takes.
const WAKE_NS: usize = 50_000;
/// How many visits the steward pays to a pool that rests.
const QUIET_VISITS: u32 = 10;
/// How long a task is taken to run before the first has: long enough to call for help.
const PACE_AT_FIRST: usize = 10_000;

crate::sync::thread_local! {
    /// The crew and the lane whose worker this thread is.
    static WORKER: Cell<(usize, usize)> = Cell::new((0, 0));
}
crate::sync::thread_local! {
    /// The crew and the lane that this thread has pushed to before.
    static STICKY: Cell<(usize, usize)> = Cell::new((0, 0));
}

pub(super) struct Crew {
    pub(super) lanes: Box<[Lane]>,
    pub(super) keys: Keys,
    pub(super) options: Options,
    /// Counts the tasks, in a bounded pool.
    pub(super) room: Option<Arc<Room>>,
    pub(super) rejected: AtomicUsize,
    /// Tasks that a shutdown has dropped.
    pub(super) dropped: AtomicUsize,
    /// `[ workers that sleep | SEARCHING ]`
    rest: AtomicUsize,
    /// Where the next thread that is new here begins to push.
    next: AtomicUsize,
    /// The steward visits.
    watched: AtomicBool,
    patrol: Mutex<Patrol>,
    /// Queued tasks are to be dropped.
    cancelling: AtomicBool,
    /// Threads that have not ended.
    threads: AtomicUsize,
    terminated: Notify,
}

/// What the steward has seen at its visits.
struct Patrol {
    /// For each lane how many tasks were started, and since when it has been so.
    lanes: Vec<(usize, Option<Instant>)>,
    quiet: u32,
}

impl Crew {
    pub(super) fn new(options: Options) -> Self {
        let threads = options.threads;
        Self {
            lanes: (0..threads).map(|_| Lane::new(PACE_AT_FIRST)).collect(),
            keys: Keys::new(threads),
            room: options.capacity.map(|tasks| Arc::new(Room::new(tasks))),
            options,
            rejected: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            rest: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
            patrol: Mutex::new(Patrol {
                lanes: vec![(0, None); threads],
                quiet: 0,
            }),
            cancelling: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            terminated: Notify::new(),
        }
    }

    /// Queues tasks for which there is room. `Err`: the pool is closed.
    #[inline]
    pub(super) fn push(
        &self,
        batch: Batch<Task<Seat>>,
        count: usize,
    ) -> Result<(), Batch<Task<Seat>>> {
        if let Some(lane) = self.own_lane() {
            self.lanes[lane].push_own(batch, count)?;
            // The worker, which would share, is in a task: this one.
            if let Some(undrained) = self.lanes[lane].undrained() {
                self.share(lane, undrained, false);
            }
            return Ok(());
        }
        let lane = self.sticky_lane();
        if self.lanes[lane].push(batch, count)? > 1 {
            // Others push here, too: somewhere else next time.
            self.stick_to(self.awake_lane(lane + 1).unwrap_or(lane));
        }
        Ok(())
    }

    /// The lane of this thread, if it is a worker of this crew.
    #[inline]
    pub(super) fn own_lane(&self) -> Option<usize> {
        let (crew, lane) = WORKER.try_with(Cell::get).unwrap_or_default();
        (crew == self.address()).then_some(lane)
    }

    /// This thread is a worker from now on.
    pub(super) fn enlist(&self, lane: usize) {
        WORKER.with(|worker| worker.set((self.address(), lane)));
        self.lanes[lane].man();
    }

    /// A lane to push to: that of the last time, if its worker is awake, another that is, or one whose
    /// worker must be woken.
    #[inline]
    fn sticky_lane(&self) -> usize {
        let (crew, lane) = STICKY.try_with(Cell::get).unwrap_or_default();
        // An address may have been that of another crew before, with more lanes.
        if crew == self.address() && self.lanes.get(lane).is_some_and(is_awake) {
            return lane;
        }
        self.new_lane()
    }

    #[cold]
    fn new_lane(&self) -> usize {
        let lanes = self.lanes.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % lanes;
        let lane = self
            .awake_lane(first)
            .or_else(|| {
                (first..first + lanes)
                    .map(|lane| lane % lanes)
                    .find(|&lane| !self.lanes[lane].is_stuck())
            })
            .unwrap_or(first);
        self.stick_to(lane);
        lane
    }

    fn stick_to(&self, lane: usize) {
        // Without thread-local storage it begins anew each time.
        let _ = STICKY.try_with(|sticky| sticky.set((self.address(), lane)));
    }

    /// A lane, from `first` on, whose worker is awake.
    fn awake_lane(&self, first: usize) -> Option<usize> {
        let lanes = self.lanes.len();
        (first..first + lanes)
            .map(|lane| lane % lanes)
            .find(|&lane| is_awake(&self.lanes[lane]))
    }

    /// What tasks are run on.
    pub(super) fn seat(&self) -> Seat {
        let seat = self.room.clone().map_or_else(Seat::default, Seat::in_room);
        seat.heard_by(self.options.panic_handler())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Who rests, and who searches.
impl Crew {
    /// Wakes somebody to steal from `lane`, where there is `more` nanoseconds of work, if that is worth
    /// it and nobody is about to.
    pub(super) fn share(&self, lane: usize, tasks: usize, published: bool) {
        if self.lanes[lane].outlook(tasks) < WAKE_NS {
            return;
        }
        let rest = if published {
            // Ordering: Release, with the surplus before it, pairs with the Acquire in `lie_down`; Acquire
            // with its Release. Whichever comes first, we see who sleeps, or he sees the surplus.
            self.rest.fetch_or(0, Ordering::AcqRel)
        } else {
            self.rest.load(Ordering::Relaxed)
        };
        if rest >= RESTING && rest & SEARCHING == 0 {
            self.call_searcher(lane + 1);
        }
    }

    /// Wakes one who sleeps, to search, unless somebody searches.
    #[cold]
    fn call_searcher(&self, first: usize) {
        if !self.begin_search() {
            return;
        }
        let lanes = self.lanes.len();
        let called = (first..first + lanes).any(|lane| self.lanes[lane % lanes].call());
        if !called {
            self.end_search();
        }
    }

    /// Takes the right to search; `false`: somebody has it.
    pub(super) fn begin_search(&self) -> bool {
        // Relaxed: the right to search gives access to nothing.
        self.rest.fetch_or(SEARCHING, Ordering::Relaxed) & SEARCHING == 0
    }

    pub(super) fn end_search(&self) {
        self.rest.fetch_and(!SEARCHING, Ordering::Relaxed);
    }

    /// Counts a worker that lies down. If it has searched in vain, it gives the right to do so back,
    /// and looks again: `true` if there is something to steal after all.
    pub(super) fn lie_down(&self, searched: bool) -> bool {
        let change = if searched {
            RESTING - SEARCHING
        } else {
            RESTING
        };
        // Ordering: AcqRel, see `share`.
        self.rest.fetch_add(change, Ordering::AcqRel);
        searched && self.lanes.iter().any(Lane::has_surplus) && self.begin_search()
    }

    /// A worker gets up.
    pub(super) fn get_up(&self) {
        self.rest.fetch_sub(RESTING, Ordering::Relaxed);
    }

    /// Has the steward visit the pool from now on.
    pub(super) fn call_steward(this: &Arc<Self>) {
        // Ordering: Release, with the getting up of the worker before it, pairs with the Acquire in
        // `is_quiet`.
        if this.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        if steward::watch(this).is_err() {
            // Without one, tasks wait behind a long one. The next to get up tries again.
            this.watched.store(false, Ordering::Relaxed);
        }
    }

    /// For how long the task has been running that runs in a lane, as far as the steward has seen.
    pub(super) fn running_for(&self, lane: usize) -> Duration {
        let patrol = lock(&self.patrol);
        let (ran, since) = patrol.lanes[lane];
        let still = ran == read(&self.lanes[lane].tally().ran) && !self.lanes[lane].is_parked();
        since
            .filter(|_| still)
            .map_or_else(Default::default, |since| since.elapsed())
    }

    /// Whether the pool has been at rest for some visits. Then the steward goes.
    fn is_quiet(&self, patrol: &mut Patrol) -> bool {
        patrol.quiet += 1;
        if patrol.quiet < QUIET_VISITS {
            return false;
        }
        patrol.quiet = 0;
        // Ordering: Acquire pairs with the Release in `call_steward`: who got up and found us here is
        // seen to be awake. Who comes after this calls us again.
        self.watched.swap(false, Ordering::AcqRel);
        let at_rest = self.lanes.iter().all(Lane::is_parked);
        // Somebody else may have called us again already.
        at_rest || self.watched.swap(true, Ordering::AcqRel)
    }
}

impl Ward for Crew {
    fn visit(&self) -> bool {
        let mut patrol = lock(&self.patrol);
        let now = Instant::now();
        let (mut busy, mut blocked) = (false, false);
        for (lane, (ran, since)) in self.lanes.iter().zip(&mut patrol.lanes) {
            if lane.is_parked() {
                *since = None;
                continue;
            }
            busy = true;
            let started = read(&lane.tally().ran);
            let stuck = since.is_some() && *ran == started;
            if !stuck {
                (*ran, *since) = (started, Some(now));
            }
            lane.set_stuck(stuck);
            blocked |= stuck && lane.has_queued();
        }
        if blocked {
            self.call_searcher(0);
        }
        if busy {
            patrol.quiet = 0;
            return self.threads.load(Ordering::Relaxed) > 0;
        }
        !self.is_quiet(&mut patrol)
    }
}

/// The end.
impl Crew {
    /// Accepts nothing from now on. What is queued still runs.
    pub(super) fn close(&self) {
        if let Some(room) = &self.room {
            room.close();
        }
        self.lanes.iter().for_each(Lane::seal);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes[0].is_sealed()
    }

    /// Closes, and drops what is queued; says how many tasks that were.
    pub(super) fn cancel(&self) -> usize {
        let before = read(&self.dropped);
        // Relaxed is enough: who does not see it yet runs some more.
        self.cancelling.store(true, Ordering::Relaxed);
        self.close();
        for (chain, _) in self.lanes.iter().flat_map(Lane::clear) {
            self.drop_all(chain);
        }
        self.keys.cancel(self);
        read(&self.dropped).wrapping_sub(before)
    }

    #[inline]
    pub(super) fn is_cancelling(&self) -> bool {
        self.cancelling.load(Ordering::Relaxed)
    }

    /// Drops tasks unrun.
    pub(super) fn drop_all(&self, mut chain: Chain<Task<Seat>>) {
        while let Some(task) = chain.pop_front() {
            self.drop_one(task);
        }
    }

    pub(super) fn drop_one(&self, task: Task<Seat>) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        // First, as at the end of a task that runs: who learns of it finds its place free.
        self.leave();
        task.fail(Fault::cancelled());
    }

    /// Takes back what `drop_one` did for what nobody has submitted.
    pub(super) fn retract(&self) {
        self.dropped.fetch_sub(1, Ordering::Relaxed);
        if let Some(room) = &self.room {
            room.enter_unasked();
        }
    }

    /// Gives the place of a task back that has not run.
    pub(super) fn leave(&self) {
        if let Some(room) = &self.room {
            room.leave();
        }
    }

    /// Counts a thread that is to be created.
    pub(super) fn add_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread ends, or was not created.
    pub(super) fn remove_thread(&self) {
        // Ordering: Release, and Acquire in `terminated`: what the threads did comes before the end.
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            contain(|| self.terminated.notify_waiters());
        }
    }

    pub(super) async fn terminated(&self) {
        loop {
            // Made before the look: it hears of whatever comes after.
            let terminated = self.terminated.notified();
            // Ordering: Acquire pairs with the Release in `remove_thread`.
            if self.threads.load(Ordering::Acquire) == 0 {
                return;
            }
            terminated.await;
        }
    }
}

#[inline]
fn is_awake(lane: &Lane) -> bool {
    !lane.is_parked() && !lane.is_stuck()
}
