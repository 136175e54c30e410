//! [`Samples`]: how long tasks wait and run.
//!
//! The histograms hold a *sample* of the tasks: each task is in it with the same probability, independently of all
//! others. A rule such as "every 16th task" would see the same kind of task again and again when tasks come in a
//! regular pattern.
//!
//! The maxima include tasks that are not in the sample, so every task is timed. That costs about as much as a task that
//! does nothing, so it ends when almost all of the last thousand tasks were *short*: then only the sample is timed, and
//! a thread reads the clock for the others together. If these take long together, the maximum includes the sum of their
//! times, and every task is timed again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::stopwatch::Lap;
use crate::sync::{MODEL, plain_thread_local};

/// On average, one task out of this number is in the sample.
const MEAN_INTERVAL: f64 = 16.0;
/// A task that takes less is short: timing it would slow it down noticeably.
const SHORT_RUN_TIME: Duration = Duration::from_micros(1);
/// The maximum includes tasks that are not timed one by one if they take this long together.
const LONG_TIME: Duration = Duration::from_millis(1);
/// After this number of short tasks, only the sample is timed.
const SHORT_TASKS_BEFORE_SAMPLING: u32 = 1024;
/// Once there are this many groups, tasks that are queued at almost the same time share a group.
const GROUPS_BEFORE_SHARING: usize = 1024;
/// Tasks share a group if they are queued within this time, multiplied by the number of times that the groups contain [`GROUPS_BEFORE_SHARING`].
const RESOLUTION: Duration = Duration::from_micros(1);
/// Every task is timed again if fewer of the recent tasks were short. The difference allows for a few tasks that only
/// seem to take long, since their thread has waited for the lock of the state.
const MIN_SHORT_TASKS: u32 = SHORT_TASKS_BEFORE_SAMPLING - 64;

/// The times of the tasks of a pool. A task is identified by its position in the order of all tasks ever queued.
pub(super) struct Samples {
    /// The tasks in the queue that are timed, in the order of their positions.
    queued: VecDeque<QueuedGroup>,
    random: fastrand::Rng,
    /// The number of short tasks in the recent past. A task that takes longer outweighs four of them, and a long one
    /// all.
    short: u32,
    /// Every task is timed, and not only the sample.
    times_all: bool,
    pub(super) queue_wait: Histogram,
    pub(super) run_time: Histogram,
}

/// Tasks that were queued together.
struct QueuedGroup {
    positions: Range<usize>,
    queued: Instant,
    choice: Choice,
}

/// Which tasks of a group are in the sample.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    All,
    /// To be decided for each task when it is taken from the queue.
    Random,
}

/// A timed task that was taken from the queue.
pub(super) struct Sample {
    queued: Instant,
    is_chosen: bool,
}

/// The times of a task that has ended.
pub(super) struct Times {
    pub(super) sample: Sample,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

impl Samples {
    pub(super) fn new() -> Self {
        // Models must do the same each time.
        let random = match MODEL {
            true => fastrand::Rng::with_seed(1),
            false => fastrand::Rng::new(),
        };
        Self::with_random(random)
    }

    fn with_random(random: fastrand::Rng) -> Self {
        Self {
            queued: VecDeque::new(),
            random,
            short: 0,
            times_all: true,
            queue_wait: Histogram::default(),
            run_time: Histogram::default(),
        }
    }

    /// Tasks are queued in these positions. If there is only one, `is_chosen` determines whether it is in the sample.
    #[inline]
    pub(super) fn push(&mut self, positions: Range<usize>, is_chosen: bool) {
        if self.times_all || is_chosen || positions.len() > 1 {
            self.push_timed(positions, Instant::now());
        }
    }

    fn push_timed(&mut self, positions: Range<usize>, queued: Instant) {
        // If not every task is timed, a single one is here because it is in the sample.
        let choice = match positions.len() {
            1 if !self.times_all => Choice::All,
            _ => Choice::Random,
        };
        let resolution = self.resolution();
        if let Some(last) = self.queued.back_mut()
            && (last.choice, choice) == (Choice::Random, Choice::Random)
            && last.positions.end == positions.start
            && queued.saturating_duration_since(last.queued) < resolution
        {
            last.positions.end = positions.end;
            return;
        }
        self.queued.push_back(QueuedGroup {
            positions,
            queued,
            choice,
        });
    }

