//! [`Shares`]: decides from which of several queues a worker claims next.

/// The shares of queues in the tasks that a worker starts, by stride scheduling.
///
/// Each queue has a *virtual time*. It advances by the number of tasks that start, divided by the weight of the queue. The
/// queue with the lowest virtual time is next. So while several queues have tasks, the tasks start in proportion to the weights
/// of their queues.
///
/// A queue that has run out of tasks gets no advantage from that. When it has tasks again, its time is raised to the lowest time
/// of the queues that have had tasks all the time.
pub(super) struct Shares(Vec<Share>);

struct Share {
    weight: u32,
    /// The virtual time, in units of 2^-32.
    time: u128,
    /// After the last claim, the queue had no more tasks that may start.
    is_drained: bool,
}

impl Shares {
    pub(super) fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        let shares = weights.into_iter().map(|weight| Share {
            weight,
            time: 0,
            is_drained: true,
        });
        Self(shares.collect())
    }

    /// Returns the claimable queue from which to claim next.
    pub(super) fn next(&mut self, is_claimable: impl Fn(usize) -> bool) -> Option<usize> {
        let claimable = (0..self.0.len()).filter(|&queue| is_claimable(queue));
        let floor = self.floor(claimable.clone());
        for queue in claimable.clone() {
            let share = &mut self.0[queue];
            if share.is_drained {
                (share.time, share.is_drained) = (share.time.max(floor), false);
            }
        }
        claimable.min_by_key(|&queue| self.0[queue].time)
    }

    /// Returns the time to which the claimable queues are raised that have tasks again: the lowest time of the claimable queues
    /// that have had tasks all the time. If there are none, this is the highest time of all queues. A queue that is at its
    /// [maximum](crate::durable::ServedQueue::max_running), and therefore not claimable, may have that time.
    fn floor(&self, claimable: impl Iterator<Item = usize>) -> u128 {
        let busy = claimable.filter(|&queue| !self.0[queue].is_drained);
        let first = busy.map(|queue| self.0[queue].time).min();
        let last = self.0.iter().map(|share| share.time).max();
        first.or(last).unwrap_or_default()
    }

    /// Records that a claim has started this number of tasks, and whether the queue has no more that may start.
    pub(super) fn started(&mut self, queue: usize, tasks: usize, is_drained: bool) {
        let share = &mut self.0[queue];
        share.time += ((tasks as u128) << 32) / u128::from(share.weight);
        share.is_drained = is_drained;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims `want` tasks at a time, until this number of tasks have started. All the claimable queues have tasks. Returns the
    /// numbers of tasks that have started, by queue.
    fn start(shares: &mut Shares, claimable: &[usize], want: usize, tasks: usize) -> Vec<usize> {
        let mut started = vec![0; shares.0.len()];
        while started.iter().sum::<usize>() < tasks {
            let queue = shares.next(|queue| claimable.contains(&queue)).unwrap();
            shares.started(queue, want, false);
            started[queue] += want;
        }
        started
    }

    /// The wanted share, and the deviation in parts of a thousand.
    fn assert_share(started: &[usize], queue: usize, of: (usize, usize)) {
        let all: usize = started.iter().sum();
        let wanted = all * of.0 / of.1;
        let off = started[queue].abs_diff(wanted);
        assert!(off * 100 <= wanted, "{started:?}: {off} off {wanted}");
    }

    #[test]
    fn queues_start_tasks_in_proportion_to_their_weights() {
        for want in [1, 2, 7, 64, 256] {
            let mut shares = Shares::new([8, 1]);
            let started = start(&mut shares, &[0, 1], want, 900 * want);
            assert_share(&started, 0, (8, 9));
            assert_share(&started, 1, (1, 9));
        }
        let mut shares = Shares::new([3, 7, 1]);
        let started = start(&mut shares, &[0, 1, 2], 5, 11_000);
        assert_share(&started, 0, (3, 11));
        assert_share(&started, 1, (7, 11));
        assert_share(&started, 2, (1, 11));
    }

    #[test]
    fn nine_claims_are_eight_of_the_one_and_one_of_the_other() {
        let mut shares = Shares::new([8, 1]);
        for _ in 0..1_000 {
            assert_eq!(start(&mut shares, &[0, 1], 1, 9), [8, 1]);
        }
    }

    #[test]
    fn a_queue_without_tasks_does_not_make_up_for_it() {
        for want in [1, 256] {
            let mut shares = Shares::new([8, 1]);
            start(&mut shares, &[0, 1], want, 9 * want);
            // It is claimed from, and has nothing.
            shares.started(0, 0, true);
            start(&mut shares, &[1], want, 1_000_000);
            let started = start(&mut shares, &[0, 1], want, 900 * want);
            assert_share(&started, 0, (8, 9));
        }
    }

    /// All the permits of the one queue that has tasks are taken when others have tasks again.
    #[test]
    fn a_queue_at_its_maximum_is_not_overtaken_for_long() {
        let mut shares = Shares::new([1, 1, 1]);
        start(&mut shares, &[0], 1, 1_000_000);
        start(&mut shares, &[1, 2], 1, 100);
        let started = start(&mut shares, &[0, 1, 2], 1, 3_000);
        assert!(started[0] >= 1_000, "{started:?}");
    }

    #[test]
    fn without_a_claimable_queue_there_is_none() {
        assert_eq!(Shares::new([8, 1]).next(|_| false), None);
    }
}
