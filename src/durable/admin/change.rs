//! [`TaskChange`]: the changes that operators make to tasks.

use std::collections::HashSet;

use serde::Serialize;

use crate::durable::engine::Engine;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Backend, Change, ChangeAnswer, StepName, StepReplay, StoredStep};
use crate::durable::workflow::spawned_children::SpawnedChildren;
use crate::durable::{DurableError, Refusal, Status, StepKind, TaskFilter, TaskId};

/// A change of a task: see [`Admin::change`](crate::durable::Admin::change) and [`Admin::change_all`](crate::durable::Admin::change_all).
///
/// # Examples
///
/// ```
/// # use throng::durable::{DurableClient, MemoryStore, TaskId};
/// use throng::durable::{Changed, TaskChange};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// # let id = TaskId::new();
/// match client.admin().change(id, TaskChange::move_to("bulk")).await? {
///     Changed::Yes => println!("it waits in the queue bulk"),
///     Changed::NotIn(status) => println!("it is too late: the task is {status:?}"),
///     other => println!("nothing has changed: {other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskChange {
    /// Cancels a waiting, delayed or running task. A running task is cancelled when its run [stops](crate::durable::StopReason).
    Cancel,
    /// Makes a delayed task due now, by the clock of the store, and wakes a worker for it. The task goes behind the tasks that already
    /// wait. A task between two attempts is delayed, too.
    ///
    /// Limits, pauses and the hold of its group still apply to the task. It keeps its [`Key`](crate::durable::Key). So until a worker
    /// claims the task, a spawn may still [replace](crate::durable::Key::replace) it, and thereby delay it again.
    RunNow,
    /// Moves a waiting or delayed task to the named [queue](crate::durable::Queue), or to the default queue if this is `None`. A waiting
    /// task goes behind those that wait there, and a worker of that queue is woken for it. A delayed task stays delayed until the same
    /// time.
    ///
    /// The task keeps its id, its payload, its priority, its errors and the number of its attempts. For its other properties:
    ///
    /// - *Group*: in another named queue, the task keeps its [group](crate::durable::SpawnOptions::group). The default queue has no groups,
    ///   so a task that moves there loses its group.
    /// - *Key*: the task keeps its [`Key`](crate::durable::Key), which still belongs to the queue in which the task was spawned. Spawns
    ///   into that queue conflict with the task. A task whose key lasts only [until it starts](crate::durable::Key::until_started) cannot
    ///   move: see [`Refusal::Replaceable`].
    /// - *Partition*: in a store with several partitions, a task cannot leave its partition: see [`Refusal::OtherPartition`].
    ///
    /// Redis reads the list in which the task waits from its end, in parts, until it finds the task. So in a long queue, a move takes
    /// longer than other changes, but it does not block the server.
    MoveTo(Option<String>),
    /// Makes a dead letter wait for a worker again: see [`DeadLetters::replay`](crate::durable::DeadLetters::replay).
    Replay,
    /// Removes a [step](crate::durable::TaskContext::step) of a task and all steps that were stored after it, and makes the task ready. So
    /// its next run finds the earlier steps, and repeats the others. This applies to dead letters, and to tasks that wait or are delayed,
    /// for example because they [wait for something](crate::durable::TaskDetail::waits_for). A delayed task that is between two attempts
    /// keeps its errors. A running task cannot be replayed: wait for the end of its run.
    ///
    /// The step is named by its [kind and its name](crate::durable::TaskStep::full_name), such as `sleep:pause`; a name without a kind is
    /// that of a `step`. The steps that are removed include:
    ///
    /// - *Signals*: a signal that arrived later than the step is lost. Send it again.
    /// - *Timers*: a sleep that began before the step is not repeated, and continues. To repeat a wait for a signal that did not arrive in
    ///   time, name the step `timeout:NAME`.
    /// - *Children*: the children themselves are neither cancelled nor deleted. If the step is `spawn:NAME`, the ends of its children are
    ///   removed, too. If one of them was stored before that step, everything from that end on is removed. The next run finds those
    ///   children that the store still has, since their ids stay the same, and spawns those that are gone: these run again. If only the
    ///   ends of children are removed, the next run [reads](crate::durable::TaskContext::join) them from the store. So a dead child that
    ///   was replayed and has succeeded now counts as a success. If the store no longer keeps the end of a child, its result is an
    ///   [error](crate::durable::DurableError::is_expired): to run it again, name the step `spawn:NAME`.
    ///
    /// The task gets a step of the kind [`Replay`](crate::durable::StepKind::Replay) that records this. Until the task runs, the same
    /// change has no further effect. If the task is then delayed before a run has stored the step again, for example because a run has
    /// failed, the same change makes the task due now, as [`RunNow`](Self::RunNow) does, and removes nothing. No run stores a step of the
    /// kind `Replay` again. So to repeat what was stored after such a step since, name the first step after it.
    ReplayFrom(String),
    /// Deletes a dead letter.
    Delete,
}

