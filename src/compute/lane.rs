//! A lane: what one worker has to run, and whether it is awake.
//!
//! ```text
//! submitters --push--> inbox --drain--> surplus (in chunks) --> hand --pop--> run
//!                        |                 |                     |
//!                        +------- thieves take from each --------+
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::inbox::{Batch, FifoList, Inbox, LifoList, LocalQueue, Refused, Tags};
use crate::join::{self, RunContext};
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, AtomicBool, AtomicUsize, MODEL, Mutex, Number, Ordering, lock};
use crate::task::Task;

/// How many tasks a worker takes in hand at most.
const CHUNK: usize = if MODEL { 2 } else { 64 };

/// In the inbox's head: the worker sleeps, and the inbox is empty. Whoever clears it wakes the worker.
const PARKED: Tags = Tags::bit(0);
/// The lane accepts nothing from outside any more.
const SEALED: Tags = Tags::bit(1);
/// The worker was woken to search, and has the shared's right to do so.
const CALLED: Tags = Tags::bit(2);

/// Tasks of a lane that belong together, and how many they are.
pub(super) type Chunk = (FifoList<Task<RunContext>>, usize);

/// The tasks of one worker.
#[repr(align(128))]
pub(super) struct Lane {
    inbox: Inbox<Task<RunContext>>,
    /// Tasks pushed by others. Beside the word that a push has just changed.
    pushed: Number,
    /// The worker runs a long task. Set and cleared by the timer's visits.
    stuck: AtomicBool,
    own: Own,
}

/// What the worker of the lane writes, on lines of its own.
#[repr(align(128))]
struct Own {
    hand: LocalQueue<Task<RunContext>>,
    /// What was drained and is not in hand: oldest first.
    surplus: Mutex<VecDeque<Chunk>>,
    /// How many chunks that is, for a look without the lock.
    chunks: AtomicUsize,
    thread: Mutex<Option<Thread>>,
    tally: Tally,
}

/// What a lane counts. Each number is written by the lane's worker only, but where it says otherwise.
#[derive(Default)]
pub(super) struct Tally {
    /// Tasks begun.
    pub(super) ran: Number,
    /// The outcomes of its tasks.
    pub(super) ended: Arc<join::RunCounts>,
    /// Tasks aborted before they started.
    pub(super) cancelled: Number,
    /// Tasks that the worker has taken from other lanes.
    pub(super) stolen: Number,
    /// Tasks that have left this lane in another way: written by whoever took them.
    pub(super) lost: Number,
    /// How often the worker has gone to sleep.
    pub(super) parked: Number,
    /// 1 while the worker takes tasks from an inbox.
    taking: Number,
    /// Of the tasks begun, those that nobody has submitted: turns of keys.
    pub(super) turns: Number,
    /// Tasks that the worker has pushed itself.
    pushed: Number,
    /// How many were pushed when the inbox was drained last.
    drained: Number,
    /// Nanoseconds that a task took, of late.
    pace: Number,
    /// How many tasks are taken in hand: few, where they take long.
    handful: Number,
}

impl Lane {
    pub(super) fn new(pace: usize) -> Self {
        let lane = Self {
            inbox: Inbox::new(),
            pushed: Number::new(0),
            stuck: AtomicBool::new(false),
            own: Own {
                hand: LocalQueue::new(),
                surplus: Mutex::new(VecDeque::new()),
                chunks: AtomicUsize::new(0),
                thread: Mutex::new(None),
                tally: Tally::default(),
            },
        };
        lane.set_pace(pace);
        lane
    }

    /// Queues tasks, from anywhere, and wakes the worker if it sleeps. `Err`: the lane is sealed.
    ///
    /// Says how often it had to try, which tells of others who push.
    #[inline]
    pub(super) fn push(
        &self,
        batch: Batch<Task<RunContext>>,
        count: usize,
    ) -> Result<usize, Batch<Task<RunContext>>> {
        let mut tries = 0;
        let pushed = self.inbox.push(batch, |seen| {
            tries += 1;
            (!seen.tags.has(SEALED)).then_some(seen.tags.without(PARKED))
        });
        match pushed {
            Ok(seen) => {
                self.pushed.add(count);
                if seen.tags.has(PARKED) {
                    self.unpark_thread();
                }
                Ok(tries)
            }
            Err(Refused { batch, .. }) => Err(batch),
        }
    }

