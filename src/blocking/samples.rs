//! [`Samples`]: which tasks are timed.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// One of so many tasks is timed: to look at the clock three times costs as much as a short task.
const ONE_IN: usize = 16;

/// When the tasks were queued that are timed, by their place among all that were ever queued.
pub(super) struct Samples {
    times: VecDeque<(usize, Instant)>,
    /// The first of those places. It is all that one looks at for other tasks.
    first: usize,
}

/// A task that is timed.
pub(super) struct Sample {
    pub(super) queued: Instant,
    pub(super) started: Instant,
}

impl Samples {
    pub(super) fn new() -> Self {
        Self {
            times: VecDeque::new(),
            first: usize::MAX,
        }
    }

    /// Tasks are queued in these places.
    #[inline]
    pub(super) fn queued(&mut self, places: Range<usize>) {
        let first = places.start.next_multiple_of(ONE_IN);
        if first < places.end {
            self.begin((first..places.end).step_by(ONE_IN));
        }
    }

    fn begin(&mut self, places: impl Iterator<Item = usize>) {
        let now = Instant::now();
        self.times.extend(places.map(|place| (place, now)));
        self.find_first();
    }

    /// The task in this place is taken from the queue.
    #[inline]
    pub(super) fn taken(&mut self, place: usize) -> Option<Sample> {
        if place != self.first {
            return None;
        }
        let (_, queued) = self.times.pop_front()?;
        self.find_first();
        let started = Instant::now();
        Some(Sample { queued, started })
    }

    /// Some were taken out of the middle of the queue: nobody knows any more who is in which place.
    pub(super) fn forget(&mut self) {
        self.times.clear();
        self.find_first();
    }

    fn find_first(&mut self) {
        self.first = self.times.front().map_or(usize::MAX, |(place, _)| *place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(samples: &mut Samples, places: Range<usize>) -> Vec<usize> {
        places
            .filter(|place| samples.taken(*place).is_some())
            .collect()
    }

    #[test]
    fn one_in_sixteen_is_timed_however_they_come() {
        let mut samples = Samples::new();
        for places in [0..1, 1..16, 16..56, 56..56] {
            samples.queued(places);
        }
        assert_eq!(timed(&mut samples, 0..20), [0, 16]);
        samples.queued(56..66);
        assert_eq!(timed(&mut samples, 20..66), [32, 48, 64]);
        assert!(samples.times.is_empty());
    }

    #[test]
    fn what_came_before_a_loss_is_not_timed() {
        let mut samples = Samples::new();
        samples.queued(0..40);
        samples.forget();
        samples.queued(40..70);
        assert_eq!(timed(&mut samples, 3..70), [48, 64]);
    }
}
