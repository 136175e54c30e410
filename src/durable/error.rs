//! [`DurableError`]: the errors of durable tasks and of their stores.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::failure::{Cause, Effect, Failure};
use super::{DeadReason, Durability, TaskId};

/// An error of a durable task or of its store: the task was not stored, it has no output, or the store does not answer.
#[derive(Clone)]
pub struct DurableError {
    kind: DurableErrorKind,
    task: Option<TaskId>,
    store_name: Arc<str>,
}

#[derive(Clone, Debug)]
enum DurableErrorKind {
    Dead {
        reason: DeadReason,
        error: String,
    },
    Cancelled,
    Expired,
    Rewound,
    TooLarge {
        len: usize,
        max: usize,
    },
    Encode(Arc<dyn Error + Send + Sync>),
    Decode {
        error: Arc<dyn Error + Send + Sync>,
        /// The encoded output, unless its envelope cannot be read.
        output: Option<Arc<[u8]>>,
    },
    DecodeTask(Arc<dyn Error + Send + Sync>),
    DecodeProgress(Arc<dyn Error + Send + Sync>),
    Damaged(String),
    NotDurable {
        found: Durability,
        wanted: Durability,
    },
    Invalid(String),
    Conflict,
    WouldDeadlock,
    AwaitsItself,
    Detached,
    Closed,
    Store(Failure),
}

impl DurableError {
    pub(crate) fn dead(
        store_name: &Arc<str>,
        task: TaskId,
        reason: DeadReason,
        error: String,
    ) -> Self {
        Self::of(store_name, task, DurableErrorKind::Dead { reason, error })
    }

    pub(crate) fn cancelled(store_name: &Arc<str>, task: TaskId) -> Self {
        Self::of(store_name, task, DurableErrorKind::Cancelled)
    }

    pub(crate) fn expired(store_name: &Arc<str>, task: TaskId) -> Self {
        Self::of(store_name, task, DurableErrorKind::Expired)
    }

    pub(crate) fn rewound(store_name: &Arc<str>, task: TaskId) -> Self {
        Self::of(store_name, task, DurableErrorKind::Rewound)
    }

    pub(crate) fn too_large(store_name: &Arc<str>, task: TaskId, len: usize, max: usize) -> Self {
        Self::of(store_name, task, DurableErrorKind::TooLarge { len, max })
    }

    pub(crate) fn encode(
        store_name: &Arc<str>,
        task: TaskId,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::of(
            store_name,
            task,
            DurableErrorKind::Encode(error.into().into()),
        )
    }

    pub(crate) fn decode(
        store_name: &Arc<str>,
        task: TaskId,
        error: Box<dyn Error + Send + Sync>,
        output: Option<&[u8]>,
    ) -> Self {
        let (error, output) = (error.into(), output.map(Arc::from));
        Self::of(store_name, task, DurableErrorKind::Decode { error, output })
    }

    pub(crate) fn decode_task(
        store_name: &Arc<str>,
        task: TaskId,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::of(
            store_name,
            task,
            DurableErrorKind::DecodeTask(error.into().into()),
        )
    }

    pub(crate) fn decode_progress(
        store_name: &Arc<str>,
        task: TaskId,
        error: serde_json::Error,
    ) -> Self {
        Self::of(
            store_name,
            task,
            DurableErrorKind::DecodeProgress(Arc::new(error)),
        )
    }

    pub(crate) fn damaged(store_name: &Arc<str>, task: TaskId, description: String) -> Self {
        Self::of(store_name, task, DurableErrorKind::Damaged(description))
    }

    pub(crate) fn not_durable(
        store_name: &Arc<str>,
        found: Durability,
        wanted: Durability,
    ) -> Self {
        Self {
            kind: DurableErrorKind::NotDurable { found, wanted },
            task: None,
            store_name: Arc::clone(store_name),
        }
    }

