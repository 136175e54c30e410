//! [`DurableClient`]: stores tasks, and says what has become of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc as StdArc;

use super::engine::Engine;
use super::new_task::bytes_of;
use super::resend::resend;
use super::spawn_queue::Stored;
use super::store::{Answer, Backend, MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewTask, Store, TaskState};
use super::task::{ENVELOPE, seal};
use super::{
    AttemptError, Counts, DeadLetters, Durability, DurableError, DurableHandle, DurableTask,
    Health, SpawnOptions, Status, TaskId,
};

/// Stores tasks, awaits them, and says what has become of them: all that a producer needs.
///
/// It needs neither the code of the tasks nor what they work with. Clones are one client; the last
/// one, and the last handle, end it. It works on every runtime, and needs none of them to last: what
/// it does in the background, it does on a thread of its own.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::DurableTask;
/// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
/// use throng::durable::{DurableClient, MemoryStore, Status};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?; // it is stored
/// assert_eq!(handle.status().await?, Status::Waiting);
///
/// let same = client.attach::<SendMail>(handle.id()); // in another process, after a restart
/// same.cancel().await?;
/// assert!(handle.await.is_err_and(|error| error.is_cancelled()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DurableClient {
    engine: StdArc<Engine>,
}

/// The largest payload, and the largest output: one request has room for one.
pub(crate) const MAX_BYTES: usize = MAX_BATCH_BYTES;

/// How many workers may die while they run a task, unless somebody says something else.
const MAX_CRASHES: u32 = 3;

impl DurableClient {
    /// A client of a store. If the system gives it no thread, all that it is asked for ends with an
    /// error that [`is_closed`](DurableError::is_closed).
    pub fn open(store: impl Into<Store>) -> Self {
        Self {
            engine: Engine::start(store.into()),
        }
    }

    /// Stores a task. When this returns `Ok`, it is stored, and will run.
    ///
    /// # Errors
    ///
    /// - The encoded task is [larger](DurableError::is_too_large) than 1 MiB, or it cannot be encoded.
    /// - The store does not accept the task. The error says whether the store can [have stored it all the
    ///   same](DurableError::is_unknown), and has its [id](DurableError::task_id).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may be stored or not. Give it an
    /// [id](SpawnOptions::id) if that matters: spawned again, it is stored once.
    pub async fn spawn<T: DurableTask>(
        &self,
        task: T,
    ) -> Result<DurableHandle<T::Output>, DurableError> {
        self.spawn_with(task, SpawnOptions::new()).await
    }

    /// Stores a task, as `options` say.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn`](Self::spawn).
    pub async fn spawn_with<T: DurableTask>(
        &self,
        task: T,
        options: SpawnOptions,
    ) -> Result<DurableHandle<T::Output>, DurableError> {
        let task = self.new_task(&task, &options)?;
        let id = task.id;
        self.store(vec![task]).await?;
        Ok(DurableHandle::new(self.clone(), id))
    }

    /// Stores many tasks, in few requests. The handles are in the order of the tasks.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn). Nothing is stored if one of the tasks is too large or cannot be
    /// written. If the store fails, those before the task that the error names are stored; those after
    /// it may be.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, any of the tasks may be stored or not.
    pub async fn spawn_all<T: DurableTask>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<DurableHandle<T::Output>>, DurableError> {
        let options = SpawnOptions::new();
        let tasks = tasks.into_iter().map(|task| self.new_task(&task, &options));
        self.store_all(tasks.collect::<Result<Vec<_>, _>>()?).await
    }

    /// Stores many tasks, each as its options say.
    ///
    /// # Errors
    ///
    /// As [`spawn_all`](Self::spawn_all).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn_all`](Self::spawn_all).
    pub async fn spawn_all_with<T: DurableTask>(
        &self,
        tasks: impl IntoIterator<Item = (T, SpawnOptions)>,
    ) -> Result<Vec<DurableHandle<T::Output>>, DurableError> {
        let tasks = tasks.into_iter();
        let tasks = tasks.map(|(task, options)| self.new_task(&task, &options));
        self.store_all(tasks.collect::<Result<Vec<_>, _>>()?).await
    }

