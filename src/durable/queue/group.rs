//! [`GroupName`]: the name of a group of tasks. [`Groups`]: how a queue serves its groups.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The way in which a queue serves its groups: see [`QueueSettings::grouped`](super::QueueSettings::grouped).
///
/// A group consists of the tasks of a queue that were spawned with the same [`SpawnOptions::group`](super::super::SpawnOptions::group),
/// for example those of one customer. The groups take turns: one group starts up to [`quantum`](Self::quantum) tasks, and then the
/// next group does. So a group with many tasks does not delay the other groups.
///
/// # Examples
///
/// ```
/// use throng::durable::{Groups, QueueSettings};
///
/// // The tasks of each group start one after the other, in the order in which they were stored.
/// let settings = QueueSettings::new().grouped(Groups::new().max_running(1));
/// assert_ne!(settings, QueueSettings::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Groups {
    pub(crate) max_running: Option<u32>,
    pub(crate) quantum: u32,
}

impl Groups {
    /// Returns settings with no limit and a quantum of 1.
    ///
    /// # Examples
    ///
    /// See [`Groups`].
    pub fn new() -> Self {
        Self {
            max_running: None,
            quantum: 1,
        }
    }

    /// Sets the maximum number of tasks of each group that run at once, over all workers: at least 1. There is no maximum by
    /// default. The limit of the whole queue, [`QueueSettings::max_running`](super::QueueSettings::max_running), applies as well, and
    /// tasks count in the same way for both limits.
    ///
    /// With a limit of 1, the tasks of a group that have the same type, [version](super::super::DurableTask::VERSION) and
    /// [priority](super::Priority) start one after the other, in the order in which they were stored. While a task is
    /// [delayed](super::super::SpawnOptions::delay), or waits to be tried again, later tasks of its group start before it.
    ///
    /// # Examples
    ///
    /// See [`Groups`].
    #[must_use]
    pub fn max_running(mut self, max_running: u32) -> Self {
        self.max_running = Some(max_running);
        self
    }

    /// Sets the maximum number of tasks that a group starts before it is the next group's turn: at least 1, which is the default. With
    /// a larger quantum, the store does less work for each task, but a group may wait longer for its turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{Groups, QueueSettings};
    ///
    /// // Each group starts up to 10 tasks before the next group does.
    /// let settings = QueueSettings::new().grouped(Groups::new().quantum(10));
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn quantum(mut self, quantum: u32) -> Self {
        self.quantum = quantum;
        self
    }

    for_stores! {
        /// Returns the maximum number of tasks of each group that run at once, or `None` if there is no limit.
        #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
        fn running_limit(&self) -> Option<u32> {
            self.max_running
        }

        /// Returns the number of tasks that a group starts before it is the next group's turn.
        #[cfg(any(test, feature = "test-util", feature = "unstable-store"))]
        fn quantum_size(&self) -> u32 {
            self.quantum
        }
    }

    /// Returns the reason why these settings are not possible, and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.max_running, self.quantum) {
            (Some(0), _) => Err("`max_running` of the groups is 0: pause the queue instead, or set it to at least 1".into()),
            (_, 0) => Err("the quantum of the groups is 0: set it to at least 1".into()),
            _ => Ok(()),
        }
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(Arc<str>);

/// The maximum length of a name in bytes. Stores keep the length in one byte.
const MAX_BYTES: usize = 64;

impl GroupName {
    /// Returns the group with this name.
    ///
    /// # Errors
    ///
    /// This cannot be the name of a group. Returns the reason, and the remedy.
    pub fn new(name: &str) -> Result<Self, String> {
        match name.len() {
            1..=MAX_BYTES => Ok(Self(name.into())),
            0 => Err(
                "the name of a group is empty: spawn the task without a group, or name the group"
                    .into(),
            ),
            len => Err(format!(
                "the name of a group has {len} bytes, and at most {MAX_BYTES} are allowed: use a shorter one, such as a hash"
            )),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for GroupName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::new(&name)
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group {:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_may_have_any_characters() {
        for name in ["a", "user@example.org", "\u{fc} \0", &"n".repeat(64)] {
            assert_eq!(GroupName::new(name).unwrap().as_str(), name);
        }
        assert!(GroupName::new("").is_err());
        assert!(GroupName::new(&"n".repeat(65)).is_err());
    }

    #[test]
    fn impossible_settings_are_refused() {
        assert_eq!(Groups::new().max_running(1).quantum(8).check(), Ok(()));
        assert!(Groups::new().max_running(0).check().is_err());
        assert!(Groups::new().quantum(0).check().is_err());
    }
}