    pub(crate) fn invalid(store_name: &Arc<str>, reason: String) -> Self {
        Self {
            kind: DurableErrorKind::Invalid(reason),
            task: None,
            store_name: Arc::clone(store_name),
        }
    }

    pub(crate) fn conflict(store_name: &Arc<str>, holder: TaskId) -> Self {
        Self::of(store_name, holder, DurableErrorKind::Conflict)
    }

    pub(crate) fn would_deadlock(store_name: &Arc<str>, task: TaskId) -> Self {
        Self::of(store_name, task, DurableErrorKind::WouldDeadlock)
    }

    /// Returns the error of a run that awaits its own task.
    pub(crate) fn awaits_itself(store_name: &Arc<str>, task: TaskId) -> Self {
        Self::of(store_name, task, DurableErrorKind::AwaitsItself)
    }

    /// Returns the error of a handle that was deserialised and has no store.
    pub(crate) fn detached(task: TaskId) -> Self {
        Self::of(&Arc::from("no store"), task, DurableErrorKind::Detached)
    }

    pub(crate) fn closed(store_name: &Arc<str>, task: Option<TaskId>) -> Self {
        Self {
            kind: DurableErrorKind::Closed,
            task,
            store_name: Arc::clone(store_name),
        }
    }

    pub(crate) fn store(store_name: &Arc<str>, task: Option<TaskId>, failure: Failure) -> Self {
        Self {
            kind: DurableErrorKind::Store(failure),
            task,
            store_name: Arc::clone(store_name),
        }
    }

    fn of(store_name: &Arc<str>, task: TaskId, kind: DurableErrorKind) -> Self {
        Self {
            kind,
            task: Some(task),
            store_name: Arc::clone(store_name),
        }
    }

    /// Returns the id of the task that the error concerns, if it concerns one.
    ///
    /// # Examples
    ///
    /// See [`is_unknown`](Self::is_unknown).
    pub fn task_id(&self) -> Option<TaskId> {
        self.task
    }

    /// Returns the name of the store, as messages show it.
    pub fn store_name(&self) -> &str {
        &self.store_name
    }

