//! [`DurableClient`]: stores and awaits tasks.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::iter;
use std::sync::Arc as StdArc;
use std::time::Duration;

#[cfg(feature = "tracing")]
use super::Propagate;
use super::engine::Engine;
use super::envelope::{MAX_HEAD_BYTES, TraceBytes, envelope_of, seal_payload};
use super::key::{Conflict, NewKey};
use super::queue::group::GroupName;
use super::queue::name::QueueName;
use super::report::{Propagation, SpawnSpan};
use super::spawn_queue::{Stored, split};
use super::store::{
    Answer, Backend, Enqueued, KeyConflict, MAX_BATCH_TASKS, MAX_PAYLOAD_BYTES, NewTask, Store,
};
use super::task::SpawnedType;
use super::workflow::spawned_children::MIN_CHILD_RETENTION;
use super::{
    Admin, AttemptError, Counts, DeadLetters, Durability, DurableError, DurableHandle, DurableTask,
    Health, Key, Losses, Queue, SpawnOptions, Status, TaskId, TaskTypes,
};

/// Stores tasks, awaits them, and reports their states. A program that only produces tasks needs nothing else.
///
/// A client needs neither the [code](super::Run) of the tasks nor the `App` that they work with. Clones are the same client,
/// which ends when its last clone and its last handle are dropped. It works on every runtime, and does not depend on one:
/// its background work runs on a thread of its own.
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
/// let same = client.attach::<SendMail>(handle.id()); // in another process, or after a restart
/// same.cancel().await?;
/// assert!(handle.await.is_err_and(|error| error.is_cancelled()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DurableClient {
    engine: StdArc<Engine>,
    propagation: Propagation,
}

/// The default of [`SpawnOptions::max_crashes`].
pub(crate) const DEFAULT_MAX_CRASHES: u32 = 3;

impl DurableClient {
    /// Opens a client of a store. If the system refuses a thread for it, every request fails with an error that
    /// [`is_closed`](DurableError::is_closed).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), throng::durable::DurableError> {
    /// # #[cfg(feature = "sqlite-unbundled")] {
    /// use throng::durable::{DurableClient, SqliteStore};
    ///
    /// let client = DurableClient::open(SqliteStore::open("tasks.db").await?);
    /// client.close().await?;
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn open(store: impl Into<Store>) -> Self {
        Self {
            engine: Engine::start(store.into()),
            propagation: Propagation::default(),
        }
    }

    /// Returns this client with a propagation of traces. With the feature `tracing`.
    ///
    /// Each task that the client or one of its clones spawns stores the trace context of the thread that spawns it. An executor that is
    /// built with the client passes the context on to the runs of such tasks, regardless of the process that spawned them. Tasks of
    /// schedules have no context, since no request has spawned them.
    ///
    /// The crate `throng-opentelemetry` has a [`Propagate`] for OpenTelemetry.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{BeginningRun, DurableClient, MemoryStore, Propagate, TraceContext};
    ///
    /// /// Does not connect runs with anything, but logs where they come from.
    /// struct Log;
    ///
    /// impl Propagate for Log {
    ///     fn current(&self) -> Option<TraceContext> {
    ///         None // that of the current span
    ///     }
    ///
    ///     fn begin(&self, run: &BeginningRun<'_>) {
    ///         if let Some(from) = run.from {
    ///             println!("{} was spawned in the trace {from}", run.name);
    ///         }
    ///     }
    /// }
    ///
    /// let client = DurableClient::open(MemoryStore::new()).propagating(Log);
    /// # drop(client);
    /// ```
    #[cfg(feature = "tracing")]
    pub fn propagating(self, propagate: impl Propagate) -> Self {
        Self {
            engine: self.engine,
            propagation: Propagation::new(propagate),
        }
    }