    /// Queues tasks by the lane's own worker, which is awake. `Err`: the lane is sealed.
    #[inline]
    pub(super) fn push_own(
        &self,
        batch: Batch<Task<RunContext>>,
        tasks: usize,
    ) -> Result<(), Batch<Task<RunContext>>> {
        let pushed = self.inbox.push(batch, |seen| {
            debug_assert!(!seen.tags.has(PARKED), "who sleeps does not push");
            (!seen.tags.has(SEALED)).then_some(seen.tags)
        });
        if let Err(refused) = pushed {
            return Err(refused.batch);
        }
        self.own.tally.pushed.add_own(tasks);
        Ok(())
    }

    /// Counts a task that the worker runs, and that was not queued here.
    pub(super) fn count_foreign(&self) {
        self.own.tally.pushed.add_own(1);
    }

    /// As `push_own`, sealed or not: it is awake, and so will find the task.
    pub(super) fn requeue(&self, task: Task<RunContext>) {
        self.own.tally.pushed.add_own(1);
        let pushed = self.inbox.push(Batch::of(task), |seen| Some(seen.tags));
        debug_assert!(pushed.is_ok());
    }

    /// How many tasks were pushed since the worker drained the inbox, if that is worth a thought after
    /// it has pushed some more: once for every few.
    #[inline]
    pub(super) fn undrained(&self, tasks: usize) -> Option<usize> {
        let own = self.own.tally.pushed.get();
        (own / CHUNK != own.wrapping_sub(tasks) / CHUNK)
            .then(|| self.pushed().wrapping_sub(self.own.tally.drained.get()))
    }

    fn pushed(&self) -> usize {
        self.pushed.get().wrapping_add(self.own.tally.pushed.get())
    }

    /// The next task in hand. For the worker.
    #[inline]
    pub(super) fn pop(&self) -> Option<Task<RunContext>> {
        self.own.hand.pop()
    }

    /// The next task, from the surplus, or else from the inbox, with those that follow it in hand. For
    /// the worker, whose hand is empty.
    pub(super) fn refill(&self, cuts: &mut Vec<Chunk>) -> Option<Refill> {
        if let Some(chunk) = self.next_chunk() {
            return self.take_in_hand(chunk, false);
        }
        let pushed = self.pushed();
        self.set_taking(true);
        let oldest = cut(self.inbox.detach(), self.handful(), cuts);
        let published = !cuts.is_empty();
        if published {
            self.publish(cuts.drain(..).rev());
            cuts.shrink_to(ROOMY);
        }
        self.set_taking(false);
        self.own.tally.drained.set(pushed);
        self.take_in_hand(oldest?, published)
    }

    fn take_in_hand(&self, (mut chain, tasks): Chunk, published: bool) -> Option<Refill> {
        let first = chain.pop_front()?;
        self.own.hand.fill(chain);
        Some(Refill {
            first,
            in_hand: tasks - 1,
            published,
        })
    }

    /// Takes over what its worker has stolen, oldest first, as surplus.
    pub(super) fn take_over(&self, loot: &mut Vec<Chunk>) {
        self.own.tally.stolen.add_own(tasks(loot));
        self.publish(loot.drain(..));
        loot.shrink_to(ROOMY);
    }

    /// Steals half of the surplus, the newer half, and says whether there was any.
    pub(super) fn steal_surplus(&self, loot: &mut Vec<Chunk>) -> bool {
        if !self.has_surplus() {
            return false;
        }
        let mut surplus = lock(&self.own.surplus);
        let keep = surplus.len() / 2;
        loot.extend(surplus.drain(keep..));
        self.own.chunks.store(keep, Ordering::Relaxed);
        drop(surplus);
        self.count_lost(tasks(loot));
        !loot.is_empty()
    }

