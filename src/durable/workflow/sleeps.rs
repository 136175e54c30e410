//! Sleeps that outlast the run.

use std::time::{Duration, SystemTime};

use super::run_steps::{KnownStep, UsedName};
use crate::durable::clock::millis;
use crate::durable::store::{StepKind, StepName};
use crate::durable::{TaskContext, TaskError};

impl<App> TaskContext<App> {
    /// Sleeps for a time, in which the task holds neither a permit nor a worker.
    ///
    /// If the time is not over, this returns an error that ends the run; pass it on with `?`. The task is
    /// [delayed](crate::durable::Status::Delayed) meanwhile, and then runs again from its beginning: it finds its [steps](Self::step), and
    /// continues here. A sleep is not a failure, and resets the number of earlier failures, so it does not use up the
    /// [retries](crate::durable::DurableTask::RETRY). A wait of less than two seconds does not end the run.
    ///
    /// The time begins when the first run of the task reaches this sleep, and the clock of the store measures it. Each sleep of a task
    /// needs a name of its own. Within a run, several waits can be combined: if the run ends, the task continues when the first of them is
    /// over.
    ///
    /// If the run then returns another error, this one also determines when the task runs again. After an error for which it is
    /// [tried again](TaskError::retry), or is [snoozed](TaskError::snooze), it runs at the earlier of both times. It does not become a dead
    /// letter while it waits, not even after a [fatal](TaskError::fatal) error, unless a [step](Self::step) has failed beside the wait. If
    /// the run returns `Ok`, the task has succeeded.
    ///
    /// # Errors
    ///
    /// The time is not over, or one of the errors of [`step`](Self::step).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the sleep may have begun or not.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn mail(_: &str) -> Result<(), TaskError> { Ok(()) }
    ///
    /// const DAY: Duration = Duration::from_secs(24 * 3600);
    ///
    /// async fn onboard(cx: TaskContext<()>) -> Result<(), TaskError> {
    ///     cx.step("welcome", || mail("Welcome!")).await?;
    ///     cx.sleep("trial", 14 * DAY).await?;
    ///     cx.step("offer", || mail("Your trial is over.")).await
    /// }
    /// # let _ = onboard;
    /// ```
    pub async fn sleep(&self, name: &str, duration: Duration) -> Result<(), TaskError> {
        let (name, rest) = self.rest_of(StepKind::Sleep, name, || duration).await?;
        let waited = self.wait_for(rest, name.name()).await;
        name.keep_after(waited)
    }

    /// Sleeps until a time: see [`sleep`](Self::sleep). The first run of the task that comes to this sleep determines how long it takes.
    ///
    /// # Errors
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Cancel safety
    ///
    /// As [`sleep`](Self::sleep).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use throng::durable::{TaskContext, TaskError};
    /// # async fn mail(_: &str) -> Result<(), TaskError> { Ok(()) }
    ///
    /// async fn remind(cx: TaskContext<()>, event: SystemTime) -> Result<(), TaskError> {
    ///     cx.sleep_until("day before", event - Duration::from_secs(24 * 3600)).await?;
    ///     cx.step("reminder", || mail("It is tomorrow.")).await
    /// }
    /// # let _ = remind;
    /// ```
    pub async fn sleep_until(&self, name: &str, time: SystemTime) -> Result<(), TaskError> {
        let left = || time.duration_since(SystemTime::now()).unwrap_or_default();
        let (name, rest) = self.rest_of(StepKind::Sleep, name, left).await?;
        let waited = self.wait_for(rest, name.name()).await;
        name.keep_after(waited)
    }

    /// Returns what is left of a time, which begins when the first run of the task asks for it, and the name of its step.
    pub(super) async fn rest_of(
        &self,
        kind: StepKind,
        name: &str,
        duration: impl FnOnce() -> Duration,
    ) -> Result<(UsedName<'_>, Duration), TaskError> {
        let (name, known) = self.look_up(kind, name).await?;
        let step = match known {
            Some(step) => step,
            None => self.begin(name.name(), duration()).await?,
        };
        let duration: u64 = self.steps.decode(name.name(), &step)?;
        let rest = Duration::from_millis(duration).saturating_sub(step.age());
        Ok((name, rest))
    }

    async fn begin(&self, name: &StepName, duration: Duration) -> Result<KnownStep, TaskError> {
        let value = self.steps.encode(name, &millis(duration))?;
        self.store_step(name.clone(), value).await
    }
}
