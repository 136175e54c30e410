//! Workflows: tasks that store their steps, and hold neither a permit nor a worker while they wait.
//!
//! A run records its results in *steps*, which the store keeps and which never change. A later run of the task reads them, and continues
//! after the last one. A run that must wait ends: it returns an error, which `?` passes on, and the task is *suspended* until a time, or
//! until it has a given number of steps. A signal is a step, too. The store compares the number of steps with the given one both when it
//! suspends the task and when it stores a signal, so no signal is missed.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::sleep;

use self::run_steps::{KnownStep, UsedName};
use super::failpoint::failpoint;
use super::store::{MAX_STEP_BYTES, NewStep, StepAnswer, StepKind, StepName};
use super::task_error::Next;
use super::{DurableError, StopReason, TaskContext, TaskError};

pub(crate) mod awaited;
mod children;
pub(crate) mod run_steps;
mod signals;
mod sleeps;
pub(crate) mod spawned_children;
mod steps;

/// The shortest wait that ends a run.
const MIN_SUSPENSION: Duration = Duration::from_secs(2);

/// The mean time after which a task whose step did not fit into the store runs again.
const FULL_SNOOZE: Duration = Duration::from_secs(10);

/// Returns the error of a run whose step was not stored. If the store has no space left, the run has not failed.
fn snoozed_if_full(error: DurableError) -> TaskError {
    let is_full = error.is_full();
    let mut error = TaskError::from(error);
    if is_full {
        error.next = Next::Snooze(FULL_SNOOZE.mul_f64(0.5 + fastrand::f64()));
    }
    error
}

/// A step that is to be stored.
type NamedValue = (StepName, Vec<u8>);

/// A step that a task has, or one for which it has no room.
type StoredOrFull = Result<KnownStep, NamedValue>;

impl<App> TaskContext<App> {
    /// Returns the name of a step of this run, and the step if an earlier run has stored it.
    async fn look_up(
        &self,
        kind: StepKind,
        name: &str,
    ) -> Result<(UsedName<'_>, Option<KnownStep>), TaskError> {
        let name = StepName::new(kind, name).map_err(|error| self.steps.fail(error))?;
        let name = self.steps.use_name(name)?;
        self.steps.load(self.client(), self.id()).await?;
        let known = self.steps.get(name.name());
        Ok((name, known))
    }

    /// Stores a step, unless the task has it already. Returns the step that the task has now.
    async fn store_step(&self, name: StepName, value: Vec<u8>) -> Result<KnownStep, TaskError> {
        match self.store_steps(vec![(name, value)]).await?.remove(0) {
            Ok(known) => Ok(known),
            Err((name, _)) => Err(self.steps.full(&name)),
        }
    }

    /// Stores steps, except those that the task has already. Returns, in the same order, the step that the task now has under each name, or
    /// the given step if the task has no room for it.
    async fn store_steps(&self, steps: Vec<NamedValue>) -> Result<Vec<StoredOrFull>, TaskError> {
        let new = steps.iter().map(|(name, value)| self.new_step(name, value));
        let new = new.collect::<Result<Vec<_>, _>>()?;
        let answers = self.client().engine().store_steps(self.id(), new).await;
        let answers = answers.map_err(snoozed_if_full)?;
        failpoint("step.after-store");
        let stored = steps.into_iter().zip(answers);
        let stored = stored.map(|((name, value), answer)| match answer {
            StepAnswer::Stored => Ok(Ok(self.steps.add(name, value))),
            StepAnswer::Found(value) => Ok(Ok(self.steps.add(name, value))),
            StepAnswer::Full => Ok(Err((name, value))),
            StepAnswer::Corrupt => Err(TaskError::retry(format!(
                "`{}` was not stored, since the steps of the task cannot be read",
                name.as_str()
            ))),
            StepAnswer::Refused => {
                self.lose_lease();
                let name = name.as_str();
                Err(TaskError::retry(format!(
                    "`{name}` was not stored, since another worker has the task"
                )))
            }
        });
        stored.collect()
    }

    fn new_step(&self, name: &StepName, value: &[u8]) -> Result<NewStep, TaskError> {
        if value.len() > MAX_STEP_BYTES {
            let (name, len) = (name.as_str(), value.len());
            return Err(self.steps.fail(format!(
                "the value of `{name}` has {len} bytes, and a store accepts at most {MAX_STEP_BYTES}: keep the data elsewhere and store a reference to it"
            )));
        }
        Ok(NewStep {
            id: self.id(),
            epoch: self.fencing_token(),
            name: name.clone(),
            value: value.to_vec(),
        })
    }

    /// Waits if the rest of the time is short. Otherwise, returns the error that ends the run and suspends the task for that time or,
    /// unless the step is a sleep, until the task has the step.
    async fn wait_for(&self, rest: Duration, step: &StepName) -> Result<(), TaskError> {
        if rest >= MIN_SUSPENSION {
            failpoint("wait.before-suspend");
            return Err(match StepName::split(step.as_str()) {
                Some((StepKind::Sleep, _)) => self.steps.suspend(rest, step),
                _ => self.steps.suspend_for(rest, &HashSet::from([step.clone()])),
            });
        }
        if rest.is_zero() {
            return Ok(());
        }
        let engine = self.client().engine();
        let Some(timers) = engine.runtime() else {
            return Err(DurableError::closed(&engine.store_name, Some(self.id())).into());
        };
        // The runtime of the run may have no timers.
        let pause = {
            let _entered = timers.enter();
            sleep(rest)
        };
        pause.await;
        Ok(())
    }

    fn lose_lease(&self) {
        self.stop(StopReason::LeaseLost);
    }
}