    /// Steals what waits behind a long task: what is in hand, and all that is in the inbox.
    pub(super) fn steal_behind(&self, loot: &mut Vec<Chunk>) -> bool {
        let oldest = cut(self.inbox.detach(), self.handful(), loot);
        loot.extend(oldest);
        // What is in hand is older still.
        let hand = self.own.hand.steal_all();
        if hand.1 > 0 {
            loot.push(hand);
        }
        loot.reverse();
        self.count_lost(tasks(loot));
        !loot.is_empty()
    }

    /// Takes all that is queued.
    pub(super) fn clear(&self) -> Vec<Chunk> {
        let mut all = vec![self.own.hand.steal_all()];
        let mut surplus = lock(&self.own.surplus);
        all.extend(surplus.drain(..));
        self.own.chunks.store(0, Ordering::Relaxed);
        drop(surplus);
        all.push(self.inbox.detach().take_newest(usize::MAX));
        self.count_lost(tasks(&all));
        all
    }

    /// Whether there is something for others to steal at once.
    #[inline]
    pub(super) fn has_surplus(&self) -> bool {
        self.own.chunks.load(Ordering::Relaxed) > 0
    }

    /// Whether anything is queued. A hint.
    pub(super) fn has_queued(&self) -> bool {
        !self.own.hand.is_empty()
            || self.has_surplus()
            || !self.inbox.peek().empty
            || self.own.tally.taking.get() != 0
    }

    /// The worker takes tasks, which are nowhere to be seen meanwhile, or has put them where they are.
    pub(super) fn set_taking(&self, taking: bool) {
        self.own.tally.taking.set(usize::from(taking));
    }

    /// About how many nanoseconds the surplus, and so many tasks, will take.
    #[inline]
    pub(super) fn outlook(&self, tasks: usize) -> usize {
        let surplus = self.own.chunks.load(Ordering::Relaxed) * self.handful();
        (surplus + tasks).saturating_mul(self.own.tally.pace.get())
    }

    /// Learns how long tasks take.
    pub(super) fn learn(&self, elapsed: Duration, tasks: usize) {
        // In models time is not what decides.
        if tasks > 0 && !MODEL {
            let elapsed = usize::try_from(elapsed.as_nanos()).unwrap_or(usize::MAX);
            let pace = elapsed / tasks;
            let before = self.own.tally.pace.get();
            self.set_pace((before / 2).saturating_add(pace / 2).max(1));
        }
    }

    fn set_pace(&self, pace: usize) {
        let handful = (HANDFUL_NS / pace).clamp(1, CHUNK);
        self.own.tally.pace.set(pace);
        self.own.tally.handful.set(handful);
    }

    /// Whether tasks take so little time that a look at the clock would be felt.
    pub(super) fn is_fast(&self) -> bool {
        self.own.tally.pace.get() < FAST_NS
    }

    pub(super) fn handful(&self) -> usize {
        self.own.tally.handful.get()
    }

    #[inline]
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// How many tasks are queued.
    pub(super) fn backlog(&self) -> usize {
        let tally = self.tally();
        let gone = tally.ran.get().wrapping_add(tally.lost.get());
        let come = self.pushed().wrapping_add(tally.stolen.get());
        // The numbers are not read at one moment.
        usize::try_from(come.wrapping_sub(gone).cast_signed()).unwrap_or(0)
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.own.tally
    }

    /// The worker says on which thread it is.
    pub(super) fn man(&self) {
        *lock(&self.own.thread) = Some(thread::current());
    }

    #[inline]
    pub(super) fn is_parked(&self) -> bool {
        self.inbox.peek().tags.has(PARKED)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.inbox.peek().tags.has(SEALED)
    }

    /// Refuses tasks from now on, and wakes the worker.
    pub(super) fn seal(&self) {
        if self.inbox.retag(SEALED, PARKED).tags.has(PARKED) {
            self.unpark_thread();
        }
    }

