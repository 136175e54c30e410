//! [`Samples`]: how long tasks wait and run.
//!
//! The maxima include every task. For the histograms a *sample* of the tasks is enough: each task is in it with the
//! same probability, independently of all others. A rule such as "every 16th task" would see the same kind of task
//! again and again when tasks come in a regular pattern.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::histogram::Histogram;
use crate::sync::MODEL;

/// On average, one task out of this number is in the sample.
const MEAN_INTERVAL: f64 = 16.0;

/// The times of the tasks of a pool. A task is identified by its position in the order of all tasks ever queued.
pub(super) struct Samples {
    /// The tasks that wait, in groups that were queued together: the end of each group, and when that was.
    queued: VecDeque<(usize, Instant)>,
    /// The position of the next task of the sample.
    next: usize,
    random: fastrand::Rng,
    pub(super) queue_wait: Histogram,
    pub(super) run_time: Histogram,
}

/// The times of a task that was taken from the queue.
pub(super) struct Sample {
    queued: Instant,
    /// The task is in the sample.
    is_chosen: bool,
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

    fn with_random(mut random: fastrand::Rng) -> Self {
        Self {
            queued: VecDeque::new(),
            next: skip(&mut random),
            random,
            queue_wait: Histogram::default(),
            run_time: Histogram::default(),
        }
    }

    /// Tasks in these positions were queued.
    #[inline]
    pub(super) fn push(&mut self, positions: Range<usize>, now: Instant) {
        self.queued.push_back((positions.end, now));
    }

    /// The task in this position is taken from the queue. Positions are taken in order.
    #[inline]
    pub(super) fn pop(&mut self, position: usize) -> Option<Sample> {
        let (end, queued) = *self.queued.front()?;
        if position + 1 == end {
            self.queued.pop_front();
        }
        // Tasks may have been removed from the queue, and the next task of the sample with them.
        let is_chosen = position >= self.next;
        if is_chosen {
            self.next = position + 1 + skip(&mut self.random);
        }
        Some(Sample { queued, is_chosen })
    }

    /// Of the tasks in the queue, which ends at this position, only some are kept.
    pub(super) fn retain(&mut self, kept: &[bool], end: usize) {
        let count = |group: &[bool]| group.iter().filter(|kept| **kept).count();
        let (mut left, mut old_end) = (kept, end - kept.len());
        let mut new_end = end - count(kept);
        for (group_end, queued) in std::mem::take(&mut self.queued) {
            let (group, others) = left.split_at(group_end - old_end);
            (left, old_end) = (others, group_end);
            let size = count(group);
            if size > 0 {
                new_end += size;
                self.queued.push_back((new_end, queued));
            }
        }
    }

    /// Records the times of a task that has ended.
    #[inline]
    pub(super) fn record(&mut self, sample: &Sample, started: Instant, ended: Instant) {
        // A thread reads the clock before it takes the lock, so a task may seem to start before it was queued.
        let wait = started.saturating_duration_since(sample.queued);
        let run = ended.saturating_duration_since(started);
        if sample.is_chosen {
            self.queue_wait.record(wait);
            self.run_time.record(run);
        } else {
            self.queue_wait.raise_max(wait);
            self.run_time.raise_max(run);
        }
    }
}

/// The number of tasks before the next one of the sample: geometrically distributed, as if a coin were tossed for
/// each task.
fn skip(random: &mut fastrand::Rng) -> usize {
    let uniform = 1.0 - random.f64();
    (uniform.ln() / (1.0 - 1.0 / MEAN_INTERVAL).ln()) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seeded(seed: u64) -> Samples {
        Samples::with_random(fastrand::Rng::with_seed(seed))
    }

    /// Pops a task, and returns whether it is in the sample and when it was queued.
    fn popped(samples: &mut Samples, position: usize) -> (bool, Instant) {
        let sample = samples.pop(position).expect("it was queued");
        (sample.is_chosen, sample.queued)
    }

    #[test]
    fn one_task_in_sixteen_is_in_the_sample_however_tasks_are_queued() {
        const TASKS: usize = 160_000;
        for group in [1, 7, TASKS] {
            let mut samples = seeded(1);
            for start in (0..TASKS).step_by(group) {
                samples.push(start..(start + group).min(TASKS), Instant::now());
            }
            let chosen = (0..TASKS).filter(|position| popped(&mut samples, *position).0);
            let chosen = chosen.count();
            assert!((9_500..=10_500).contains(&chosen), "{chosen}");
            assert!(samples.queued.is_empty());
        }
    }

    #[test]
    fn a_periodic_load_is_sampled_without_bias() {
        const TASKS: usize = 160_000;
        // Every second task is long, and every 16th is longer still.
        for period in [2, 16] {
            let mut samples = seeded(2);
            let start = Instant::now();
            for position in 0..TASKS {
                samples.push(position..position + 1, start);
                let sample = samples.pop(position).expect("it was queued");
                let millis = if position % period == 0 { 100 } else { 1 };
                samples.record(&sample, start, start + Duration::from_millis(millis));
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
        samples.record(&sample, start + wait, start + wait + run);
        assert_eq!(
            (samples.queue_wait.max(), samples.queue_wait.count()),
            (wait, 0)
        );
        assert_eq!((samples.run_time.max(), samples.run_time.count()), (run, 0));
    }

    #[test]
    fn tasks_that_stay_in_the_queue_keep_their_times() {
        let mut samples = seeded(4);
        let start = Instant::now();
        let at = |group: u32| start + group * Duration::from_secs(1);
        for (group, positions) in [(0, 0..4), (1, 4..6), (2, 6..9)] {
            samples.push(positions, at(group));
        }
        assert_eq!(popped(&mut samples, 0).1, at(0));
        // Of the 8 tasks left, the first group keeps one, the second none, the third two.
        let kept = [false, true, false, false, false, true, false, true];
        samples.retain(&kept, 9);
        samples.push(9..10, at(3));
        let times = (6..10).map(|position| popped(&mut samples, position).1);
        assert_eq!(times.collect::<Vec<_>>(), [0, 2, 2, 3].map(at));
    }
}