    /// Stores a task. When this returns `Ok`, the task is stored, and will run. The handle can be dropped.
    ///
    /// # Errors
    ///
    /// - The encoded task is [larger](DurableError::is_too_large) than 1 MiB, or it cannot be
    ///   [encoded](DurableError::is_encode).
    /// - The options are [invalid](DurableError::is_invalid): for instance, a key and an id, or options of a key that exclude each
    ///   other. The message names the remedy.
    /// - Another task holds the [key](SpawnOptions::key), which is set to [reject](super::Key::reject) new tasks
    ///   ([`is_conflict`](DurableError::is_conflict)).
    /// - The store does not accept the task. The error says whether the store [may have stored the task
    ///   nevertheless](DurableError::is_unknown), and has the [id](DurableError::task_id) of the task.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may be stored or not. To find out, give it an [id](SpawnOptions::id) or a
    /// [key](SpawnOptions::key) and spawn it again. A task with an id is stored once. A task with a key is stored once while it
    /// holds the key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// client.spawn(SendMail { to: "a@b.c".into() }).await?; // a worker will run it
    /// # Ok(()) }
    /// ```
    pub async fn spawn<T: DurableTask>(
        &self,
        task: T,
    ) -> Result<DurableHandle<T::Output>, DurableError> {
        self.spawn_with(task, SpawnOptions::new()).await
    }

    /// Stores a task with options.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Examples
    ///
    /// One reminder a day and user, however often this runs:
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Remind { user: u64 }
    /// # impl DurableTask for Remind { const NAME: &'static str = "remind"; type Output = (); }
    /// use std::time::Duration;
    ///
    /// use throng::durable::{SpawnOptions, TaskId};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let options = SpawnOptions::new()
    ///     .id(TaskId::derive("remind", b"user 7, 2026-11-24"))
    ///     .delay(Duration::from_secs(3600));
    /// client.spawn_with(Remind { user: 7 }, options).await?;
    /// # Ok(()) }
    /// ```
    pub async fn spawn_with<T: DurableTask>(
        &self,
        task: T,
        options: SpawnOptions,
    ) -> Result<DurableHandle<T::Output>, DurableError> {
        let spawn = self.typed_tasks(iter::once((task, options)))?;
        self.spawn_new(spawn, |id| self.attach::<T>(id)).await
    }

    /// Stores many tasks in few requests. The handles are in the order of the tasks.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn). If one of the tasks is too large or cannot be encoded, none of them is stored. If the store fails, the
    /// tasks before the one that the error names are stored; later ones may be.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, any of the tasks may be stored or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Resize(u32);
    /// # impl DurableTask for Resize { const NAME: &'static str = "resize"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let handles = client.spawn_all((0..1_000).map(Resize)).await?;
    /// assert_eq!(handles.len(), 1_000);
    /// # Ok(()) }
    /// ```
    pub async fn spawn_all<T: DurableTask>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<DurableHandle<T::Output>>, DurableError> {
        let options = SpawnOptions::new();
        let tasks = tasks.into_iter().map(|task| (task, options.clone()));
        let (span, tasks) = self.typed_tasks(tasks)?;
        span.hold(self.store_all::<T>(tasks)).await
    }

    /// Stores many tasks, each with its options.
    ///
    /// If a task is [rejected](super::Key::reject) because of its key, this is no error: the handle is that of the task that holds
    /// the key, and [`was_rejected`](DurableHandle::was_rejected).
    ///
    /// # Errors
    ///
    /// As [`spawn_all`](Self::spawn_all).
    ///
    /// # Cancel safety
    ///
    /// As [`spawn_all`](Self::spawn_all).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Import { user: u64 }
    /// # impl DurableTask for Import { const NAME: &'static str = "import"; type Output = (); }
    /// use throng::durable::{Key, SpawnOptions};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let exclusive = |user| SpawnOptions::new().key(Key::new(format!("user {user}")).reject());
    /// let imports = [7, 8, 7].map(|user| (Import { user }, exclusive(user)));
    /// let handles = client.spawn_all_with(imports).await?;
    /// assert!(handles[2].was_rejected()); // the first task holds the key
    /// assert_eq!(handles[2].id(), handles[0].id());
    /// # Ok(()) }
    /// ```
    pub async fn spawn_all_with<T: DurableTask>(
        &self,
        tasks: impl IntoIterator<Item = (T, SpawnOptions)>,
    ) -> Result<Vec<DurableHandle<T::Output>>, DurableError> {
        let (span, tasks) = self.typed_tasks(tasks.into_iter())?;
        span.hold(self.store_all::<T>(tasks)).await
    }

