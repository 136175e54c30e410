//! [`TopTab`]: the tabs of the screen.

/// The tabs of the screen, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopTab {
    Queues,
    Running,
    Dead,
    Workers,
    Types,
}

impl TopTab {
    pub(super) const ALL: [Self; 5] = [
        Self::Queues,
        Self::Running,
        Self::Dead,
        Self::Workers,
        Self::Types,
    ];

    /// Returns the next tab, which is the first one after the last.
    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queues => "Queues",
            Self::Running => "Running",
            Self::Dead => "Dead",
            Self::Workers => "Workers",
            Self::Types => "Types",
        }
    }

    /// Returns the titles of the columns.
    pub(super) fn titles(self) -> &'static [&'static str] {
        match self {
            Self::Queues => &["QUEUE", "WAITING", "RUNNING", "OLDEST", "WORKERS", "STATE"],
            Self::Running => &["ID", "TYPE", "QUEUE", "TIME", "FAILURES"],
            Self::Dead => &["ID", "TYPE", "REASON", "AGE", "ERROR"],
            Self::Workers => &["SESSION", "QUEUE", "STATE", "HOST", "PROGRAM", "TYPES"],
            Self::Types => &["TYPE", "QUEUE", "STARTED", "DONE", "DIED", "MEAN", "STATE"],
        }
    }
}