/// The effect of a change on a task: see [`Admin::change`](crate::durable::Admin::change).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Changed {
    /// The task was changed. If it was to be cancelled and is running, its worker has been asked to stop it.
    Yes,
    /// The change was not necessary: the task is already in the queue to which it was to move, or it was already replayed from the step,
    /// and waits for a worker.
    Already,
    /// There is no such task: it was never stored, or its end is no longer kept.
    NotThere,
    /// The task has this status, and the change did not apply to it. If the change
    /// [applies](TaskChange::applies_to) to this status, the task changed its status or its list several times meanwhile: try again.
    NotIn(Status),
    /// The change is not possible, for this reason.
    Refused(Refusal),
}

impl TaskChange {
    /// Returns the change that moves a task to a named queue.
    ///
    /// # Examples
    ///
    /// See [`TaskChange`].
    pub fn move_to(queue: impl Into<String>) -> Self {
        Self::MoveTo(Some(queue.into()))
    }

    /// Returns the change that replays a task from a step: see [`ReplayFrom`](Self::ReplayFrom).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Order(u64);
    /// # impl DurableTask for Order { const NAME: &'static str = "order"; type Output = (); }
    /// # impl Run<()> for Order {
    /// #     async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
    /// #         cx.step("price", || async { Ok(self.0) }).await?;
    /// #         Err(TaskError::fatal("the price is wrong"))
    /// #     }
    /// # }
    /// use throng::durable::{Changed, TaskChange};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor = DurableExecutor::builder(client.clone()).register::<Order>().start_inline(()).await?;
    /// let id = client.spawn(Order(7)).await?.id();
    /// # executor.run_due().await?;
    /// // The task is dead. Its first step was `price`, whose output was wrong.
    /// let change = TaskChange::replay_from("price");
    /// assert_eq!(client.admin().change(id, change).await?, Changed::Yes);
    ///
    /// let detail = client.admin().task(id).await?.expect("it waits for a worker");
    /// assert!(detail.steps.iter().all(|step| step.full_name() != "step:price"));
    /// # Ok(()) }
    /// ```
    pub fn replay_from(step: impl Into<String>) -> Self {
        Self::ReplayFrom(step.into())
    }

    /// Returns the change in the form in which stores accept it, or the reason why it is invalid. All requests of a call have the same
    /// nonce, which shows a store that a replay was requested before.
    pub(super) fn checked(&self, nonce: u64) -> Result<Change, String> {
        Ok(match self {
            Self::Cancel => Change::Cancel,
            Self::RunNow => Change::RunNow,
            Self::MoveTo(None) => Change::MoveTo(QueueName::DEFAULT),
            Self::MoveTo(Some(queue)) => Change::MoveTo(QueueName::new(queue)?),
            Self::Replay => Change::Replay,
            Self::ReplayFrom(step) => {
                let step = StepName::parse(step)?;
                Change::ReplayFrom(StepReplay::new(step, nonce))
            }
            Self::Delete => Change::Delete,
        })
    }

    /// Returns `true` if the change applies to tasks with this status. It may still be [refused](Refusal) for another reason.
    ///
    /// # Examples
    ///
    /// See [`TaskDetail`](crate::durable::TaskDetail).
    pub fn applies_to(&self, status: Status) -> bool {
        match self {
            Self::Cancel => matches!(status, Status::Waiting | Status::Delayed | Status::Running),
            Self::RunNow => status == Status::Delayed,
            Self::MoveTo(_) => matches!(status, Status::Waiting | Status::Delayed),
            Self::ReplayFrom(_) => {
                matches!(status, Status::Waiting | Status::Delayed | Status::Dead)
            }
            Self::Replay | Self::Delete => status == Status::Dead,
        }
    }