    /// Stores the children of a task, with these ids. Their results are kept long enough for another run of the task to find them.
    pub(super) async fn spawn_children<T: DurableTask>(
        &self,
        parent: TaskId,
        children: Vec<(T, TaskId)>,
    ) -> Result<(), DurableError> {
        let children = children.into_iter();
        let with_ids = children.map(|(task, id)| (task, SpawnOptions::new().id(id)));
        let (span, mut tasks) = self.typed_tasks(with_ids)?;
        for task in &mut tasks {
            task.parent = Some(parent);
            task.retention = task.retention.max(MIN_CHILD_RETENTION);
        }
        span.hold(self.store_all::<T>(tasks)).await.map(drop)
    }

    /// Returns a handle of a task that was spawned earlier, or by another process. It does not check that the task exists
    /// and is a `T`: awaiting the handle does.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Square(u32);
    /// # impl DurableTask for Square { const NAME: &'static str = "square"; type Output = u32; }
    /// # impl Run<()> for Square {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 * self.0) }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let _executor = DurableExecutor::builder(client.clone()).register::<Square>().start(()).await?;
    /// let id = client.spawn(Square(3)).await?.id(); // store the id, for example in a database
    ///
    /// // In another process, or after a restart:
    /// let handle = client.attach::<Square>(id);
    /// assert_eq!(handle.await?, 9);
    /// # Ok(()) }
    /// ```
    pub fn attach<T: DurableTask>(&self, id: TaskId) -> DurableHandle<T::Output> {
        DurableHandle::new::<T>(&self.engine, id)
    }

    /// Returns the status of a task.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// use throng::durable::{Status, TaskId};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let id = client.spawn(SendMail { to: "a@b.c".into() }).await?.id();
    /// assert_eq!(client.status(id).await?, Status::Waiting);
    ///
    /// client.cancel(&[id]).await?;
    /// assert_eq!(client.status(id).await?, Status::Cancelled);
    /// assert_eq!(client.status(TaskId::new()).await?, Status::Absent); // there is no such task
    /// # Ok(()) }
    /// ```
    pub async fn status(&self, id: TaskId) -> Result<Status, DurableError> {
        self.engine.status(id).await
    }

    /// Returns the errors of the attempts after which a task was tried again: at most the last 8, the oldest first. They are
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
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # impl Run<()> for SendMail {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
    /// #         Err(TaskError::retry_after("no connection", Duration::from_secs(60)))
    /// #     }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor = DurableExecutor::builder(client.clone()).register::<SendMail>().start_inline(()).await?;
    /// let id = client.spawn(SendMail { to: "a@b.c".into() }).await?.id();
    /// # executor.run_due().await?;
    /// // The first attempt has failed, and the task waits for the second one.
    /// for failed in client.errors(id).await? {
    ///     println!("attempt {} failed {:?} ago: {}", failed.attempt, failed.age, failed.error);
    /// }
    /// # let errors = client.errors(id).await?;
    /// # assert_eq!((errors.len(), errors[0].attempt, &*errors[0].error), (1, 1, "no connection"));
    /// # Ok(()) }
    /// ```
    pub async fn errors(&self, id: TaskId) -> Result<Vec<AttemptError>, DurableError> {
        self.ask(Some(id), |store| store.errors(id)).await
    }

