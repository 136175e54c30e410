//! [`IdlePartitions`]: the partitions in which a session is idle.

use std::time::Duration;

/// The partitions in which a session is idle. Each of them sends the session a message when it has a task, so turns need not visit it until
/// then.
#[derive(Clone, Debug, Default)]
pub(super) struct IdlePartitions {
    /// By the number of the partition.
    rests: Vec<Option<Rest>>,
    /// The partitions that have woken the session, and that no turn has visited since, as bits. If they have woken no other session, only
    /// this one knows of their tasks.
    woken: u64,
}

/// The times at which a session looks at a partition that does not wake it, as durations since the system was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub(super) until: Duration,
    /// The time at which the next schedule is due, until it was reported. The worker remembers it.
    pub(super) next_tick: Option<Duration>,
    /// The session could claim quarantined tasks, so none of them wait there.
    pub(super) takes_quarantined: bool,
}

impl IdlePartitions {
    /// Records that the partition has sent a wake-up.
    pub(super) fn wake(&mut self, partition: usize) {
        self.leave(partition);
        self.woken |= 1 << partition;
    }

    /// Records that a request is about to be sent after which the session is not idle, unless the answer says that it is. A wake-up that
    /// arrives from now on may be one that the request has not seen.
    pub(super) fn leave(&mut self, partition: usize) {
        self.woken &= !(1 << partition);
        if let Some(rest) = self.rests.get_mut(partition) {
            *rest = None;
        }
    }

    /// Records an answer. If the session is idle, a wake-up may have arrived before the answer. If it is not, the partition has sent all
    /// wake-ups before it received the request, which has passed them on.
    pub(super) fn answered(&mut self, partition: usize, rest: Option<Rest>) {
        match rest {
            None => self.leave(partition),
            Some(_) if self.is_woken(partition) => {}
            Some(_) => {
                self.rests.resize(self.rests.len().max(partition + 1), None);
                self.rests[partition] = rest;
            }
        }
    }

    /// Records that the session may claim quarantined tasks. They may wait where it could not claim them, and wake nobody.
    pub(super) fn take_quarantined(&mut self) {
        for partition in 0..self.rests.len() {
            if self.rests[partition].is_some_and(|rest| !rest.takes_quarantined) {
                self.wake(partition);
            }
        }
    }

    /// Records that messages may have been lost: each partition may have woken the session, even if an answer that is under way says
    /// that it is idle.
    pub(super) fn forget(&mut self) {
        self.rests.clear();
        self.woken = u64::MAX;
    }

    /// Returns the time at which the first schedule is due, of those that were not reported yet.
    pub(super) fn take_tick(&mut self) -> Option<Duration> {
        let rests = self.rests.iter_mut().flatten();
        rests.filter_map(|rest| rest.next_tick.take()).min()
    }

    pub(super) fn get(&self, partition: usize) -> Option<Rest> {
        self.rests.get(partition).copied().flatten()
    }

    pub(super) fn is_woken(&self, partition: usize) -> bool {
        self.woken & (1 << partition) != 0
    }

    /// Returns `true` if the partition may rely on this session to look for its tasks when it sends, or has sent, a message.
    pub(super) fn is_relied_on(&self, partition: usize) -> bool {
        self.is_woken(partition) || self.get(partition).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Rest = Rest {
        until: Duration::from_secs(9),
        next_tick: None,
        takes_quarantined: true,
    };

    #[test]
    fn a_wake_up_ends_the_rest() {
        let mut idle = IdlePartitions::default();
        idle.answered(3, Some(REST));
        assert!(idle.get(3).is_some() && idle.is_relied_on(3) && !idle.is_relied_on(2));
        idle.wake(3);
        assert!(idle.get(3).is_none() && idle.is_relied_on(3));
        idle.leave(3);
        assert!(!idle.is_relied_on(3));
    }

    /// The session has gone idle in the partition, which has then woken it, and the message is faster than the answer.
    #[test]
    fn a_wake_up_before_the_answer_counts() {
        let mut idle = IdlePartitions::default();
        idle.leave(63);
        idle.wake(63);
        idle.answered(63, Some(REST));
        assert!(idle.get(63).is_none() && idle.is_woken(63));
    }

    /// The script has passed on what had woken the session before.
    #[test]
    fn a_wake_up_before_the_answer_of_a_busy_session_is_over() {
        let mut idle = IdlePartitions::default();
        idle.leave(2);
        idle.wake(2);
        idle.answered(2, None);
        assert!(!idle.is_relied_on(2));
    }

    /// Any partition may have woken the session, also one whose answer has not arrived yet.
    #[test]
    fn lost_messages_may_be_wake_ups() {
        let mut idle = IdlePartitions::default();
        idle.answered(0, Some(REST));
        idle.leave(1);
        idle.forget();
        idle.answered(1, Some(REST));
        for partition in [0, 1] {
            assert!(idle.get(partition).is_none() && idle.is_relied_on(partition));
        }
    }

    #[test]
    fn a_tick_is_reported_once() {
        let mut idle = IdlePartitions::default();
        for (partition, tick) in [(0, 5), (2, 4)] {
            let next_tick = Some(Duration::from_secs(tick));
            idle.answered(partition, Some(Rest { next_tick, ..REST }));
        }
        assert_eq!(idle.take_tick(), Some(Duration::from_secs(4)));
        assert_eq!(idle.take_tick(), None);
        assert!(idle.get(0).is_some());
    }
}