    /// Returns an error if the change does not apply to tasks with the status of the filter.
    pub(super) fn check(&self, filter: &TaskFilter) -> Result<(), String> {
        if let Self::ReplayFrom(step) = self
            && step.starts_with(StepKind::Spawn.prefix())
        {
            let advice = "a replay from a step that has spawned children changes one task at a time: use `Admin::change`";
            return Err(advice.into());
        }
        if self.applies_to(filter.status()) {
            return Ok(());
        }
        let statuses = match self {
            Self::Cancel => "waiting, delayed or running tasks can be cancelled",
            Self::RunNow => "delayed tasks can be made due",
            Self::MoveTo(_) => "waiting or delayed tasks can move to another queue",
            Self::Replay => "dead letters can be replayed",
            Self::ReplayFrom(_) => {
                "waiting or delayed tasks, or dead letters, can be replayed from a step"
            }
            Self::Delete => "dead letters can be deleted",
        };
        Err(format!(
            "only {statuses}: change the status of the filter, which is {:?}",
            filter.status()
        ))
    }
}

/// The number of attempts to change a task whose status changes meanwhile.
const MAX_TRIES: usize = 3;

/// Changes a task: see [`Admin::change`](crate::durable::Admin::change).
pub(super) async fn change_one(
    engine: &Engine,
    id: TaskId,
    change: &TaskChange,
) -> Result<Changed, DurableError> {
    let checked = change.checked(StepReplay::random_nonce());
    let mut checked =
        checked.map_err(|reason| DurableError::invalid(&engine.store_name, reason))?;
    if let Change::ReplayFrom(replay) = &mut checked {
        replay.first = first_removed(engine, id, replay.step.clone()).await?;
    }
    let mut found = Status::Absent;
    for _ in 0..MAX_TRIES {
        let answers = engine.ask(Some(id), |store| store.change(vec![id], checked.clone()));
        match answers.await?.first() {
            Some(ChangeAnswer::Changed) => return Ok(Changed::Yes),
            Some(ChangeAnswer::Same) => return Ok(Changed::Already),
            Some(ChangeAnswer::Refused(refusal)) => return Ok(Changed::Refused(*refusal)),
            Some(ChangeAnswer::OtherStatus) | None => {}
        }
        found = engine.status(id).await?;
        if !change.applies_to(found) {
            break;
        }
    }
    Ok(match found {
        Status::Absent => Changed::NotThere,
        status => Changed::NotIn(status),
    })
}

/// Returns the first step that a replay removes. A child may end before the step that records its spawn is stored. Its end then comes
/// first.
async fn first_removed(
    engine: &Engine,
    id: TaskId,
    step: StepName,
) -> Result<StepName, DurableError> {
    let Some((StepKind::Spawn, name)) = StepName::split(step.as_str()) else {
        return Ok(step);
    };
    let steps = match engine.ask(Some(id), |store| store.steps(id)).await {
        Err(error) if !error.is_corrupt() => return Err(error),
        steps => steps.unwrap_or_default(),
    };
    let end = earlier_end(&*engine.store, id, name, step.as_str(), &steps);
    Ok(end.unwrap_or(step))
}

/// Returns the first end of a child that precedes the step that has spawned the child.
fn earlier_end(
    store: &dyn Backend,
    parent: TaskId,
    name: &str,
    spawn: &str,
    steps: &[StoredStep],
) -> Option<StepName> {
    let at = steps.iter().position(|step| step.name == spawn)?;
    let spawned: SpawnedChildren = serde_json::from_slice(&steps[at].value).ok()?;
    let children = spawned.ids(store, parent, name).ok()?.into_iter();
    let ends: HashSet<_> = children
        .map(|child| StepName::of_child(child).as_str().to_owned())
        .collect();
    let end = steps[..at].iter().find(|step| ends.contains(&step.name))?;
    StepName::parse(&end.name).ok()
}
