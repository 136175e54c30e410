//! [`Level`]: how urgent a task is. [`LevelTurns`]: decides which level a claim takes from first.

use serde::{Deserialize, Serialize};

/// How urgent a task is, compared with the other tasks of its queue: see
/// [`SpawnOptions::level`](super::super::SpawnOptions::level).
///
/// Within a queue, tasks of a higher level start first. A lower level cannot starve: while its tasks wait, at least one of 65 tasks
/// that start is `Normal`, and one of 257 is `Low`, counted over all workers. (A claim takes several tasks at once, so such a
/// task may start up to one claim later.)
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Level {
    /// Starts before the other levels.
    High,
    /// The default.
    #[default]
    Normal,
    /// Starts after the other levels.
    Low,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];
}

/// After this number of tasks of other levels, a `Normal` one starts.
pub(crate) const NORMAL_PERIOD: u64 = 64;
/// After this number of tasks of other levels, a `Low` one starts.
pub(crate) const LOW_PERIOD: u64 = 256;

/// The number of shares that a level has at most, if it had no tasks for a while.
pub(crate) const MAX_SHARES: u64 = 8;

/// The numbers of tasks of other levels of a queue that have started since a level had its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LevelTurns {
    pub(crate) since_normal: u64,
    pub(crate) since_low: u64,
}

impl LevelTurns {
    /// Records that tasks of a level have started.
    pub(crate) fn started(&mut self, level: Level, tasks: u64) {
        let count = |since: &mut u64, is_own, period| match is_own {
            true => *since = since.saturating_sub(tasks * period),
            false => *since = (*since + tasks).min(MAX_SHARES * period),
        };
        count(
            &mut self.since_normal,
            level == Level::Normal,
            NORMAL_PERIOD,
        );
        count(&mut self.since_low, level == Level::Low, LOW_PERIOD);
    }

    /// Returns the levels, in the order in which a claim looks for tasks, and the maximum number of tasks that it takes: first the
    /// shares of the lower levels. A claim takes tasks of one level only.
    pub(crate) fn order(self) -> [(Level, usize); 5] {
        [
            (Level::Low, (self.since_low / LOW_PERIOD) as usize),
            (Level::Normal, (self.since_normal / NORMAL_PERIOD) as usize),
            (Level::High, usize::MAX),
            (Level::Normal, usize::MAX),
            (Level::Low, usize::MAX),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims tasks while all levels have tasks. Returns the numbers of tasks that have started, by level.
    fn starts(claims: usize, want: usize) -> [usize; 3] {
        let (mut turns, mut starts) = (LevelTurns::default(), [0; 3]);
        for _ in 0..claims {
            let mut left = want;
            for (level, most) in turns.order() {
                let taken = left.min(most);
                turns.started(level, taken as u64);
                starts[level as usize] += taken;
                left -= taken;
            }
        }
        starts
    }

    #[test]
    fn a_lower_level_gets_its_share() {
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
    fn a_level_without_tasks_saves_few_shares() {
        let mut turns = LevelTurns::default();
        turns.started(Level::High, 10_000);
        assert_eq!(turns.order()[0], (Level::Low, 8));
        assert_eq!(turns.order()[1], (Level::Normal, 8));
        turns.started(Level::Low, 7);
        assert_eq!(turns.order()[0], (Level::Low, 1));
        turns.started(Level::Low, 9);
        assert_eq!(turns.order()[0], (Level::Low, 0));
    }
}