    /// Lies down: from now on, whoever pushes wakes the worker. `false`: there is something in the
    /// inbox.
    pub(super) fn park(&self) -> bool {
        self.exchange(Tags::NONE, PARKED)
    }

    /// Gets up by itself. `false`: somebody has woken the worker.
    pub(super) fn unpark(&self) -> bool {
        self.exchange(PARKED, Tags::NONE)
    }

    /// Wakes the worker, to look around. Also if it is awake, it sees what the caller has done before
    /// when it lies down next.
    pub(super) fn wake(&self) {
        if self.inbox.retag(Tags::NONE, PARKED).tags.has(PARKED) {
            self.unpark_thread();
        }
    }

    /// Sleeps until woken. `true`: to search.
    pub(super) fn sleep(&self) -> bool {
        self.own.tally.parked.add_own(1);
        // What a task left of park tokens makes this loop turn once more, nothing else.
        while self.is_parked() {
            thread::park();
        }
        self.inbox.peek().tags.has(CALLED) && self.inbox.retag(Tags::NONE, CALLED).tags.has(CALLED)
    }

    /// Wakes the worker to search. `false`: it is awake.
    pub(super) fn call(&self) -> bool {
        let called = self.exchange(PARKED, CALLED);
        if called {
            self.unpark_thread();
        }
        called
    }

    /// Changes the tags of an empty lane, sealed or not.
    fn exchange(&self, from: Tags, to: Tags) -> bool {
        let exchange = |seal: Tags| self.inbox.exchange_empty(from.with(seal), to.with(seal));
        exchange(Tags::NONE).is_ok() || exchange(SEALED).is_ok()
    }

    /// The oldest chunk of the surplus.
    fn next_chunk(&self) -> Option<Chunk> {
        if !self.has_surplus() {
            return None;
        }
        let mut surplus = lock(&self.own.surplus);
        let chunk = surplus.pop_front();
        if surplus.is_empty() {
            // After a flood.
            surplus.shrink_to(ROOMY);
        }
        self.own.chunks.store(surplus.len(), Ordering::Relaxed);
        chunk
    }

    fn publish(&self, chunks: impl Iterator<Item = Chunk>) {
        let mut surplus = lock(&self.own.surplus);
        surplus.extend(chunks);
        self.own.chunks.store(surplus.len(), Ordering::Relaxed);
    }

    /// Counts tasks that have left the lane without having run there.
    pub(super) fn count_lost(&self, tasks: usize) {
        self.own.tally.lost.add(tasks);
    }

    #[cold]
    fn unpark_thread(&self) {
        let thread = lock(&self.own.thread).clone();
        thread.expect("who sleeps has said where").unpark();
    }
}

/// What a worker has taken.
pub(super) struct Refill {
    /// The task to run now.
    pub(super) first: Task<RunContext>,
    /// How many more are in hand.
    pub(super) in_hand: usize,
    /// Whether there are more, which have just become surplus.
    pub(super) published: bool,
}

/// Cuts a pile into chunks, the newest first, and returns the last one, which is the oldest.
fn cut(
    mut pile: LifoList<Task<RunContext>>,
    handful: usize,
    cuts: &mut Vec<Chunk>,
) -> Option<Chunk> {
    let mut last = None;
    loop {
        // Of a flood larger ones: a list of so many small ones would be large itself.
        let limit = if cuts.len() < ROOMY { handful } else { CHUNK };
        let chunk = pile.take_newest(limit);
        if chunk.1 == 0 {
            return last;
        }
        cuts.extend(last.replace(chunk));
    }
}

fn tasks(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|(_, count)| count).sum()
}

/// A task that takes longer may be measured.
const FAST_NS: usize = 1_000;
/// How long what is taken in hand should take.
const HANDFUL_NS: usize = 20_000;
/// How many chunks a surplus has room for when it is empty.
const ROOMY: usize = 256;
