//! [`Priority`]: how urgent a task is. [`PriorityTurns`]: decides which priority a claim takes from first.

use serde::{Deserialize, Serialize};

/// The urgency of a task, compared with the other tasks of its queue: see
/// [`SpawnOptions::priority`](super::super::SpawnOptions::priority).
///
/// Within a queue, tasks of a higher priority start first. A lower priority cannot starve. While `Normal` tasks wait, at least one
/// of 65 tasks that start is `Normal`. While `Low` tasks wait, at least one of 257 is `Low`. The tasks that all workers start are
/// counted together. (A claim takes several tasks at once, so such a task may start up to one claim later.) This holds among
/// workers that have registered the same types, since a worker takes only tasks that it can run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Tasks of this priority start before the others.
    High,
    /// The default.
    #[default]
    Normal,
    /// Tasks of this priority start after the others.
    Low,
}

impl Priority {
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];
}

/// After this number of tasks of other priorities, a `Normal` task starts.
pub(crate) const NORMAL_PERIOD: u64 = 64;
/// After this number of tasks of other priorities, a `Low` task starts.
pub(crate) const LOW_PERIOD: u64 = 256;

/// The maximum number of shares that a priority saves up while it has no tasks.
pub(crate) const MAX_SHARES: u64 = 8;

/// For each lower priority of a queue, the number of tasks of other priorities that have started since it had its share.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityTurns {
    /// The number of tasks of other priorities since the last share of `Normal`.
    pub since_normal: u64,
    /// The number of tasks of other priorities since the last share of `Low`.
    pub since_low: u64,
}

#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
impl PriorityTurns {
    /// Records that tasks of a priority have started.
    pub fn started(&mut self, priority: Priority, tasks: u64) {
        let count = |since: &mut u64, is_own, period| match is_own {
            true => *since = since.saturating_sub(tasks * period),
            false => *since = (*since + tasks).min(MAX_SHARES * period),
        };
        count(
            &mut self.since_normal,
            priority == Priority::Normal,
            NORMAL_PERIOD,
        );
        count(&mut self.since_low, priority == Priority::Low, LOW_PERIOD);
    }

    /// Returns the priorities in the order in which a claim looks for tasks, each with the maximum number of tasks that the claim
    /// takes. The shares of the lower priorities come first. A claim takes tasks of one priority only.
    pub fn order(self) -> [(Priority, usize); 5] {
        [
            (Priority::Low, (self.since_low / LOW_PERIOD) as usize),
            (
                Priority::Normal,
                (self.since_normal / NORMAL_PERIOD) as usize,
            ),
            (Priority::High, usize::MAX),
            (Priority::Normal, usize::MAX),
            (Priority::Low, usize::MAX),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims tasks while all priorities have tasks. Returns the numbers of tasks that have started, by priority.
    fn starts(claims: usize, want: usize) -> [usize; 3] {
        let (mut turns, mut starts) = (PriorityTurns::default(), [0; 3]);
        for _ in 0..claims {
            let mut left = want;
            for (priority, most) in turns.order() {
                let taken = left.min(most);
                turns.started(priority, taken as u64);
                starts[priority as usize] += taken;
                left -= taken;
            }
        }
        starts
    }

    #[test]
    fn a_lower_priority_gets_its_share() {
        for want in [1, 7, 64, 256] {
            let claims = 256 * 64 / want;
            let [high, normal, low] = starts(claims, want);
            let all = high + normal + low;
            assert!(normal * 70 >= all, "{want}: {normal} of {all}");
            assert!(low * 280 >= all, "{want}: {low} of {all}");
            assert!(high * 10 >= all * 9, "{want}: {high} of {all}");
        }
    }

    #[test]
    fn a_priority_without_tasks_saves_few_shares() {
        let mut turns = PriorityTurns::default();
        turns.started(Priority::High, 10_000);
        assert_eq!(turns.order()[0], (Priority::Low, 8));
        assert_eq!(turns.order()[1], (Priority::Normal, 8));
        turns.started(Priority::Low, 7);
        assert_eq!(turns.order()[0], (Priority::Low, 1));
        turns.started(Priority::Low, 9);
        assert_eq!(turns.order()[0], (Priority::Low, 0));
    }
}
