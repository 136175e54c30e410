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
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what happens to ticks that no executor has handled in time. The default is [`Missed::Once`].
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets what happens at a tick if an earlier task of the schedule has not ended. The default is [`Overlap::Skip`].
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Delays each tick by a part of this time, so that many schedules do not fire at once. The delay depends only on the name of
    /// the schedule and on the tick, and it ends before the next tick. [`TaskContext::tick`](crate::durable::TaskContext::tick)
    /// returns the tick without the delay. The default is zero, and the maximum is a day.
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the options of the tasks, such as their queue, their [retries](SpawnOptions::retry) and their
    /// [timeout](SpawnOptions::timeout). An [id](SpawnOptions::id), a [key](SpawnOptions::key) or a [delay](SpawnOptions::delay) is
    /// refused, because the schedule determines them.
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    #[must_use]
    pub fn spawn(mut self, options: SpawnOptions) -> Self {
        self.spawn = options;
        self
    }

    /// Sets the revision of the definition. A definition is ignored if the store has one with a higher revision. So processes of an
    /// old release do not undo what a newer release has defined. The default is 0.
    ///
    /// # Examples
    ///
    /// See [`ScheduleOptions`].
    #[must_use]
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// A schedule cannot have these options. Returns the reason, and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let refused = [
            ("an id", self.spawn.id.is_some()),
            ("a key", self.spawn.key.is_some()),
            ("a delay", !self.spawn.delay.is_zero()),
        ];
        if let Some((what, _)) = refused.iter().find(|(_, is_set)| *is_set) {
            return Err(format!(
                "the tasks of a schedule cannot have {what} of their own: remove it from the options of the tasks"
            ));
        }
        match self.missed {
            Missed::All(0) => Err("`Missed::All(0)` stores no task: use `Missed::Skip`".into()),
            Missed::All(MAX_MISSED_TICKS..) => Err(format!(
                "`Missed::All` stores at most {} tasks: use a lower limit",
                MAX_MISSED_TICKS - 1
            )),
            Missed::All(_) if self.overlap != Overlap::Allow => Err(
                "`Missed::All` stores several tasks at once, of which this `Overlap` would keep only one: use `Overlap::Allow`".into(),
            ),
            _ if self.jitter > MAX_JITTER => {
                Err("the jitter is longer than a day: use at most a day".into())
            }
            _ => Ok(()),
        }
    }
}

/// The limit of [`Missed::All`] must be below this, so that the tasks fit into one request.
pub(crate) const MAX_MISSED_TICKS: u32 = 65;

pub(crate) const MAX_JITTER: Duration = Duration::from_secs(24 * 3600);

/// The treatment of the *missed* ticks of a schedule, after an outage or a pause.
///
/// A tick is missed if no executor has handled it within a minute, or before the next tick. So with a period of a few seconds,
/// ticks are missed even after a short delay. [Jitter](ScheduleOptions::jitter) does not count as a delay. These options do not
/// affect a tick that is not missed.
///
/// # Examples
///
/// ```
/// use throng::durable::{Missed, Overlap, ScheduleOptions};
///
/// // After an outage, an hourly schedule makes up for the last day.
/// let options = ScheduleOptions::new().missed(Missed::All(24)).overlap(Overlap::Allow);
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Missed {
    /// One task is stored, for the last tick that has passed. This is the default.
    #[default]
    Once,
    /// No task is stored for a missed tick.
    Skip,
    /// A task is stored for each tick that has passed, but at most for this number of the last ones (1 to 64). This needs
    /// [`Overlap::Allow`].
    All(u32),
}

/// The reaction to a tick of a schedule while an earlier task of the schedule has not ended. A dead letter counts as ended.
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
    /// No task is stored, and the tick counts as [skipped](crate::durable::ScheduleInfo::skipped). This is the default.
    #[default]
    Skip,
    /// Another task is stored. Both may run at once.
    Allow,
    /// If the earlier task has not started yet, it gets the payload and the tick of the new task, and the new tick counts as
    /// [skipped](crate::durable::ScheduleInfo::skipped). If the earlier task has started, another task is stored, and both may run
    /// at once.
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