    /// A handle of a task that was spawned elsewhere, or earlier. That there is such a task, and that
    /// it is a `T`, shows when the handle is awaited.
    pub fn attach<T: DurableTask>(&self, id: TaskId) -> DurableHandle<T::Output> {
        DurableHandle::new(self.clone(), id)
    }

    /// What has become of a task so far.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn status(&self, id: TaskId) -> Result<Status, DurableError> {
        let states = self.ask(Some(id), |store| store.status(vec![id])).await?;
        Ok(states.first().map_or(Status::Absent, status))
    }

    /// The errors of the attempts after which a task was tried again: at most the last 8, the oldest first. They are
    /// kept until the task succeeds or is cancelled. If it becomes a dead letter, [the letter has
    /// them](super::DeadLetter::errors), too.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn errors(&self, id: TaskId) -> Result<Vec<AttemptError>, DurableError> {
        self.ask(Some(id), |store| store.errors(id)).await
    }

    /// Cancels tasks. Those that do not run are cancelled at once; those that do are
    /// [asked to stop](super::TaskContext::cancellation). Returns how many there were that had not
    /// ended.
    ///
    /// # Errors
    ///
    /// The store does not answer. To ask again does no harm.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks may be cancelled or not.
    pub async fn cancel(&self, ids: &[TaskId]) -> Result<u64, DurableError> {
        let mut alive = 0;
        for ids in ids.chunks(MAX_BATCH_TASKS) {
            alive += self.ask(None, |store| store.cancel(ids.to_vec())).await?;
        }
        Ok(alive)
    }

    /// The tasks that have failed for good.
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(self)
    }

    /// How many tasks there are, and what has been done.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn counts(&self) -> Result<Counts, DurableError> {
        self.ask(None, |store| store.counts()).await
    }

    /// Returns the state of the store as last seen by this process, without a request to the store.
    pub fn health(&self) -> Health {
        self.engine.store.health()
    }

    /// What a task that was stored survives.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn durability(&self) -> Result<Durability, DurableError> {
        self.ask(None, |store| store.probe()).await
    }

    /// Makes sure that what is stored survives at least `level`.
    ///
    /// # Errors
    ///
    /// It [does not](DurableError::is_not_durable), or the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn require(&self, level: Durability) -> Result<(), DurableError> {
        let found = self.durability().await?;
        match found >= level {
            true => Ok(()),
            false => Err(DurableError::not_durable(self.queue(), found, level)),
        }
    }

    /// Closes the client and all its clones. Tasks that were spawned before are stored. Executors of the client
    /// give their tasks back, as in a [shutdown](super::DurableExecutor::shutdown) without a grace period. The
    /// client's sessions in the store are closed. Later requests, and handles that are still awaited, fail with
    /// an error that [`is_closed`](DurableError::is_closed).
    ///
    /// When the last client of a `SqliteStore` is closed, the file holds all tasks and nothing is left beside
    /// it, so the file can be copied.
    ///
    /// Dropping the last clone does the same in the background, provided that the process lives long enough.
    ///
    /// # Errors
    ///
    /// The store could not be closed in order. All acknowledged tasks are stored nevertheless.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client may be partly closed. Another call of `close` continues.
    pub async fn close(&self) -> Result<(), DurableError> {
        let closed = self.engine.close().await;
        closed.map_err(|failure| DurableError::store(self.queue(), None, failure))
    }

    pub(crate) fn engine(&self) -> &StdArc<Engine> {
        &self.engine
    }

    pub(crate) fn queue(&self) -> &StdArc<str> {
        &self.engine.queue
    }

    /// Asks the store something that can be asked twice.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        task: Option<TaskId>,
        question: impl Fn(&'a dyn Backend) -> Answer<'a, T>,
    ) -> Result<T, DurableError> {
        let Some(runtime) = self.engine.runtime() else {
            return Err(DurableError::closed(self.queue(), task));
        };
        let store = &*self.engine.store;
        let answer = resend(runtime, || question(store)).await;
        answer.map_err(|failure| DurableError::store(self.queue(), task, failure))
    }

    fn new_task<T: DurableTask>(
        &self,
        task: &T,
        options: &SpawnOptions,
    ) -> Result<NewTask, DurableError> {
        let id = options.id.unwrap_or_else(TaskId::new);
        let payload = seal(task).map_err(|error| DurableError::encode(self.queue(), id, error))?;
        if payload.len() > MAX_BYTES {
            let len = payload.len();
            return Err(DurableError::too_large(self.queue(), id, len, MAX_BYTES));
        }
        Ok(NewTask {
            id,
            name: T::NAME.into(),
            envelope: ENVELOPE,
            payload,
            delay: options.delay,
            retention: options.retention.unwrap_or(T::RETENTION),
            max_crashes: options.max_crashes.unwrap_or(MAX_CRASHES),
        })
    }

    async fn store_all<T>(
        &self,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<DurableHandle<T>>, DurableError> {
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        let mut pending = VecDeque::new();
        for tasks in split(tasks) {
            if pending.len() == MAX_PENDING_REQUESTS
                && let Some(first) = pending.pop_front()
            {
                self.stored(first).await?;
            }
            pending.push_back(self.push(tasks));
        }
        for request in pending {
            self.stored(request).await?;
        }
        let handles = ids.into_iter();
        Ok(handles
            .map(|id| DurableHandle::new(self.clone(), id))
            .collect())
    }

    /// Stores tasks that fit into one batch.
    async fn store(&self, tasks: Vec<NewTask>) -> Result<(), DurableError> {
        self.stored(self.push(tasks)).await
    }

    /// Adds tasks that fit into one batch to the queue.
    fn push(&self, tasks: Vec<NewTask>) -> Pushed {
        Pushed {
            first: tasks.first().map(|task| task.id),
            stored: self.engine.spawn_queue.push(tasks),
        }
    }

    async fn stored(&self, Pushed { first, stored }: Pushed) -> Result<(), DurableError> {
        let stored = stored.await;
        let stored = stored.map_err(|_| DurableError::closed(self.queue(), first))?;
        stored.map_err(|failure| DurableError::store(self.queue(), first, failure))
    }
}

