//! Signals: values that others send to a task.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::run_steps::KnownStep;
use crate::durable::store::{
    MAX_STEP_BYTES, MAX_STEPS, MAX_TOTAL_STEP_BYTES, SignalAnswer, StepKind, StepName,
};
use crate::durable::{DurableClient, DurableError, TaskContext, TaskError, TaskId};

/// The value of a signal that has not arrived in time. It is not valid JSON, so no signal has this value.
const TIMED_OUT: &[u8] = b"";

impl<App> TaskContext<App> {
    /// Waits for the [signal](DurableClient::signal) with this name, and returns its value. Meanwhile, the task holds neither a permit nor
    /// a worker.
    ///
    /// If the signal has not arrived, this returns an error that ends the run; pass it on with `?`. The task runs again when a signal
    /// arrives: see [`sleep`](Self::sleep). A signal that arrives before the task waits for it is kept. Of several signals with a name, the
    /// first counts.
    ///
    /// # Errors
    ///
    /// - The signal has not arrived.
    /// - Its value is not a `T`, or one of the errors of [`step`](Self::step).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableError, TaskContext, TaskError, TaskId};
    /// async fn publish(cx: TaskContext<()>) -> Result<bool, TaskError> {
    ///     let is_approved: bool = cx.signal("approval").await?;
    ///     // ..
    ///     Ok(is_approved)
    /// }
    ///
    /// async fn approve(client: &DurableClient, task: TaskId) -> Result<(), DurableError> {
    ///     client.signal(task, "approval", &true).await?;
    ///     Ok(())
    /// }
    /// # let _ = (publish, approve);
    /// ```
    pub async fn signal<T: DeserializeOwned>(&self, name: &str) -> Result<T, TaskError> {
        let (name, known) = self.look_up(StepKind::Signal, name).await?;
        let name = name.keep();
        match known {
            Some(step) => self.steps.decode(&name, &step),
            None => Err(self
                .steps
                .suspend_for(Duration::MAX, &HashSet::from([name]))),
        }
    }

    /// Does the same as [`signal`](Self::signal), but waits at most for this time, which begins when the first run of the task asks for the
    /// signal. Returns `None` if the signal has not arrived by then: all later runs get the same answer, and a signal that arrives later is
    /// refused.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # use throng::durable::{TaskContext, TaskError};
    ///
    /// async fn publish(cx: TaskContext<()>) -> Result<bool, TaskError> {
    ///     let week = Duration::from_secs(7 * 24 * 3600);
    ///     // Nobody has objected.
    ///     Ok(cx.signal_within("approval", week).await?.unwrap_or(true))
    /// }
    /// # let _ = publish;
    /// ```
    pub async fn signal_within<T: DeserializeOwned>(
        &self,
        name: &str,
        duration: Duration,
    ) -> Result<Option<T>, TaskError> {
        let (signal, known) = self.look_up(StepKind::Signal, name).await?;
        let step = match known {
            Some(step) => step,
            None => {
                let (timeout, rest) = self.rest_of(StepKind::Timeout, name, || duration).await?;
                let waited = self.time_out(signal.name(), rest).await;
                // If the run may wait again, it may use both names.
                match timeout.keep_after(waited) {
                    Ok(step) => step,
                    error => return signal.keep_after(error.map(|_| None)),
                }
            }
        };
        let signal = signal.keep();
        match &*step.value {
            TIMED_OUT => Ok(None),
            _ => self.steps.decode(&signal, &step).map(Some),
        }
    }

    /// Waits for the rest of a time, and then for the signal no more. Returns the step that the task has instead of the signal, or the
    /// signal.
    async fn time_out(&self, signal: &StepName, rest: Duration) -> Result<KnownStep, TaskError> {
        self.wait_for(rest, signal).await?;
        // If the signal arrives at the same time, the store decides which comes first.
        self.store_step(signal.clone(), TIMED_OUT.to_vec()).await
    }
}

impl DurableClient {
    /// Sends a signal to a task, which a run of it [receives](TaskContext::signal). If the task is suspended because it waits for a signal,
    /// it runs again. Otherwise, the signal is kept until the task asks for it.
    ///
    /// Returns `false`, and changes nothing, if the task has received a signal with this name before, or has given up waiting for it. So it
    /// is safe to send a signal again.
    ///
    /// # Errors
    ///
    /// - There is no such task, or it has ended ([`is_expired`](DurableError::is_expired)). The signal may have ended it, if the first
    ///   answer of the store was lost.
    /// - The value cannot be encoded as JSON ([`is_encode`](DurableError::is_encode)), or has more than 64 KiB
    ///   ([`is_too_large`](DurableError::is_too_large)).
    /// - The name does not have 1 to 128 bytes, or the task has too many [steps](TaskContext::step)
    ///   ([`is_invalid`](DurableError::is_invalid)).
    /// - The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the signal may have been sent or not.
    ///
    /// # Examples
    ///
    /// See [`TaskContext::signal`].
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        task: TaskId,
        name: &str,
        value: &T,
    ) -> Result<bool, DurableError> {
        let name = StepName::new(StepKind::Signal, name).map_err(|error| self.invalid(error))?;
        let value = serde_json::to_vec(value)
            .map_err(|error| DurableError::encode(self.store_name(), task, error))?;
        if value.len() > MAX_STEP_BYTES {
            let store_name = self.store_name();
            return Err(DurableError::too_large(
                store_name,
                task,
                value.len(),
                MAX_STEP_BYTES,
            ));
        }
        let signal = self.ask(Some(task), |store| {
            store.signal(task, name.clone(), value.clone())
        });
        match signal.await? {
            SignalAnswer::Stored => Ok(true),
            SignalAnswer::Found => Ok(false),
            SignalAnswer::Absent => Err(DurableError::expired(self.store_name(), task)),
            SignalAnswer::Full => Err(self.invalid(format!(
                "task {task} has no room for the signal: it has at most {MAX_STEPS} steps, of {MAX_TOTAL_STEP_BYTES} bytes with their names. Send a smaller value, or divide the work of the task among children"
            ))),
        }
    }
}
