//! Children: tasks that a task spawns, and whose ends it waits for.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::spawned_children::SpawnedChildren;
use crate::durable::failpoint::failpoint;
use crate::durable::store::{
    ChildEnd, MAX_BATCH_TASKS, MAX_CHILDREN, MAX_STEP_BYTES, StepKind, StepName, TaskState,
};
use crate::durable::task::TaskNames;
use crate::durable::{DurableError, DurableHandle, DurableTask, TaskContext, TaskError, TaskId};

impl<App> TaskContext<App> {
    /// Spawns tasks as the *children* of this task, and returns their handles, for [`join`](Self::join).
    ///
    /// The children are spawned once, whatever happens to the runs of this task. If an earlier run has spawned them, `tasks` is ignored,
    /// and the handles are those of the children of that run. A child has the options of its type, but its result is kept for at least ten
    /// minutes. Cancelling this task does not cancel its children.
    ///
    /// In two cases, children may be spawned again, and run twice: by a run that has lost its lease, if their results are no longer kept;
    /// and by the next run, if a worker dies before it has recorded that it has spawned them, and a deployment then moves their type to
    /// another queue.
    ///
    /// # Errors
    ///
    /// - a [fatal](TaskError::fatal) error if the task would have more than 4,096 children in all, including those that the run is spawning
    ///   at the same time; if a task cannot be encoded; or one of the fatal errors of [`step`](Self::step);
    /// - an error after which the task is tried again if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the children may be stored. The next run stores the others.
    ///
    /// # Examples
    ///
    /// See [`join`](Self::join).
    pub async fn spawn_all<T: DurableTask>(
        &self,
        name: &str,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<DurableHandle<T::Output>>, TaskError> {
        let tasks: Vec<T> = tasks.into_iter().collect();
        let (step, known) = self.look_up(StepKind::Spawn, name).await?;
        // The number of steps that the store gave when it was claimed may be too low, if rows of the store are lost.
        let known = match known {
            Some(known) => Some(known),
            None => {
                self.steps.reload(self.client(), self.id()).await?;
                self.steps.get(step.name())
            }
        };
        let spawned = match known {
            Some(known) => self.steps.decode(step.name(), &known)?,
            None => self.spawn_children(name, step.name(), tasks).await?,
        };
        let step = step.keep();
        if !TaskNames::of::<T>().contains(&spawned.name) {
            let (step, found, expected) = (step.as_str(), &spawned.name, T::NAME);
            return Err(self.steps.fail(format!(
                "an earlier run has spawned children of the type `{found}` as `{step}`, and this one expects `{expected}`: use a new name"
            )));
        }
        let ids = self.child_ids(name, &spawned)?;
        self.steps.add_children(&ids);
        let handles = ids.into_iter().map(|id| self.client().attach::<T>(id));
        Ok(handles.collect())
    }

    /// Spawns those tasks that have not ended yet.
    async fn spawn_children<T: DurableTask>(
        &self,
        name: &str,
        step: &StepName,
        tasks: Vec<T>,
    ) -> Result<SpawnedChildren, TaskError> {
        let count = tasks.len() as u64;
        if let Err(others) = self.steps.reserve_children(step, count) {
            let name = step.as_str();
            return Err(self.steps.fail(format!(
                "`{name}` has {count} tasks, and the task has {others} children: it has at most {MAX_CHILDREN} in all. Spawn them from several tasks"
            )));
        }
        let spawned = SpawnedChildren {
            count,
            name: T::NAME.to_owned(),
            queue: T::QUEUE.map(str::to_owned),
        };
        let tasks = tasks.into_iter().zip(self.child_ids(name, &spawned)?);
        // The result of a child that has ended may not be kept any more, so its id may be free.
        let new = tasks.filter(|(_, id)| self.steps.get(&StepName::of_child(*id)).is_none());
        self.client()
            .spawn_children(self.id(), new.collect())
            .await?;
        failpoint("children.after-spawn");
        let value = self.steps.encode(step, &spawned)?;
        let stored = self.store_step(step.clone(), value).await?;
        self.steps.decode(step, &stored)
    }

    fn child_ids(&self, name: &str, spawned: &SpawnedChildren) -> Result<Vec<TaskId>, TaskError> {
        let store = &*self.client().engine().store;
        let ids = spawned.ids(store, self.id(), name);
        ids.map_err(|reason| self.steps.fail(reason))
    }

    /// Waits for [children](Self::spawn_all) of this task, and returns their results, in the order of the handles. Meanwhile, the task
    /// holds neither a permit nor a worker.
    ///
    /// The result of a child that has failed for good, or was cancelled, is an error in the list. So a failed child does not end the
    /// wait for the others, and the run decides what the failure means. The first end of a child counts: a replay of its dead letter does
    /// not change the result.
    ///
    /// If a child has not ended, this returns an error that ends the run; pass it on with `?`. The task runs again when all of them have
    /// ended: see [`sleep`](Self::sleep).
    ///
    /// # Errors
    ///
    /// - A child has not ended.
    /// - A [fatal](TaskError::fatal) error if a handle is not that of a child that this run has spawned or found.
    /// - The store does not answer.
    ///
    /// The result of a child [`is_too_large`](DurableError::is_too_large) if its output has more than 64 KiB, or if the steps of this task
    /// would have more than 1 MiB with it. In the latter case, the error of a dead child is left out, too.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableTask, TaskContext, TaskError};
    /// #[derive(Serialize, Deserialize)]
    /// struct Fetch(String);
    /// # impl DurableTask for Fetch { const NAME: &'static str = "fetch"; type Output = u64; }
    ///
    /// /// Returns the size of all pages that can be fetched.
    /// async fn crawl(cx: TaskContext<()>, urls: Vec<String>) -> Result<u64, TaskError> {
    ///     let pages = cx.spawn_all("page", urls.into_iter().map(Fetch)).await?;
    ///     let sizes = cx.join(&pages).await?;
    ///     Ok(sizes.into_iter().flatten().sum())
    /// }
    /// # let _ = crawl;
    /// ```
    pub async fn join<O>(
        &self,
        children: &[DurableHandle<O>],
    ) -> Result<Vec<Result<O, DurableError>>, TaskError>
    where
        O: DeserializeOwned + Send + 'static,
    {
        let ids: Vec<_> = children.iter().map(DurableHandle::id).collect();
        if let Some(other) = ids.iter().find(|&&id| !self.steps.is_child(id)) {
            return Err(self.steps.fail(format!(
                "task {other} is not a child of this run: spawn it with `TaskContext::spawn_all`"
            )));
        }
        let mut missing = self.missing(&ids);
        // A child whose end is missing may be lost: its task was deleted, or the store was damaged. If an earlier task had the id of this
        // one, the child may have ended while that task existed.
        if !missing.is_empty() {
            self.look_for(&missing).await?;
            missing = self.missing(&ids);
        }
        if !missing.is_empty() {
            failpoint("children.before-join");
            let ends = missing.into_iter().map(StepName::of_child).collect();
            return Err(self.steps.suspend_for(Duration::MAX, &ends));
        }
        Ok(children.iter().map(|child| self.result_of(child)).collect())
    }

    /// Returns the children whose ends this run does not know.
    fn missing(&self, ids: &[TaskId]) -> Vec<TaskId> {
        let is_missing = |id: &TaskId| self.steps.get(&StepName::of_child(*id)).is_none();
        ids.iter().copied().filter(is_missing).collect()
    }

    /// Stores the ends of those children that have ended.
    async fn look_for(&self, ids: &[TaskId]) -> Result<(), TaskError> {
        for ids in ids.chunks(MAX_BATCH_TASKS) {
            let states = self
                .client()
                .ask(Some(self.id()), |store| store.status(ids.to_vec()));
            let ends = self.ends_in(ids, &states.await?);
            if ends.is_empty() {
                continue;
            }
            self.steps.add_late_child();
            for stored in self.store_steps(ends).await? {
                if let Err((name, end)) = stored {
                    self.steps.add_unstored(&name, end);
                }
            }
        }
        Ok(())
    }

    /// Returns the names and the values of the steps of those children that have ended.
    fn ends_in(&self, ids: &[TaskId], states: &[TaskState]) -> Vec<(StepName, Vec<u8>)> {
        let mut room = self.steps.room_for_outputs();
        let ends = ids.iter().zip(states).filter_map(|(id, state)| {
            let name = StepName::of_child(*id);
            let max = room.saturating_sub(name.as_str().len());
            let end = ChildEnd::encode(state, max.min(MAX_STEP_BYTES))?;
            room = max.saturating_sub(end.len());
            Some((name, end))
        });
        ends.collect()
    }

    /// Returns the result of a child whose end is known.
    fn result_of<O>(&self, child: &DurableHandle<O>) -> Result<O, DurableError>
    where
        O: DeserializeOwned + Send + 'static,
    {
        let (store_name, id) = (self.client().store_name(), child.id());
        let step = self.steps.get(&StepName::of_child(id));
        match step.and_then(|step| ChildEnd::decode(&step.value)) {
            Some(ChildEnd::Ended(end)) => child.outcome(Some(Ok(end))),
            Some(ChildEnd::TooLarge(len)) => {
                Err(DurableError::too_large(store_name, id, len, MAX_STEP_BYTES))
            }
            None => child.outcome(Some(Ok(TaskState::Absent))),
        }
    }
}