    /// Tasks that are queued within this time share a group. It grows with the number of groups, so that a long queue
    /// does not need much memory for its times. It is short compared with the time for which the tasks of such a queue
    /// wait.
    fn resolution(&self) -> Duration {
        RESOLUTION * (self.queued.len() / GROUPS_BEFORE_SHARING) as u32
    }

    /// The task in this position is taken from the queue. Positions are taken in order. Returns `None` if the task is
    /// not timed.
    #[inline]
    pub(super) fn pop(&mut self, position: usize) -> Option<Sample> {
        let group = self.queued.front_mut()?;
        if position < group.positions.start {
            return None;
        }
        let QueuedGroup { queued, choice, .. } = *group;
        group.positions.start = position + 1;
        if group.positions.start == group.positions.end {
            self.queued.pop_front();
        }
        let is_chosen = match choice {
            Choice::All => true,
            Choice::Random => self.random.f64() < 1.0 / MEAN_INTERVAL,
        };
        (is_chosen || self.times_all).then_some(Sample { queued, is_chosen })
    }

    /// A thread has waited for a task. After a long wait, tasks are timed until one of them was short.
    pub(super) fn thread_waited(&mut self, time: Duration) {
        if time >= LONG_TIME {
            self.short = self.short.min(SHORT_TASKS_BEFORE_SAMPLING - 1);
            self.times_all = true;
        }
    }

    /// Of the tasks in the queue, which ends at this position, only some are kept.
    pub(super) fn retain(&mut self, kept: &[bool], end: usize) {
        // The new position of each task is that of the first one kept, plus the number of those kept before it.
        let mut moved = Vec::with_capacity(kept.len() + 1);
        moved.push(end - kept.iter().filter(|kept| **kept).count());
        for kept in kept {
            moved.push(moved[moved.len() - 1] + usize::from(*kept));
        }
        let start = end - kept.len();
        self.queued.retain_mut(|QueuedGroup { positions, .. }| {
            *positions = moved[positions.start - start]..moved[positions.end - start];
            positions.start < positions.end
        });
        self.queued.shrink_to(2 * self.queued.len());
    }

    /// Returns `true` if almost all of the recent tasks were short.
    #[inline]
    pub(super) fn are_short(&self) -> bool {
        !self.times_all
    }

    /// Records the times of a task that has ended.
    #[inline]
    pub(super) fn record(&mut self, times: &Times) {
        let Times {
            sample,
            started,
            ended,
        } = times;
        // A thread reads the clock before it takes the lock, so a task may seem to start before it was queued.
        let wait = started.saturating_duration_since(sample.queued);
        let run = ended.saturating_duration_since(*started);
        if sample.is_chosen {
            self.queue_wait.record(wait);
            self.run_time.record(run);
        } else {
            self.queue_wait.raise_max(wait);
            self.run_time.raise_max(run);
        }
        self.weigh(run, 1);
    }

    /// Records the time of tasks that were not timed one by one.
    pub(super) fn record_lap(&mut self, lap: &Lap) {
        if lap.time >= LONG_TIME {
            self.run_time.raise_max(lap.time);
        }
        self.weigh(lap.time, lap.tasks);
    }

