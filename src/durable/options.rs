//! [`SpawnOptions`]: how one task is stored.

use std::time::Duration;

use super::TaskId;

/// How one task is stored.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use throng::durable::{SpawnOptions, TaskId};
///
/// let tomorrow = SpawnOptions::new()
///     .id(TaskId::derive("reminder", b"user 7"))
///     .delay(Duration::from_secs(24 * 3600));
/// # drop(tomorrow);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    pub(crate) id: Option<TaskId>,
    pub(crate) delay: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) max_crashes: Option<u32>,
}

impl SpawnOptions {
    /// A new id, no delay, and what the type of the task says.
    pub fn new() -> Self {
        Self::default()
    }

    /// The task's id. If there is such a task, waiting, running or ended, as long as its end is
    /// kept, nothing is stored, and the handle is that task's.
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// How long the task waits before it may run.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How long the end of the task is kept, instead of
    /// [`RETENTION`](super::DurableTask::RETENTION). If it is zero, the end is not kept, and nobody can
    /// await the task. Otherwise, the end is kept for longer while no executor runs on the store.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets how many workers may die with the task before it becomes a dead letter: the last of them makes it
    /// one. Three by default. With 1, this takes a second death if the store cannot know whether the first
    /// worker ran the task.
    #[must_use]
    pub fn max_crashes(mut self, max_crashes: u32) -> Self {
        self.max_crashes = Some(max_crashes);
        self
    }
}
