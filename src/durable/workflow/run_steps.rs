//! [`RunSteps`]: the steps of a task, as one of its runs knows them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::awaited::{self, AwaitedSteps};
use crate::durable::store::{MAX_STEPS, MAX_TOTAL_STEP_BYTES, StepName, StoredStep, Verdict};
use crate::durable::{DurableClient, TaskError, TaskId};
use crate::sync::{Mutex, lock};

/// The longest time for which a task is suspended that waits for a step. The step wakes it before; so this is only a safeguard.
const MAX_WAIT_FOR_STEP: Duration = Duration::from_secs(6 * 3600);

/// The longest time for which a run sleeps, so that it can be added to any instant. The next run sleeps for the rest.
const MAX_SLEEP: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The steps of a task, as one of its runs knows them, and what the run waits for.
pub(crate) struct RunSteps {
    /// The number of steps that the task had when it was claimed.
    claimed: u32,
    loaded: OnceCell<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The steps that the run has read or stored. A step that was stored by another, such as a signal that has just arrived, may be missing.
    steps: HashMap<String, KnownStep>,
    /// The names that the run has used.
    used: HashSet<StepName>,
    /// The children that the run has spawned, or has found.
    children: HashSet<TaskId>,
    wait: Option<RunWait>,
    /// An error that makes it pointless to run the task again.
    error: Option<String>,
}

/// What a run waits for: the earliest of all waits that it has asked for.
struct RunWait {
    until: Instant,
    /// The steps that end the wait, one wait after the other.
    steps: Vec<AwaitedSteps>,
}

/// A step that a run has read or stored.
#[derive(Clone, Debug)]
pub(super) struct KnownStep {
    pub(super) value: Vec<u8>,
    /// The time since it was stored, by the clock of the store.
    age: Duration,
    /// The time of that measurement.
    at: Instant,
}

/// A name that a run uses. When this is dropped, the run may use the name again.
pub(super) struct UsedName<'a> {
    steps: &'a RunSteps,
    name: StepName,
    is_kept: bool,
}

impl UsedName<'_> {
    pub(super) fn name(&self) -> &StepName {
        &self.name
    }

    /// Has the run never use the name again.
    pub(super) fn keep(mut self) -> StepName {
        self.is_kept = true;
        self.name.clone()
    }
}

impl Drop for UsedName<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            lock(&self.steps.state).used.remove(&self.name);
        }
    }
}

impl KnownStep {
    fn new(value: Vec<u8>, age: Duration) -> Self {
        let at = Instant::now();
        Self { value, age, at }
    }

    /// Returns the time since the step was stored.
    pub(super) fn age(&self) -> Duration {
        self.age.saturating_add(self.at.elapsed())
    }
}

impl RunSteps {
    /// Returns the steps of a task that had this number of them when it was claimed.
    pub(crate) fn new(claimed: u32) -> Self {
        Self {
            claimed,
            loaded: OnceCell::new(),
            state: Mutex::default(),
        }
    }

    /// Reads the steps that earlier runs have stored, the first time.
    pub(super) async fn load(&self, client: &DurableClient, id: TaskId) -> Result<(), TaskError> {
        if self.claimed == 0 {
            return Ok(());
        }
        let load = async || {
            let steps = client.ask(Some(id), |store| store.steps(id)).await?;
            self.read(steps)
        };
        self.loaded.get_or_try_init(load).await.copied()
    }

    fn read(&self, steps: Vec<StoredStep>) -> Result<(), TaskError> {
        let (found, claimed) = (steps.len(), self.claimed);
        if found < claimed as usize {
            return Err(TaskError::retry(format!(
                "the task had {claimed} steps when it was claimed, and the store has {found} of them"
            )));
        }
        let mut state = lock(&self.state);
        for step in steps {
            state
                .steps
                .insert(step.name, KnownStep::new(step.value, step.age));
        }
        Ok(())
    }