    /// Returns `true` if the task has failed for good, and is a dead letter.
    ///
    /// # Examples
    ///
    /// See [`dead_reason`](Self::dead_reason).
    pub fn is_dead(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Dead { .. })
    }

    /// Returns the reason for which the task is dead, or `None` if it is not dead.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # impl Run<()> for SendMail {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Err(TaskError::fatal("no such mailbox")) }
    /// # }
    /// use throng::durable::DeadReason;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// # let _executor = builder.register::<SendMail>().start(()).await?;
    /// let error = client.spawn(SendMail { to: "a@b.c".into() }).await?.await.unwrap_err();
    /// assert!(error.is_dead());
    /// assert_eq!(error.dead_reason(), Some(DeadReason::Fatal));
    /// # Ok(()) }
    /// ```
    pub fn dead_reason(&self) -> Option<DeadReason> {
        match self.kind {
            DurableErrorKind::Dead { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns `true` if the task was cancelled.
    ///
    /// # Examples
    ///
    /// See [`DurableClient`](super::DurableClient).
    pub fn is_cancelled(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Cancelled)
    }

    /// Returns `true` if the store has no record of the task: it was never stored there, or it has ended, and
    /// its end is not kept any longer. See also [`is_rewound`](Self::is_rewound).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct SendMail { to: String }
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// use throng::durable::TaskId;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let handle = client.attach::<SendMail>(TaskId::new()); // the store has no such task
    /// assert!(handle.await.is_err_and(|error| error.is_expired()));
    /// # Ok(()) }
    /// ```
    pub fn is_expired(&self) -> bool {
        matches!(
            self.kind,
            DurableErrorKind::Expired | DurableErrorKind::Rewound
        )
    }

    /// Returns `true` if the store has no record of the task and, since the handle of the task was made, has lost writes that it had
    /// acknowledged: after a failover to a replica that was behind, a restart, or the removal of all data. It is not known whether the task
    /// has run. If so, [`is_expired`](Self::is_expired) also returns `true`.
    ///
    /// To run the task again, spawn it again under its [id](Self::task_id). See also
    /// [`DurableClient::losses`](super::DurableClient::losses).
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableError, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Pay { order: u64 }
    /// # impl DurableTask for Pay { const NAME: &'static str = "pay"; type Output = (); }
    /// use throng::durable::{SpawnOptions, TaskId};
    ///
    /// async fn paid(client: &DurableClient, id: TaskId, order: u64) -> Result<(), DurableError> {
    ///     match client.attach::<Pay>(id).await {
    ///         // The task may have run before the store lost it.
    ///         Err(error) if error.is_rewound() => {
    ///             client.spawn_with(Pay { order }, SpawnOptions::new().id(id)).await?.await
    ///         }
    ///         paid => paid,
    ///     }
    /// }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # assert!(paid(&client, TaskId::new(), 7).await.is_err_and(|error| error.is_expired()));
    /// # Ok(()) }
    /// ```
    pub fn is_rewound(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Rewound)
    }

    /// Returns `true` if the encoded task is larger than a store accepts.
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
    /// let mail = SendMail { to: "a".repeat(2 << 20) }; // 2 MiB
    /// assert!(client.spawn(mail).await.is_err_and(|error| error.is_too_large()));
    /// # Ok(()) }
    /// ```
    pub fn is_too_large(&self) -> bool {
        matches!(self.kind, DurableErrorKind::TooLarge { .. })
    }

    /// Returns `true` if the task could not be [encoded](super::DurableTask::encode).
    pub fn is_encode(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Encode(_))
    }

    /// Returns `true` if the stored output is not that of this type of task, the dead letter is not a task of this type, or the reported
    /// [progress](super::TaskContext::progress) is not a value of this type.
    ///
    /// # Examples
    ///
    /// See [`encoded_output`](Self::encoded_output).
    pub fn is_decode(&self) -> bool {
        matches!(
            self.kind,
            DurableErrorKind::Decode { .. }
                | DurableErrorKind::DecodeTask(_)
                | DurableErrorKind::DecodeProgress(_)
        )
    }

    /// Returns the [encoded](super::DurableTask::decode_output) output of the task, if the task has succeeded and its output is not that of
    /// this type of task. A task of another version, or another type, may be able to decode it. Returns `None` in all other cases, and if
    /// another version of this crate has stored the output in a way that this version cannot read.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableHandle, DurableTask, EncodedTask};
    /// # use throng::durable::{MemoryStore, Run, SpawnOptions, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Square(u32);
    /// # impl DurableTask for Square { const NAME: &'static str = "square"; type Output = u32; }
    /// # impl Run<()> for Square {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 * self.0) }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let _executor = DurableExecutor::builder(client.clone()).register::<Square>().start(()).await?;
    /// let square = EncodedTask::new("square", "3");
    /// let handle: DurableHandle<String> = client.spawn_encoded(square, SpawnOptions::new()).await?;
    /// let error = handle.await.unwrap_err(); // the output is a number, not a text
    /// assert!(error.is_decode());
    /// assert_eq!(error.encoded_output(), Some(&b"9"[..]));
    /// # Ok(()) }
    /// ```
    pub fn encoded_output(&self) -> Option<&[u8]> {
        match &self.kind {
            DurableErrorKind::Decode { output, .. } => output.as_deref(),
            _ => None,
        }
    }

    /// Returns `true` if the store has lost the payload of the dead letter, or cannot read it. Other tasks are not
    /// affected.
    pub fn is_damaged(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Damaged(_))
    }

    /// Returns `true` if the store is less durable than [a client](super::DurableClient::require) or the
    /// store's builder requires.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::require`](super::DurableClient::require).
    pub fn is_not_durable(&self) -> bool {
        matches!(self.kind, DurableErrorKind::NotDurable { .. })
    }

    /// Returns `true` if a run awaited the task and the wait could have kept the task from running: too many
    /// runs of the executor already await tasks, or the executor runs one task at a time on its caller.
    ///
    /// A run that is quarantined, because its task has crashed a worker before, keeps its permit while it waits. It
    /// gets this error at once if it holds the executor's only permit, and otherwise when no worker has taken the
    /// awaited task for 30 s.
    ///
    /// A run that returns this error, for instance by `?`, does not count as failed: its task runs again
    /// after about a second, and no attempt is counted. By then the awaited task may have ended. To find
    /// out, await a handle with the same [id](super::SpawnOptions::id).
    ///
    /// A run never gets this error if it spawns the tasks as [children](super::TaskContext::spawn_all) and
    /// [joins](super::TaskContext::join) them: a task that joins its children holds no permit.
    ///
    /// A run that awaits its own task gets this error at once, and the attempt counts. It has such a handle if it spawns a task
    /// with its own [key](super::Key), which it holds until it ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore};
    /// use std::time::Duration;
    ///
    /// use throng::durable::{DurableHandle, Run, TaskContext, TaskError};
    ///
    /// # #[derive(Serialize, Deserialize)] struct Import;
    /// # impl DurableTask for Import { const NAME: &'static str = "import"; type Output = u32; }
    /// # impl Run<()> for Import {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(40) }
    /// # }
    /// # #[derive(Serialize, Deserialize)] struct Report(DurableHandle<u32>);
    /// # impl DurableTask for Report { const NAME: &'static str = "report"; type Output = (); }
    /// impl Run<()> for Report {
    ///     async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
    ///         match self.0.attach(cx.client()).await {
    ///             Ok(files) => println!("{files} files"),
    ///             // Tries again when the other task may have ended.
    ///             Err(error) if error.is_would_deadlock() => {
    ///                 return Err(TaskError::snooze(Duration::from_secs(10)));
    ///             }
    ///             Err(error) => return Err(error.into()),
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// # let mut executor = builder.register::<Import>().register::<Report>().start_inline(()).await?;
    /// # let delay = throng::durable::SpawnOptions::new().delay(Duration::from_secs(3600));
    /// # let report = client.spawn(Report(client.spawn_with(Import, delay).await?)).await?;
    /// # executor.run_due().await?;
    /// # assert_eq!(report.status().await?, throng::durable::Status::Delayed);
    /// # Ok(()) }
    /// ```
    pub fn is_would_deadlock(&self) -> bool {
        matches!(
            self.kind,
            DurableErrorKind::WouldDeadlock | DurableErrorKind::AwaitsItself
        )
    }

    pub(crate) fn is_own_run(&self) -> bool {
        matches!(self.kind, DurableErrorKind::AwaitsItself)
    }

    /// Returns `true` if a deserialised handle was used before it was [attached](super::DurableHandle::attach) to a client.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableHandle, TaskId};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let json = serde_json::to_string(&TaskId::new())?; // a handle is serialised as its id
    /// let handle: DurableHandle<u32> = serde_json::from_str(&json)?;
    /// assert!(handle.await.is_err_and(|error| error.is_detached()));
    /// # Ok(()) }
    /// ```
    pub fn is_detached(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Detached)
    }

    /// Returns `true` if the client was closed, or the system refused a thread for it.
    ///
    /// # Examples
    ///
    /// See [`DurableClient::close`](super::DurableClient::close).
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Closed)
    }

    /// Returns `true` if the request may have taken effect: the connection to the store was lost after it was sent.
    ///
    /// If the request was to store a task, [spawn](super::DurableClient::spawn_with) the task again with the same id,
    /// [`task_id`](Self::task_id). It is then stored exactly once. A task with a [key](super::Key) cannot be given an id. Spawn it
    /// again with the same key: it joins the task that was stored, unless that task no longer holds the key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableError, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Pay { order: u64 }
    /// # impl DurableTask for Pay { const NAME: &'static str = "pay"; type Output = (); }
    /// use throng::durable::SpawnOptions;
    ///
    /// async fn pay(client: &DurableClient, order: u64) -> Result<(), DurableError> {
    ///     let mut spawned = client.spawn(Pay { order }).await;
    ///     while let Err(error) = &spawned
    ///         && error.is_unknown()
    ///         && let Some(id) = error.task_id()
    ///     {
    ///         // The task may be stored. Under the same id, it is stored once.
    ///         spawned = client.spawn_with(Pay { order }, SpawnOptions::new().id(id)).await;
    ///     }
    ///     spawned.map(drop)
    /// }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # pay(&client, 7).await?;
    /// # Ok(()) }
    /// ```
    pub fn is_unknown(&self) -> bool {
        self.failure()
            .is_some_and(|failure| failure.effect == Effect::Unknown)
    }

    /// Returns `true` if other processes kept the store locked for longer than a request waits, or kept changing the same
    /// [schedule](super::Schedules). It is safe to try again.
    pub fn is_busy(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Busy | Cause::Contended))
    }

    /// Returns `true` if the store has no space left.
    pub fn is_full(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Full))
    }

    /// Returns `true` if the store can be read but not written. This includes a store that the client only observes, for example with
    /// `SqliteStore::observe`.
    ///
    /// # Examples
    ///
    /// See [`MemoryStore::observe`](super::MemoryStore::observe).
    pub fn is_read_only(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::ReadOnly | Cause::Observed))
    }

    /// Returns `true` if the store's user lacks a permission, or may not log in.
    pub fn is_denied(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Denied))
    }

    /// Returns `true` if a setting is invalid: for instance, the address of a store, or an executor without task types. The
    /// message names the remedy.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// // No type is registered.
    /// let error = DurableExecutor::builder::<()>(client).start(()).await.unwrap_err();
    /// assert!(error.is_invalid());
    /// println!("{error}"); // the message names the remedy
    /// # Ok(()) }
    /// ```
    pub fn is_invalid(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Invalid(_))
            || self.is_failure(|cause| matches!(cause, Cause::Invalid(_)))
    }

    /// Returns `true` if the task was [rejected](super::Key::reject), and is not stored, because another task holds its key.
    /// [`task_id`](Self::task_id) returns the id of the task that holds the key.
    ///
    /// # Examples
    ///
    /// See [`Key::reject`](super::Key::reject).
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind, DurableErrorKind::Conflict)
    }

    /// Returns `true` if the store cannot keep tasks because of its version or configuration, or if it has no [outbox](super::Outbox) for
    /// a task in your own transaction. The message names the problem and the remedy.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableTask, MemoryStore};
    /// # #[derive(Serialize, Deserialize)] struct Ship { order: u64 }
    /// # impl DurableTask for Ship { const NAME: &'static str = "ship"; type Output = (); }
    /// use throng::durable::SpawnOptions;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(MemoryStore::new()); // it has no outbox
    /// let error = client.outbox(Ship { order: 7 }, SpawnOptions::new()).unwrap_err();
    /// assert!(error.is_unfit());
    /// # Ok(()) }
    /// ```
    pub fn is_unfit(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Unfit(_)))
    }

    /// Returns `true` if the store has a newer layout than this version of the crate knows.
    pub fn is_newer_layout(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::NewerLayout { .. }))
    }

    /// Returns `true` if the store has an older layout than this version of the crate knows. The store is not converted: let the
    /// older version run all tasks to their end, or delete the store.
    pub fn is_older_layout(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::OlderLayout { .. }))
    }

    /// Returns `true` if a store was not [upgraded](super::DurableClient::upgrade) because processes with an older version of
    /// this crate use it. The message names the processes.
    pub fn is_upgrade_blocked(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::OldProcesses(_)))
    }

    /// Returns `true` if the file of the store has been removed, or replaced by another, since it was opened.
    pub fn is_replaced(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Replaced))
    }

    /// Returns `true` if the stored data cannot be read and cannot be repaired. The message names a remedy. Otherwise,
    /// replace the store with a copy, as the docs of the store describe.
    pub fn is_corrupt(&self) -> bool {
        self.is_failure(|cause| matches!(cause, Cause::Corrupt))
    }

    fn failure(&self) -> Option<&Failure> {
        match &self.kind {
            DurableErrorKind::Store(failure) => Some(failure),
            _ => None,
        }
    }

    fn is_failure(&self, is: impl FnOnce(&Cause) -> bool) -> bool {
        self.failure().is_some_and(|failure| is(&failure.cause))
    }
}

