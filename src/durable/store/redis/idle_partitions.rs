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

/// The times at which a session looks at a partition that does not wake it, since the system was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub(super) until: Duration,
    /// The time at which the next schedule is due.
    pub(super) next_tick: Option<Duration>,
}

impl IdlePartitions {
    /// Records that the partition has sent a wake-up.
    pub(super) fn wake(&mut self, partition: usize) {
        self.leave(partition);
        self.woken |= 1 << partition;
    }

    /// Records that a request is about to be sent after which the session is not idle, unless the answer says so. A wake-up that arrives
    /// from now on may be one that the request has not seen.
    pub(super) fn leave(&mut self, partition: usize) {
        self.woken &= !(1 << partition);
        if let Some(rest) = self.rests.get_mut(partition) {
            *rest = None;
        }
    }

    /// Records the answer that the session is idle. A wake-up may have arrived before the answer.
    pub(super) fn rest(&mut self, partition: usize, rest: Rest) {
        if !self.is_woken(partition) {
            self.rests.resize(self.rests.len().max(partition + 1), None);
            self.rests[partition] = Some(rest);
        }
    }

    /// Records that messages may have been lost.
    pub(super) fn forget(&mut self) {
        self.rests.clear();
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
    };

    #[test]
    fn a_wake_up_ends_the_rest() {
        let mut idle = IdlePartitions::default();
        idle.rest(3, REST);
        assert!(idle.get(3).is_some() && idle.is_relied_on(3) && !idle.is_relied_on(2));
        idle.wake(3);
        assert!(idle.get(3).is_none() && idle.is_relied_on(3));
        idle.leave(3);
        assert!(!idle.is_relied_on(3));
    }

    /// The partition has gone idle and then woken the session, and the message is faster than the answer.
    #[test]
    fn a_wake_up_before_the_answer_counts() {
        let mut idle = IdlePartitions::default();
        idle.leave(63);
        idle.wake(63);
        idle.rest(63, REST);
        assert!(idle.get(63).is_none() && idle.is_woken(63));
    }

    /// A wake-up that has arrived still obliges the session.
    #[test]
    fn lost_messages_end_each_rest() {
        let mut idle = IdlePartitions::default();
        idle.rest(0, REST);
        idle.wake(1);
        idle.forget();
        assert!(idle.get(0).is_none() && idle.is_woken(1));
    }
}