    /// Decides from the time that tasks took together whether every task is timed.
    fn weigh(&mut self, time: Duration, tasks: u32) {
        self.short = match time {
            time if time < SHORT_RUN_TIME * tasks => {
                SHORT_TASKS_BEFORE_SAMPLING.min(self.short + tasks)
            }
            time if time < LONG_TIME => self.short.saturating_sub(4 * tasks),
            _ => 0,
        };
        match self.short {
            SHORT_TASKS_BEFORE_SAMPLING => self.times_all = false,
            ..MIN_SHORT_TASKS => self.times_all = true,
            _ => {}
        }
    }
}

plain_thread_local! {
    // The number of tasks that this thread submits before the next one of the sample. `usize::MAX` before the first one.
    static SKIPS: Cell<usize> = Cell::new(usize::MAX);
}

/// Decides whether the next task that this thread submits is in the sample, as if a coin were tossed for each task.
#[inline]
pub(super) fn toss() -> bool {
    // Models must do the same each time.
    !MODEL && SKIPS.with(|skips| toss_with(skips, fastrand::f64))
}

#[inline]
fn toss_with(skips: &Cell<usize>, mut random: impl FnMut() -> f64) -> bool {
    if skips.get() == usize::MAX {
        skips.set(skip(random()));
    }
    match skips.get() {
        0 => skips.set(skip(random())),
        left => {
            skips.set(left - 1);
            return false;
        }
    }
    true
}

/// The number of tasks before the next one of the sample: geometrically distributed.
#[cold]
fn skip(random: f64) -> usize {
    ((1.0 - random).ln() / (1.0 - 1.0 / MEAN_INTERVAL).ln()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeded(seed: u64) -> Samples {
        Samples::with_random(fastrand::Rng::with_seed(seed))
    }

    /// A coin that is tossed for each task.
    struct Coin(Cell<usize>, fastrand::Rng);

    impl Coin {
        fn seeded(seed: u64) -> Self {
            Self(Cell::new(usize::MAX), fastrand::Rng::with_seed(seed))
        }

        fn toss(&mut self) -> bool {
            toss_with(&self.0, || self.1.f64())
        }
    }

    /// Queues a task and takes it, and records how long it has run if it is timed.
    fn run(samples: &mut Samples, coin: &mut Coin, position: usize, time: Duration) {
        samples.push(position..position + 1, coin.toss());
        let Some(sample) = samples.pop(position) else {
            return;
        };
        let started = sample.queued;
        samples.record(&Times {
            sample,
            started,
            ended: started + time,
        });
    }

    /// Samples of a pool whose recent tasks were all short.
    fn with_short_tasks(seed: u64) -> Samples {
        let mut samples = seeded(seed);
        samples.short = SHORT_TASKS_BEFORE_SAMPLING;
        samples.times_all = false;
        samples
    }

    #[test]
    fn one_task_in_sixteen_is_in_the_sample_however_tasks_are_queued() {
        const TASKS: usize = 160_000;
        for new in [seeded, with_short_tasks] {
            for group in [1, 7, TASKS] {
                let (mut samples, mut coin) = (new(1), Coin::seeded(1));
                for start in (0..TASKS).step_by(group) {
                    samples.push(start..(start + group).min(TASKS), coin.toss());
                }
                let chosen = (0..TASKS).filter_map(|position| samples.pop(position));
                let chosen = chosen.filter(|sample| sample.is_chosen).count();
                assert!((9_500..=10_500).contains(&chosen), "{chosen}");
                assert!(samples.queued.is_empty());
            }
        }
    }

    #[test]
    fn a_periodic_load_is_sampled_without_bias() {
        const TASKS: usize = 160_000;
        // Every second task is long, and every 16th is longer still.
        for period in [2, 16] {
            let (mut samples, mut coin) = (seeded(2), Coin::seeded(2));
            for position in 0..TASKS {
                let millis = if position % period == 0 { 100 } else { 1 };
                run(
                    &mut samples,
                    &mut coin,
                    position,
                    Duration::from_millis(millis),
                );
            }
            let long = samples.run_time.buckets().next_back().expect("a bucket").1;
            let share = long as f64 / samples.run_time.count() as f64;
            let expected = 1.0 / period as f64;
            assert!(
                (share / expected - 1.0).abs() < 0.1,
                "{share} of {expected}"
            );
        }
    }

    #[test]
    fn the_maximum_includes_tasks_that_are_not_in_the_sample() {
        let mut samples = seeded(3);
        let start = Instant::now();
        let sample = Sample {
            queued: start,
            is_chosen: false,
        };
        let [wait, run] = [1, 2].map(Duration::from_millis);
        samples.record(&Times {
            sample,
            started: start + wait,
            ended: start + wait + run,
        });
        assert_eq!(
            (samples.queue_wait.max(), samples.queue_wait.count()),
            (wait, 0)
        );
        assert_eq!((samples.run_time.max(), samples.run_time.count()), (run, 0));
    }

    #[test]
    fn every_task_is_timed_until_many_in_a_row_are_short() {
        let (mut samples, mut coin) = (seeded(4), Coin::seeded(4));
        for position in 0..SHORT_TASKS_BEFORE_SAMPLING as usize {
            assert!(samples.times_all);
            run(&mut samples, &mut coin, position, SHORT_RUN_TIME / 2);
        }
        assert!(!samples.times_all);
    }

    #[test]
    fn a_few_waits_for_the_lock_among_short_tasks_change_nothing() {
        let mut samples = with_short_tasks(9);
        for tasks in [10, 5] {
            let time = SHORT_RUN_TIME * tasks;
            samples.record_lap(&Lap { tasks, time });
            assert!(!samples.times_all);
        }
        let (tasks, time) = (2, SHORT_RUN_TIME * 2);
        samples.record_lap(&Lap { tasks, time });
        assert!(samples.times_all);
    }

    #[test]
    fn every_task_is_timed_while_a_quarter_are_not_short() {
        let (mut samples, mut coin) = (with_short_tasks(5), Coin::seeded(5));
        for position in 0..10 * SHORT_TASKS_BEFORE_SAMPLING as usize {
            // Three short tasks do not make up for a longer one.
            let time = if position % 4 == 0 {
                SHORT_RUN_TIME
            } else {
                SHORT_RUN_TIME / 2
            };
            run(&mut samples, &mut coin, position, time);
        }
        assert!(samples.times_all);
    }

    #[test]
    fn a_long_task_among_short_ones_is_in_the_maximum() {
        let mut samples = with_short_tasks(6);
        let mut lap = Lap {
            tasks: 16,
            time: SHORT_RUN_TIME,
        };
        samples.record_lap(&lap);
        assert_eq!(samples.run_time.max(), Duration::ZERO);
        assert!(!samples.times_all);
        lap.time = LONG_TIME;
        samples.record_lap(&lap);
        assert_eq!(samples.run_time.max(), LONG_TIME);
        assert!(samples.times_all, "the next one is timed alone");
    }

    #[test]
    fn tasks_are_timed_after_a_long_wait_until_one_was_short() {
        let mut samples = with_short_tasks(7);
        samples.thread_waited(LONG_TIME / 2);
        assert!(!samples.times_all);
        samples.thread_waited(LONG_TIME);
        for position in 0..2 {
            samples.push(position..position + 1, false);
            assert!(samples.times_all);
        }
        let sample = samples.pop(0).expect("it is timed");
        let started = sample.queued;
        samples.record(&Times {
            sample,
            started,
            ended: started,
        });
        assert!(!samples.times_all);
    }

    #[test]
    fn tasks_that_stay_in_the_queue_keep_their_times() {
        let mut samples = seeded(7);
        let start = Instant::now();
        let at = |group: u32| start + group * Duration::from_secs(1);
        for (group, positions) in [(0, 0..4), (1, 4..6), (2, 6..9)] {
            samples.push_timed(positions, at(group));
        }
        let popped =
            |samples: &mut Samples, position| samples.pop(position).map(|sample| sample.queued);
        assert_eq!(popped(&mut samples, 0), Some(at(0)));
        // Of the 8 tasks left, the first group keeps one, the second none, the third two.
        let kept = [false, true, false, false, false, true, false, true];
        samples.retain(&kept, 9);
        samples.push_timed(9..10, at(3));
        let times = (6..10).map(|position| popped(&mut samples, position));
        assert_eq!(
            times.collect::<Vec<_>>(),
            [0, 2, 2, 3].map(|group| Some(at(group)))
        );
    }

    #[test]
    fn a_task_that_is_not_timed_has_no_times() {
        let mut samples = with_short_tasks(8);
        samples.push(0..1, false);
        samples.push(1..2, true);
        let timed = (0..2).map(|position| samples.pop(position).is_some());
        assert!(timed.eq([false, true]));
    }

    #[test]
    fn a_long_queue_needs_little_memory_for_its_times() {
        let mut samples = seeded(10);
        let (start, tasks) = (Instant::now(), 200_000);
        let queued = |position: usize| start + position as u32 * Duration::from_nanos(100);
        for position in 0..tasks {
            samples.push_timed(position..position + 1, queued(position));
        }
        assert!(
            samples.queued.len() < tasks / 20,
            "{}",
            samples.queued.len()
        );
        let mut chosen = 0;
        for position in 0..tasks {
            let sample = samples.pop(position).expect("every task is timed");
            chosen += usize::from(sample.is_chosen);
            let error = queued(position).duration_since(sample.queued);
            let age = queued(position).duration_since(start);
            assert!(error <= age / 100, "{error:?} of {age:?}");
        }
        assert!((11_500..=13_500).contains(&chosen), "{chosen}");
    }
}