impl fmt::Debug for DurableClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableClient")
            .field("queue", self.queue())
            .finish_non_exhaustive()
    }
}

/// The maximum number of spawn requests of one call that are not stored yet: two that are being sent, and one that is ready
/// when one of them is answered.
const MAX_PENDING_REQUESTS: usize = 3;

/// Tasks in the queue, and the first of them, which an error names.
struct Pushed {
    first: Option<TaskId>,
    stored: Stored,
}

/// Splits tasks into groups that fit into one batch.
fn split(tasks: Vec<NewTask>) -> Vec<Vec<NewTask>> {
    let mut groups: Vec<Vec<NewTask>> = Vec::new();
    for task in tasks {
        match groups.last_mut() {
            Some(group)
                if group.len() < MAX_BATCH_TASKS
                    && bytes_of(group) + task.payload.len() <= MAX_BATCH_BYTES =>
            {
                group.push(task);
            }
            _ => groups.push(vec![task]),
        }
    }
    groups
}

fn status(state: &TaskState) -> Status {
    match state {
        TaskState::Absent => Status::Absent,
        TaskState::Waiting => Status::Waiting,
        TaskState::Delayed => Status::Delayed,
        TaskState::Running => Status::Running,
        TaskState::Done(_) => Status::Done,
        TaskState::Dead { .. } => Status::Dead,
        TaskState::Cancelled => Status::Cancelled,
    }
}
