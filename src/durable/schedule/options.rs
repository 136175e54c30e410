//! [`ScheduleOptions`]: the options of a schedule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable::SpawnOptions;

/// The options of a schedule: see [`DurableClient::schedule_with`](crate::durable::DurableClient::schedule_with).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use throng::durable::{Missed, Overlap, Priority, ScheduleOptions, SpawnOptions};
///
/// let options = ScheduleOptions::new()
///     .missed(Missed::Skip)
///     .overlap(Overlap::Allow)
///     .jitter(Duration::from_secs(30))
///     .spawn(SpawnOptions::new().queue("reports").priority(Priority::Low))
///     .revision(3);
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScheduleOptions {
    pub(crate) missed: Missed,
    pub(crate) overlap: Overlap,
    pub(crate) jitter: Duration,
    pub(crate) spawn: SpawnOptions,
    pub(crate) revision: u32,
}

impl ScheduleOptions {
    /// Returns the defaults: [`Missed::Once`], [`Overlap::Skip`], no jitter, the default options of tasks, and the revision 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what happens to times at which no worker was there.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets what happens at a time if the task of an earlier time has not ended.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Delays each task by a part of this time, so that many schedules do not fire at once. The part depends only on the
    /// name of the schedule and on the time at which it fires. The default is zero.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the options of the tasks. They cannot have an [id](SpawnOptions::id), a [key](SpawnOptions::key) or a
    /// [delay](SpawnOptions::delay): these belong to the schedule.
    #[must_use]
    pub fn spawn(mut self, options: SpawnOptions) -> Self {
        self.spawn = options;
        self
    }

    /// Sets the revision of the definition. A store ignores a definition whose revision is lower than that of the definition
    /// that it has. So processes of an old release do not undo what a newer release has defined. The default is 0.
    #[must_use]
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Returns the reason why these options are not possible, and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let refused = [
            ("an id", self.spawn.id.is_some()),
            ("a key", self.spawn.key.is_some()),
            ("a delay", !self.spawn.delay.is_zero()),
        ];
        if let Some((what, _)) = refused.iter().find(|(_, is_set)| *is_set) {
            return Err(format!(
                "the tasks of a schedule cannot have {what} of their own: leave it out"
            ));
        }
        match self.missed {
            Missed::All(0) => Err("`Missed::All(0)` runs no missed task: use `Missed::Skip`".into()),
            Missed::All(MAX_MISSED_TICKS..) => Err(format!(
                "`Missed::All` runs at most {} missed tasks: use a lower limit",
                MAX_MISSED_TICKS - 1
            )),
            Missed::All(_) if self.overlap != Overlap::Allow => Err(
                "`Missed::All` stores several tasks at once, of which only one would run: use `Overlap::Allow` with it".into(),
            ),
            _ if self.jitter > MAX_JITTER => {
                Err("the jitter is longer than a day: use a shorter one".into())
            }
            _ => Ok(()),
        }
    }
}

/// The number of missed ticks is below this, so that their tasks fit into one request.
const MAX_MISSED_TICKS: u32 = 65;

const MAX_JITTER: Duration = Duration::from_secs(24 * 3600);

/// What happens to *missed* times of a schedule: those that are more than a minute ago, or before the last one, when a
/// worker finds the schedule due.
///
/// # Examples
///
/// ```
/// use throng::durable::{Missed, Overlap, ScheduleOptions};
///
/// // After an outage, the hourly reports of the last day are made up for.
/// let options = ScheduleOptions::new().missed(Missed::All(24)).overlap(Overlap::Allow);
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Missed {
    /// One task is stored, for the last of them.
    #[default]
    Once,
    /// No task is stored.
    Skip,
    /// A task is stored for each of them, but at most for so many (up to 64) of the last ones. This needs [`Overlap::Allow`].
    All(u32),
}

/// What happens at a time of a schedule if the task of an earlier time has not ended. A dead letter has ended.
///
/// # Examples
///
/// ```
/// use throng::durable::{Overlap, ScheduleOptions};
///
/// let options = ScheduleOptions::new().overlap(Overlap::Allow);
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Overlap {
    /// No task is stored, and the time counts as [skipped](crate::durable::ScheduleInfo::skipped).
    #[default]
    Skip,
    /// Another task is stored. Both may run at once.
    Allow,
    /// If the earlier task still waits for a worker, it takes over the new time, and the new one counts as
    /// [skipped](crate::durable::ScheduleInfo::skipped). If the earlier task has started, another one is stored. So at most
    /// one waits.
    Replace,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::{Key, TaskId};

    #[test]
    fn options_that_a_schedule_cannot_have_are_refused() {
        let second = Duration::from_secs(1);
        let spawn = |options| ScheduleOptions::new().spawn(options).check();
        assert!(spawn(SpawnOptions::new().queue("q")).is_ok());
        assert!(spawn(SpawnOptions::new().id(TaskId::new())).is_err());
        assert!(spawn(SpawnOptions::new().key(Key::new("k"))).is_err());
        assert!(spawn(SpawnOptions::new().delay(second)).is_err());
        let all = |limit| ScheduleOptions::new().missed(Missed::All(limit));
        assert!(all(64).check().is_err());
        let allowed = |limit| all(limit).overlap(Overlap::Allow).check();
        assert!(allowed(0).is_err());
        assert!(allowed(64).is_ok());
        assert!(allowed(65).is_err());
        let jitter = |jitter| ScheduleOptions::new().jitter(jitter).check();
        assert!(jitter(MAX_JITTER).is_ok());
        assert!(jitter(MAX_JITTER + second).is_err());
    }
}