    /// Uses a name, which no other step of the run may have.
    pub(super) fn use_name(&self, name: StepName) -> Result<UsedName<'_>, TaskError> {
        let is_new = lock(&self.state).used.insert(name.clone());
        match is_new {
            true => Ok(UsedName {
                steps: self,
                name,
                is_kept: false,
            }),
            false => Err(self.fail(format!(
                "the run uses `{}` twice: each step of a task needs a name of its own",
                name.as_str()
            ))),
        }
    }

    pub(super) fn get(&self, name: &StepName) -> Option<KnownStep> {
        lock(&self.state).steps.get(name.as_str()).cloned()
    }

    /// Adds a step that the run has stored, or has found in the store.
    pub(super) fn add(&self, name: StepName, value: Vec<u8>) -> KnownStep {
        let step = KnownStep::new(value, Duration::ZERO);
        let mut state = lock(&self.state);
        let name = name.as_str().to_owned();
        state.steps.insert(name, step.clone());
        step
    }

    pub(super) fn encode<T: Serialize + ?Sized>(
        &self,
        name: &StepName,
        value: &T,
    ) -> Result<Vec<u8>, TaskError> {
        serde_json::to_vec(value).map_err(|error| {
            let name = name.as_str();
            self.fail(format!("the value of `{name}` cannot be encoded: {error}"))
        })
    }

    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        name: &StepName,
        step: &KnownStep,
    ) -> Result<T, TaskError> {
        serde_json::from_slice(&step.value).map_err(|error| {
            let name = name.as_str();
            self.fail(format!(
                "the stored value of `{name}` is not of the type that this program expects: {error}"
            ))
        })
    }

    // ===== Children =====

    pub(super) fn add_children(&self, children: &[TaskId]) {
        lock(&self.state).children.extend(children);
    }

    pub(super) fn is_child(&self, id: TaskId) -> bool {
        lock(&self.state).children.contains(&id)
    }

    /// Returns `true` if an earlier run has stored steps.
    pub(super) fn has_earlier(&self) -> bool {
        self.claimed > 0
    }

    // ===== How the run ends =====

    /// Returns the error with which the run ends because it waits. With `steps`, these steps end the wait, too.
    pub(super) fn suspend(&self, rest: Duration, steps: Option<AwaitedSteps>) -> TaskError {
        let rest = match steps {
            Some(_) => rest.min(MAX_WAIT_FOR_STEP),
            None => rest.min(MAX_SLEEP),
        };
        let until = Instant::now() + rest;
        let mut state = lock(&self.state);
        let wait = state.wait.get_or_insert_with(|| RunWait {
            until,
            steps: Vec::new(),
        });
        wait.until = wait.until.min(until);
        wait.steps.extend(steps);
        TaskError::wait()
    }

    /// Returns an error after which the task must not run again. It also ends the wait of the run: otherwise, the task would wait, only
    /// to fail.
    pub(super) fn fail(&self, error: String) -> TaskError {
        lock(&self.state).error = Some(error.clone());
        TaskError::fatal(error)
    }

    pub(super) fn full(&self, name: &StepName) -> TaskError {
        let name = name.as_str();
        self.fail(format!(
            "`{name}` is one step too many: a task has at most {MAX_STEPS} steps, of {MAX_TOTAL_STEP_BYTES} bytes with their names"
        ))
    }

    /// Returns the verdict on a run that has ended with an error, if the run waits.
    pub(crate) fn suspension(&self) -> Option<Verdict> {
        let state = lock(&self.state);
        let wait = state.wait.as_ref().filter(|_| state.error.is_none())?;
        // The run has looked at each step that it knows, so only others can end the wait.
        let further = wait.steps.iter().map(AwaitedSteps::number).min();
        Some(Verdict::Suspend {
            after: wait.until.saturating_duration_since(Instant::now()),
            until: further.map(|further| state.steps.len() as u32 + further),
            waits_for: awaited::encode(&wait.steps),
        })
    }

    /// Returns the error after which the task must not run again.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.state).error.clone()
    }
}
