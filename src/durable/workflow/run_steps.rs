//! [`RunSteps`]: the steps of a task, as one of its runs knows them.

use std::any::type_name;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::awaited::{self, AwaitedSteps};
use super::spawned_children::SpawnedChildren;
use crate::durable::store::{
    Claimed, MAX_BYTES_WITH_OUTPUTS, MAX_CHILDREN, MAX_STEPS, MAX_TOTAL_STEP_BYTES, StepKind,
    StepName, StepWait, StoredStep, Verdict,
};
use crate::durable::task_error::Next;
use crate::durable::{DurableClient, TaskError, TaskId};
use crate::sync::{Mutex, lock};

/// The longest time for which a task that waits for a step is suspended. The step wakes it earlier, so this is only a safeguard.
const MAX_WAIT_FOR_STEP: Duration = Duration::from_secs(6 * 3600);

/// The longest time for which a run sleeps, so that it can be added to any instant. The next run sleeps for the rest.
const MAX_SLEEP: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The steps of a task, as one of its runs knows them, and what the run waits for.
pub(crate) struct RunSteps {
    /// The number of steps that the task had when it was claimed.
    claimed: u32,
    /// `true` if nothing shows that the task has run before, since it was stored or last suspended.
    is_first_run: bool,
    /// The way in which the last wait of the task has ended.
    wait: StepWait,
    loaded: OnceCell<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The steps that the run has read or stored. A step that was stored by another, such as a signal that has just arrived, may be
    /// missing.
    steps: HashMap<String, KnownStep>,
    /// The ends of children for which the task has no room. They do not count as steps.
    unstored: HashMap<String, KnownStep>,
    /// The names that the run has used.
    used: HashSet<StepName>,
    /// The children that the run has spawned, or has found.
    children: HashSet<TaskId>,
    /// The numbers of children that the run has begun to spawn, by the name of the step that records them.
    reserved: HashMap<StepName, u64>,
    wait: Option<RunWait>,
    /// `true` if a step has failed, so the error of the run may be that of the step.
    has_failed_step: bool,
    /// An error that makes it pointless to run the task again.
    error: Option<String>,
    /// `true` if the run has found the end of a child which had not woken the task.
    has_late_child: bool,
}

/// The waits that a run has asked for: the task runs again when the first of them is over.
struct RunWait {
    until: Instant,
    /// The number of steps of the task that ends the wait.
    steps: Option<u32>,
    /// The steps for which the run waits: an item for each wait.
    awaited: Vec<AwaitedSteps>,
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

    /// Reserves the name until the run ends.
    pub(super) fn keep(mut self) -> StepName {
        self.is_kept = true;
        self.name.clone()
    }