impl fmt::Display for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store_name = &self.store_name;
        match self.task {
            Some(task) => write!(f, "task {task} in {store_name}: ")?,
            None => write!(f, "{store_name}: ")?,
        }
        match &self.kind {
            DurableErrorKind::Dead { reason, error } => {
                write!(f, "it has failed for good: {reason}")?;
                if !error.is_empty() {
                    write!(f, ": {error}")?;
                }
                f.write_str("; it can be replayed from the dead letters")
            }
            DurableErrorKind::Cancelled => f.write_str("it was cancelled"),
            DurableErrorKind::Expired => f.write_str(
                "the store has no record of it: it was never stored, or its end is no longer kept",
            ),
            DurableErrorKind::Rewound => f.write_str(
                "the store has no record of it, and has lost acknowledged writes meanwhile: spawn it again under this id if it is to run",
            ),
            DurableErrorKind::TooLarge { len, max } => write!(
                f,
                "it has {len} bytes, and a store accepts at most {max}: keep the data elsewhere and put a reference to it in the task"
            ),
            DurableErrorKind::Encode(_) => f.write_str("it cannot be encoded"),
            DurableErrorKind::Decode { .. } => f.write_str("its output cannot be decoded as that of this type of task"),
            DurableErrorKind::DecodeProgress(_) => f.write_str("its progress cannot be decoded as this type"),
            DurableErrorKind::DecodeTask(_) => f.write_str("it cannot be decoded as this type of task"),
            DurableErrorKind::Damaged(description) => write!(f, "it is damaged: {description}"),
            DurableErrorKind::NotDurable { found, wanted } => write!(
                f,
                "it is less durable than required: {found:?} instead of {wanted:?} (the docs of \
                 `Durability` name the settings for each level)"
            ),
            DurableErrorKind::Invalid(reason) => f.write_str(reason),
            DurableErrorKind::Conflict => f.write_str("it holds the key, so the new task was rejected and is not stored"),
            DurableErrorKind::WouldDeadlock => f.write_str(
                "the run that awaits it could keep it from running: end that run, and await it in the next, or spawn it with \
                 `TaskContext::spawn_all` and wait with `TaskContext::join`",
            ),
            DurableErrorKind::AwaitsItself => f.write_str(
                "its own run awaits it: if a spawn has joined it, give it a key that it holds only `until_started`",
            ),
            DurableErrorKind::Detached => f.write_str("its handle was deserialised: attach it to a client"),
            DurableErrorKind::Closed => f.write_str("its client was closed, or the client's thread has ended"),
            DurableErrorKind::Store(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Debug for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DurableError({self})")
    }
}

impl Error for DurableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            DurableErrorKind::Encode(error)
            | DurableErrorKind::Decode { error, .. }
            | DurableErrorKind::DecodeTask(error)
            | DurableErrorKind::DecodeProgress(error) => Some(&**error),
            DurableErrorKind::Store(failure) => failure.source.as_deref().map(|error| error as _),
            _ => None,
        }
    }
}
