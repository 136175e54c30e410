//! [`Level`]: which queued job runs first.

/// The priority of a queued job. See [`SerialExecutor::submit_at`](crate::SerialExecutor::submit_at).
///
/// Levels are ordered: [`HIGH`](Self::HIGH) is the greatest. At most 16 jobs of higher levels overtake a job that is the
/// next of its own level. After that the job runs first, so no level starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(i8);

impl Level {
    /// Runs before all others.
    pub const HIGH: Self = Self(1);
    /// The default, and the level of every method that has no `level` argument.
    pub const NORMAL: Self = Self(0);
    /// Runs after all others.
    pub const LOW: Self = Self(-1);

    /// The number of jobs of higher levels that may overtake a job which is the next of its own level.
    pub(super) const MAX_OVERTAKES: usize = 16;

    /// The number of levels.
    pub(super) const COUNT: usize = 3;
    /// The rank of [`NORMAL`](Self::NORMAL).
    pub(super) const NORMAL_RANK: usize = 1;

    /// The user bits that a task of this level carries. Most tasks have none set.
    pub(super) fn user_bits(self) -> u8 {
        match self {
            Self::HIGH => 1,
            Self::LOW => 2,
            _ => 0,
        }
    }

    /// The rank of the level that these user bits stand for: 0 for the highest level.
    pub(super) fn rank(user_bits: u8) -> usize {
        match user_bits {
            1 => 0,
            2 => 2,
            _ => Self::NORMAL_RANK,
        }
    }
}