    /// Does the same if a wait is over or ends the run, and passes on the result of the wait. After another error, the run may wait again.
    pub(super) fn keep_after<T>(self, waited: Result<T, TaskError>) -> Result<T, TaskError> {
        let is_used = match &waited {
            Ok(_) => true,
            Err(error) => error.next == Next::Wait,
        };
        if is_used {
            self.keep();
        }
        waited
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
    /// Returns the steps of a claimed task.
    pub(crate) fn new(claimed: &Claimed) -> Self {
        Self {
            claimed: claimed.steps,
            is_first_run: claimed.failures == 0 && claimed.crashes == 0 && claimed.lost == 0,
            wait: claimed.wait,
            loaded: OnceCell::new(),
            state: Mutex::default(),
        }
    }

    /// Begins another try of the run: it knows the steps of the tries before, and may use their names again.
    #[cfg(feature = "tower")]
    pub(crate) fn begin_try(&self) {
        let mut state = lock(&self.state);
        state.used.clear();
        state.wait = None;
        state.has_failed_step = false;
        state.error = None;
    }

    /// Reads the steps that earlier runs have stored, the first time.
    pub(super) async fn load(&self, client: &DurableClient, id: TaskId) -> Result<(), TaskError> {
        if self.claimed == 0 {
            return Ok(());
        }
        let load = || self.read_all(client, id);
        self.loaded.get_or_try_init(load).await.copied()
    }

    /// Reads the steps again, unless this is the first run of the task.
    pub(super) async fn reload(&self, client: &DurableClient, id: TaskId) -> Result<(), TaskError> {
        match self.is_first_run {
            true => Ok(()),
            false => self.read_all(client, id).await,
        }
    }

    async fn read_all(&self, client: &DurableClient, id: TaskId) -> Result<(), TaskError> {
        let steps = client.ask(Some(id), |store| store.steps(id)).await?;
        self.read(steps)
    }

    fn read(&self, steps: Vec<StoredStep>) -> Result<(), TaskError> {
        let (found, claimed) = (steps.len(), self.claimed);
        if found < claimed as usize {
            return Err(TaskError::retry(format!(
                "the task had {claimed} steps when it was claimed, and the store now has only {found}: the task is tried again"
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
        lock(&self.state).get(name).cloned()
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
            self.fail(format!(
                "the value of `{name}` cannot be encoded as JSON: {error}"
            ))
        })
    }

    /// Returns an error if a value that is to be stored would not be a `T` when a later run reads it.
    pub(super) fn check_output<T: DeserializeOwned>(
        &self,
        name: &StepName,
        value: &[u8],
    ) -> Result<(), TaskError> {
        let checked = serde_json::from_slice::<T>(value).map(drop);
        checked.map_err(|error| {
            let (name, expected) = (name.as_str(), type_name::<T>());
            self.fail(format!(
                "the output of `{name}` was not stored, since no run could read it: its JSON is not of the type `{expected}`: {error}"
            ))
        })
    }

    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        name: &StepName,
        step: &KnownStep,
    ) -> Result<T, TaskError> {
        serde_json::from_slice(&step.value).map_err(|error| {
            let (name, expected) = (name.as_str(), type_name::<T>());
            self.fail(format!(
                "the stored value of `{name}` is not of the type `{expected}`, which this program expects: {error}. If a newer program has \
                 changed the type, let it also read the stored value, or use a new name, with which a step runs again. Then replay the \
                 dead letter"
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

    /// Reserves this number of children for a name. The run keeps the reservation even if it then fails to spawn them, since some may be
    /// stored. If the task would have too many children, returns the number of the others as an error.
    pub(super) fn reserve_children(&self, name: &StepName, count: u64) -> Result<(), u64> {
        let mut state = lock(&self.state);
        let others = state.children_beside(name);
        if others.saturating_add(count) > u64::from(MAX_CHILDREN) {
            return Err(others);
        }
        let reserved = state.reserved.entry(name.clone()).or_default();
        *reserved = count.max(*reserved);
        Ok(())
    }

    /// Returns the number of bytes that the ends of children, with their names, may have with their outputs.
    pub(super) fn room_for_outputs(&self) -> usize {
        let state = lock(&self.state);
        let sizes = state
            .steps
            .iter()
            .map(|(name, step)| name.len() + step.value.len());
        MAX_BYTES_WITH_OUTPUTS.saturating_sub(sizes.sum())
    }

    /// Adds the end of a child for which the task has no room, so that this run knows it.
    pub(super) fn add_unstored(&self, name: &StepName, value: Vec<u8>) {
        let step = KnownStep::new(value, Duration::ZERO);
        let mut state = lock(&self.state);
        state.unstored.insert(name.as_str().to_owned(), step);
    }

    /// Records that a child has ended, and that the task has no step of it.
    pub(super) fn add_late_child(&self) {
        lock(&self.state).has_late_child = true;
    }

    /// Returns `true` if the time has made the task due, although what it was waiting for had come.
    pub(crate) fn was_woken_late(&self) -> bool {
        match self.wait {
            StepWait::Over => false,
            StepWait::TimedOut => lock(&self.state).has_late_child,
            StepWait::Missed => true,
        }
    }

    // ===== The end of the run =====

    /// Returns the error with which the run ends because it sleeps.
    pub(super) fn suspend(&self, rest: Duration, sleep: &StepName) -> TaskError {
        let mut state = lock(&self.state);
        let wait = state.wait(rest.min(MAX_SLEEP));
        wait.awaited.push(AwaitedSteps::Sleep(sleep.clone()));
        TaskError::wait()
    }

    /// Returns the error with which the run ends because it waits until the task has all of these steps.
    pub(super) fn suspend_for(&self, rest: Duration, names: &HashSet<StepName>) -> TaskError {
        let mut state = lock(&self.state);
        let is_missing = |name: &&StepName| state.get(name).is_none();
        let missing: Vec<_> = names.iter().filter(is_missing).collect();
        // Each missing step comes in addition to those that the run knows now. Steps that the run finds later do not raise this number: one
        // of them may be a missing one.
        let steps = (state.steps.len() + missing.len()) as u32;
        let awaited = AwaitedSteps::new(&missing);
        let wait = state.wait(rest.min(MAX_WAIT_FOR_STEP));
        wait.steps = Some(wait.steps.map_or(steps, |before| before.min(steps)));
        wait.awaited.push(awaited);
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
            "`{name}` has no room: a task has at most {MAX_STEPS} steps, of {MAX_TOTAL_STEP_BYTES} bytes with their names. Divide the work among children"
        ))
    }

    /// Remembers that a step has failed with this error, unless the step itself waits.
    pub(super) fn add_failure(&self, error: &TaskError) {
        if error.next != Next::Wait {
            lock(&self.state).has_failed_step = true;
        }
    }

    /// Returns the verdict on a run that has ended with an error, if the run waits. It does not wait if a step has failed beside a wait, or
    /// after a wait that the run has ignored.
    pub(crate) fn suspension(&self, next: Next) -> Option<Verdict> {
        let state = lock(&self.state);
        if state.has_failed_step && next != Next::Wait {
            return None;
        }
        let wait = state.wait.as_ref().filter(|_| state.error.is_none())?;
        Some(Verdict::Suspend {
            after: wait.until.saturating_duration_since(Instant::now()),
            until: wait.steps,
            waits_for: awaited::encode(&wait.awaited),
        })
    }

    /// Returns the error after which the task must not run again.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.state).error.clone()
    }
}

impl State {
    fn get(&self, name: &StepName) -> Option<&KnownStep> {
        let name = name.as_str();
        self.steps.get(name).or_else(|| self.unstored.get(name))
    }

    /// Returns the number of children under other names: those that were spawned, as far as this run knows, and those that the run has
    /// begun to spawn.
    fn children_beside(&self, name: &StepName) -> u64 {
        let is_spawn = |name: &str| matches!(StepName::split(name), Some((StepKind::Spawn, _)));
        let spawned = self
            .steps
            .iter()
            .filter(|(other, _)| is_spawn(other) && *other != name.as_str())
            .filter_map(|(_, step)| serde_json::from_slice::<SpawnedChildren>(&step.value).ok());
        let reserved = self
            .reserved
            .iter()
            .filter(|(other, _)| *other != name && !self.steps.contains_key(other.as_str()));
        let counts = spawned
            .map(|it| it.count)
            .chain(reserved.map(|(_, count)| *count));
        counts.fold(0, u64::saturating_add)
    }

    /// Adds a wait, which is over after a time. Returns what the run waits for now.
    fn wait(&mut self, rest: Duration) -> &mut RunWait {
        let until = Instant::now() + rest;
        let wait = self.wait.get_or_insert_with(|| RunWait {
            until,
            steps: None,
            awaited: Vec::new(),
        });
        wait.until = wait.until.min(until);
        wait
    }
}