    /// Cancels tasks: those that do not run at once, and those that run when they have [stopped](super::StopReason).
    /// Returns the number of tasks that had not ended.
    ///
    /// # Errors
    ///
    /// The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the tasks may be cancelled or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Resize(u32);
    /// # impl DurableTask for Resize { const NAME: &'static str = "resize"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let handles = client.spawn_all([Resize(1), Resize(2)]).await?;
    /// let ids: Vec<_> = handles.iter().map(|handle| handle.id()).collect();
    /// assert_eq!(client.cancel(&ids).await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, ids: &[TaskId]) -> Result<u64, DurableError> {
        let mut alive = 0;
        for ids in ids.chunks(MAX_BATCH_TASKS) {
            alive += self.ask(None, |store| store.cancel(ids.to_vec())).await?;
        }
        Ok(alive)
    }

    /// Returns the interface for the people who operate the store: it summarises the store, lists tasks and workers, and changes tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::{Status, TaskFilter};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let page = client.admin().tasks(&TaskFilter::new(Status::Running), None, 50).await?;
    /// for task in page.tasks {
    ///     println!("{} {:?}", task.id, task.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn admin(&self) -> Admin<'_> {
        Admin::new(&self.engine)
    }

    /// Returns the interface to the tasks that have failed for good.
    ///
    /// # Examples
    ///
    /// See [`DeadLetters`].
    pub fn dead_letters(&self) -> DeadLetters<'_> {
        DeadLetters::new(&self.engine)
    }

    /// Returns the numbers of tasks by their states, and the totals of all workers.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Resize(u32);
    /// # impl DurableTask for Resize { const NAME: &'static str = "resize"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// client.spawn_all([Resize(1), Resize(2)]).await?;
    /// let counts = client.counts().await?;
    /// assert_eq!((counts.waiting, counts.running, counts.dead), (2, 0, 0));
    /// assert_eq!(counts.unserved, 2); // no worker has registered the type
    /// # Ok(()) }
    /// ```
    pub async fn counts(&self) -> Result<Counts, DurableError> {
        self.ask(None, |store| store.counts()).await
    }

    /// Returns the state of the store as last seen by this process, without a request to the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, Health, MemoryStore};
    ///
    /// let client = DurableClient::open(MemoryStore::new());
    /// match client.health() {
    ///     Health::Well | Health::Mute => println!("the store answers"),
    ///     problem => println!("{problem:?}"),
    /// }
    /// # assert_eq!(client.health(), Health::Well);
    /// ```
    pub fn health(&self) -> Health {
        self.engine.store.health()
    }

    /// Returns the acknowledged writes that the store has lost, as far as this client has found out, without a request to the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{DurableClient, MemoryStore};
    ///
    /// let client = DurableClient::open(MemoryStore::new());
    /// assert_eq!(client.losses().lost, 0);
    /// ```
    pub fn losses(&self) -> Losses {
        self.engine.losses.total()
    }

    /// Returns which failures a stored task survives.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use throng::durable::{Durability, DurableClient, MemoryStore};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(MemoryStore::new());
    /// assert_eq!(client.durability().await?, Durability::Memory);
    /// assert!(Durability::Memory < Durability::Synced); // the level of a `SqliteStore`
    /// # Ok(()) }
    /// ```
    pub async fn durability(&self) -> Result<Durability, DurableError> {
        self.ask(None, |store| store.probe()).await
    }

    /// Checks that stored tasks survive at least `level`.
    ///
    /// # Errors
    ///
    /// The store is [less durable](DurableError::is_not_durable), or it does not answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// use throng::durable::Durability;
    ///
    /// # #[tokio::main] async fn main() {
    /// let client = DurableClient::open(MemoryStore::new());
    /// let required = client.require(Durability::Synced).await;
    /// assert!(required.is_err_and(|error| error.is_not_durable()));
    /// # }
    /// ```
    pub async fn require(&self, level: Durability) -> Result<(), DurableError> {
        let found = self.durability().await?;
        match found >= level {
            true => Ok(()),
            false => Err(DurableError::not_durable(self.store_name(), found, level)),
        }
    }

    /// Returns the interface to a named queue, which can have limits and can be paused. The queue need not exist before.
    ///
    /// # Examples
    ///
    /// See [`Queue`].
    pub fn queue(&self, name: &str) -> Queue<'_> {
        Queue::new(&self.engine, name)
    }

    /// Derives an id for a task in a named queue, as [`TaskId::derive`] does for a task in the default queue: in one
    /// store, the same arguments give the same id. In a store with several partitions, the id is in the partition of the queue.
    ///
    /// # Errors
    ///
    /// The name of the queue is [invalid](DurableError::is_invalid).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Bill { order: u64 }
    /// # impl DurableTask for Bill { const NAME: &'static str = "bill"; type Output = (); }
    /// use throng::durable::SpawnOptions;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let id = client.derive_id("billing", "bill", b"order 7")?;
    /// let options = SpawnOptions::new().queue("billing").id(id);
    /// client.spawn_with(Bill { order: 7 }, options).await?; // stored once, however often this runs
    /// # Ok(()) }
    /// ```
    pub fn derive_id(&self, queue: &str, name: &str, bytes: &[u8]) -> Result<TaskId, DurableError> {
        let queue = self.queue_name(Some(queue))?;
        let derive = |salt: u32| match salt {
            0 => TaskId::derive(name, bytes),
            salt => TaskId::derive(name, &[bytes, &salt.to_be_bytes()].concat()),
        };
        let mut ids = (0..).map(derive);
        let id = ids.find(|&id| self.engine.store.can_have(id, &queue, None));
        Ok(id.unwrap_or_else(|| derive(0)))
    }

    /// Returns the interface to the types of tasks, which can be paused.
    ///
    /// # Examples
    ///
    /// See [`TaskTypes`].
    pub fn types(&self) -> TaskTypes<'_> {
        TaskTypes::new(&self.engine)
    }

    /// Raises the layout of the store to the newest one that this version of the crate knows. Does nothing if the store has
    /// this layout already. A new store always has it.
    ///
    /// A new version of this crate continues to use the layout of its predecessor, so that the processes of a fleet can be updated
    /// one by one. It refuses features that need a newer layout until the store is upgraded. Call this when all processes
    /// have been updated: afterwards, older versions cannot use the store any more
    /// ([`is_newer_layout`](DurableError::is_newer_layout)). Stored tasks are not converted and still run.
    ///
    /// # Errors
    ///
    /// - Processes that do not know the new layout still use the store
    ///   ([`is_upgrade_blocked`](DurableError::is_upgrade_blocked)). In Redis, a process that was killed counts for three
    ///   minutes.
    /// - The store does not answer. It is safe to call this again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may be upgraded or not.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, MemoryStore};
    /// # #[tokio::main] async fn main() {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// if let Err(error) = client.upgrade().await {
    ///     eprintln!("{error}"); // it names the processes that are to be updated first
    /// }
    /// # }
    /// ```
    pub async fn upgrade(&self) -> Result<(), DurableError> {
        self.ask(None, |store| store.upgrade()).await
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
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// client.spawn(SendMail { to: "a@b.c".into() }).await?; // it stays in the store
    /// client.close().await?;
    ///
    /// let refused = client.spawn(SendMail { to: "d@e.f".into() }).await;
    /// assert!(refused.is_err_and(|error| error.is_closed()));
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) -> Result<(), DurableError> {
        let closed = self.engine.close().await;
        closed.map_err(|failure| DurableError::store(self.store_name(), None, failure))
    }

    pub(crate) fn engine(&self) -> &StdArc<Engine> {
        &self.engine
    }

    pub(crate) fn store_name(&self) -> &StdArc<str> {
        &self.engine.store_name
    }

    /// Sends a request that may be sent more than once, until the store answers it.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        task: Option<TaskId>,
        request: impl Fn(&'a dyn Backend) -> Answer<'a, T>,
    ) -> Result<T, DurableError> {
        self.engine.ask(task, request).await
    }

    pub(crate) fn propagation(&self) -> &Propagation {
        &self.propagation
    }

    fn new_task_of<T: DurableTask>(
        &self,
        task: &T,
        options: &SpawnOptions,
        trace: Option<TraceBytes>,
    ) -> Result<NewTask, DurableError> {
        self.new_task(SpawnedType::of::<T>(), options, trace, || task.encode())
    }

    /// Returns a task that is to be stored, with the given bytes.
    pub(super) fn new_task(
        &self,
        spawned_type: SpawnedType,
        options: &SpawnOptions,
        trace: Option<TraceBytes>,
        encode: impl FnOnce() -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>,
    ) -> Result<NewTask, DurableError> {
        let SpawnedType { name, version, .. } = spawned_type;
        let queue = self.queue_name(options.queue.as_deref().or(spawned_type.queue))?;
        let group = self.group_name(options.group.as_deref(), &queue)?;
        let key = options.key.as_ref().map(|key| key.of(&name, &queue));
        let key = key.transpose().map_err(|reason| self.invalid(reason))?;
        let id = self.new_id(options.id, &queue, key)?;
        let encoded = encode();
        let encoded =
            encoded.map_err(|error| DurableError::encode(self.store_name(), id, error))?;
        let policy = options
            .policy
            .check()
            .map_err(|reason| self.invalid(reason))?;
        // Without the context, the task is as large as that of a client that propagates none.
        let trace = trace.filter(|_| encoded.len() <= MAX_PAYLOAD_BYTES - MAX_HEAD_BYTES);
        let payload = seal_payload(version, trace, policy, encoded);
        if payload.len() > MAX_PAYLOAD_BYTES {
            let len = payload.len();
            return Err(DurableError::too_large(
                self.store_name(),
                id,
                len,
                MAX_PAYLOAD_BYTES,
            ));
        }
        let debounce = options.key.as_ref().and_then(Key::delay);
        if debounce.is_some() && !options.delay.is_zero() {
            let reason = "a `delay` cannot be combined with `debounce`, which delays the task: remove one of them";
            return Err(self.invalid(String::from(reason)));
        }
        let retention = options.retention.unwrap_or(spawned_type.retention);
        // Spawns within the window await the end of this task, so the end is kept for at least as long.
        let window = key.map_or(Duration::ZERO, |key| key.window);
        Ok(NewTask {
            id,
            name,
            envelope: envelope_of(version, trace, policy),
            version,
            payload,
            queue,
            group,
            priority: options.priority.unwrap_or(spawned_type.priority),
            key,
            delay: debounce.unwrap_or(options.delay),
            retention: retention.max(window),
            max_crashes: options.max_crashes.unwrap_or(DEFAULT_MAX_CRASHES),
            parent: None,
        })
    }

    /// Returns the queue with this name, or the default queue.
    pub(crate) fn queue_name(&self, name: Option<&str>) -> Result<QueueName, DurableError> {
        let queue = name.map(QueueName::new).transpose();
        let queue = queue.map_err(|reason| self.invalid(reason))?;
        Ok(queue.unwrap_or_default())
    }

    /// Returns the group with this name in a queue.
    pub(crate) fn group_name(
        &self,
        name: Option<&str>,
        queue: &QueueName,
    ) -> Result<Option<GroupName>, DurableError> {
        let group = name.map(GroupName::new).transpose();
        let group = group.map_err(|reason| self.invalid(reason))?;
        match group {
            Some(group) if queue.is_default() => Err(self.invalid(format!(
                "{group} is in the default queue, which has no groups: put the task into a named queue with `SpawnOptions::queue`"
            ))),
            group => Ok(group),
        }
    }

    pub(crate) fn invalid(&self, reason: String) -> DurableError {
        DurableError::invalid(self.store_name(), reason)
    }

    /// Returns the given id, or a new one, for a task in this queue and with this key, if it has one.
    pub(crate) fn new_id(
        &self,
        given: Option<TaskId>,
        queue: &QueueName,
        key: Option<NewKey>,
    ) -> Result<TaskId, DurableError> {
        let hash = key.map(|key| key.hash);
        let can_have = |&id: &TaskId| self.engine.store.can_have(id, queue, hash);
        match given {
            None => Ok(self.free_id(can_have)),
            Some(_) if key.is_some() => Err(self.invalid(String::from(
                "a task can have an id or a key, but not both: remove one of them",
            ))),
            Some(given) if can_have(&given) => Ok(given),
            Some(given) => Err(self.invalid(format!(
                "the id {given} is not in the partition of {queue}: derive an id with `DurableClient::derive_id`"
            ))),
        }
    }

    /// Returns a new id for which `can_have` returns `true`, of a part of the store that answers if there is a choice.
    fn free_id(&self, can_have: impl Fn(&TaskId) -> bool) -> TaskId {
        let mut ids = iter::repeat_with(TaskId::new).filter(can_have);
        let mut choices = (0..MAX_ID_CHOICES).filter_map(|_| ids.next());
        let first = choices.next().unwrap_or_else(TaskId::new);
        let is_reachable = |&id: &TaskId| self.engine.store.is_reachable(id);
        let mut all = iter::once(first).chain(choices);
        all.find(is_reachable).unwrap_or(first)
    }

    /// Stores a task, and returns the handle of this task or of the one that holds its key.
    pub(super) async fn spawn_new<O>(
        &self,
        (span, tasks): (SpawnSpan, Vec<NewTask>),
        handle: impl Fn(TaskId) -> DurableHandle<O>,
    ) -> Result<DurableHandle<O>, DurableError> {
        let id = tasks[0].id;
        let enqueued = span.hold(self.stored(self.push(tasks))).await?;
        match enqueued.conflicts.first() {
            None => Ok(handle(id)),
            Some(conflict) if conflict.resolution == Conflict::Reject => {
                Err(DurableError::conflict(self.store_name(), conflict.holder))
            }
            Some(conflict) => Ok(holder(conflict, handle)),
        }
    }

    pub(super) fn typed_tasks<T: DurableTask>(
        &self,
        tasks: impl Iterator<Item = (T, SpawnOptions)>,
    ) -> Result<(SpawnSpan, Vec<NewTask>), DurableError> {
        self.new_tasks(T::NAME, |trace| {
            let tasks = tasks.map(|(task, options)| self.new_task_of(&task, &options, trace));
            tasks.collect()
        })
    }

    /// Returns tasks of one type that are to be stored, and the span of their spawn.
    pub(super) fn new_tasks(
        &self,
        name: &str,
        new: impl FnOnce(Option<TraceBytes>) -> Result<Vec<NewTask>, DurableError>,
    ) -> Result<(SpawnSpan, Vec<NewTask>), DurableError> {
        let span = SpawnSpan::new(self.store_name(), name);
        let tasks = {
            let _entered = span.enter();
            new(self.propagation.current())?
        };
        span.spawns(&self.propagation, &tasks);
        Ok((span, tasks))
    }

    async fn store_all<T: DurableTask>(
        &self,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<DurableHandle<T::Output>>, DurableError> {
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        let (mut pending, mut handles) = (VecDeque::new(), Vec::with_capacity(ids.len()));
        let mut add = |enqueued: Enqueued, count: usize| {
            let first = handles.len();
            let own = ids.iter().skip(first).take(count);
            handles.extend(own.map(|&id| self.attach::<T>(id)));
            for it in enqueued.conflicts {
                handles[first + it.position] = holder(&it, |id| self.attach::<T>(id));
            }
        };
        for tasks in split(tasks) {
            if pending.len() == MAX_PENDING_REQUESTS
                && let Some((first, count)) = pending.pop_front()
            {
                add(self.stored(first).await?, count);
            }
            let count = tasks.len();
            pending.push_back((self.push(tasks), count));
        }
        for (request, count) in pending {
            add(self.stored(request).await?, count);
        }
        Ok(handles)
    }

    /// Adds tasks that fit into one batch to the queue.
    fn push(&self, tasks: Vec<NewTask>) -> Pushed {
        Pushed {
            first: tasks.first().map(|task| task.id),
            stored: self.engine.spawn_queue.push(tasks),
        }
    }

    async fn stored(&self, Pushed { first, stored }: Pushed) -> Result<Enqueued, DurableError> {
        let stored = stored.await;
        let stored = stored.map_err(|_| DurableError::closed(self.store_name(), first))?;
        stored.map_err(|failure| DurableError::store(self.store_name(), first, failure))
    }
}

impl<T> DurableHandle<T> {
    /// Returns a handle of the same task that uses `client`. This is necessary after a handle was deserialised. A deserialised
    /// handle does not check the type of the task, only that the output can be decoded.
    ///
    /// # Examples
    ///
    /// See [`DurableHandle`].
    #[must_use = "the handle itself does not change"]
    pub fn attach(&self, client: &DurableClient) -> Self {
        self.with_engine(client.engine())
    }
}

impl fmt::Debug for DurableClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableClient")
            .field("store", self.store_name())
            .finish_non_exhaustive()
    }
}

/// The maximum number of spawn requests of one call that are not stored yet: two that are being sent, and one that is ready
/// when one of them is answered.
const MAX_PENDING_REQUESTS: usize = 3;

/// The maximum number of ids of which one is chosen for a task. There is a limit because its queue or key may determine the part of the
/// store.
const MAX_ID_CHOICES: usize = 32;

/// Tasks in the queue, and the first of them, which an error names.
struct Pushed {
    first: Option<TaskId>,
    stored: Stored,
}

/// Returns a handle of the task that holds the key.
fn holder<O>(
    conflict: &KeyConflict,
    handle: impl Fn(TaskId) -> DurableHandle<O>,
) -> DurableHandle<O> {
    handle(conflict.holder).after(conflict.resolution)
}
