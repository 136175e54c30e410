//! [`DurableHandle`]: awaits a task, wherever it runs.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc as StdArc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use super::clock::since_boot;
use super::engine::Engine;
use super::engine::waiters::End;
use super::envelope::{OpenOutput, open_output};
use super::executor::scope::{self, Wait};
use super::key::Conflict;
use super::store::TaskState;
use super::task::TaskNames;
use super::{AttemptError, DurableError, DurableTask, ProgressStream, Status, TaskId};
use crate::blocking::BlockingPool;
use crate::completion::{Slot, forward};
use crate::task::Outcome;

/// Awaits a durable task, wherever it runs.
///
/// The handle is a future of the task's output. Dropping it does not affect the task. Clones await the same task.
///
/// # In another process, or after a restart
///
/// Store the [`id`](Self::id), and call [`DurableClient::attach`](super::DurableClient::attach) with it later. A handle can
/// also be a part of something that is serialised, such as another task: it is serialised as its id. A deserialised handle
/// belongs to no client. [Attach](Self::attach) it to one before you await it; until then, it and its methods fail with an
/// error that [`is_detached`](DurableError::is_detached).
///
/// # In a run of another task
///
/// A run gives its permit back while it awaits a handle, so tasks that await tasks run at any
/// [`max_running`](super::Builder::max_running). It acquires a permit again, ahead of new tasks, before it
/// resumes. At most 1,024 runs of an executor wait in this way. In a run beyond that limit, or of an
/// `InlineExecutor`, the handle of a task that has not ended resolves with an error that
/// [`is_would_deadlock`](DurableError::is_would_deadlock). In a quarantined run it may do so, too. A run keeps its
/// permit if it awaits the handle in a Tokio task that it has spawned with [`tokio::spawn`].
///
/// # Cancel safety
///
/// Nothing is lost if the handle is dropped: another handle of the task resolves to the same output.
///
/// # Examples
///
/// A task that collects the outputs of others:
///
/// ```
/// # use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
/// use serde::{Deserialize, Serialize};
/// use throng::durable::{DurableHandle, DurableTask, Run, TaskContext, TaskError};
///
/// #[derive(Serialize, Deserialize)]
/// struct Square(u32);
///
/// # impl DurableTask for Square { const NAME: &'static str = "square"; type Output = u32; }
/// # impl Run<()> for Square {
/// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 * self.0) }
/// # }
/// #[derive(Serialize, Deserialize)]
/// struct Sum(Vec<DurableHandle<u32>>);
///
/// # impl DurableTask for Sum { const NAME: &'static str = "sum"; type Output = u32; }
/// impl Run<()> for Sum {
///     async fn run(self, cx: TaskContext<()>) -> Result<u32, TaskError> {
///         let mut sum = 0;
///         for handle in self.0 {
///             sum += handle.attach(cx.client()).await?;
///         }
///         Ok(sum)
///     }
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = DurableClient::open(MemoryStore::new());
/// # let mut builder = DurableExecutor::builder(client.clone());
/// # let _executor = builder.register::<Square>().register::<Sum>().start(()).await?;
/// let squares = client.spawn_all([Square(3), Square(4)]).await?;
/// let sum = client.spawn(Sum(squares)).await?;
/// assert_eq!(sum.await?, 25);
/// # Ok(()) }
/// ```
pub struct DurableHandle<T> {
    /// `None` if the handle was deserialised, and not attached yet.
    engine: Option<StdArc<Engine>>,
    id: TaskId,
    /// The type of the task. `None` if it is not known, because the handle was deserialised or the task was spawned as bytes.
    task: Option<TaskType<T>>,
    /// The way in which the spawn that returned the handle resolved a conflict, if the task held its key.
    conflict: Option<Conflict>,
    waiting: Option<Waiting>,
    /// The time at which the handle was made, since the machine was started.
    since: Duration,
}

/// Decodes an output: see [`DurableTask::decode_output`].
type Decode<T> = fn(&[u8]) -> Result<T, Box<dyn Error + Send + Sync>>;

/// The properties of the type of a task that its handle needs. The output of the task is a `T`.
struct TaskType<T> {
    names: TaskNames,
    decode_output: Decode<T>,
}

impl<T> Clone for TaskType<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TaskType<T> {}

/// A wait for the end of a task.
struct Waiting {
    end: oneshot::Receiver<End>,
    wait: Wait,
}

impl Waiting {
    fn begin(engine: &Engine, id: TaskId) -> Self {
        let wait = Wait::begin();
        let end = engine.waiters.wait(id, wait.limit());
        Self { end, wait }
    }
}

impl<T> DurableHandle<T> {
    /// Returns a handle of a task of type `D`.
    pub(crate) fn new<D: DurableTask<Output = T>>(engine: &StdArc<Engine>, id: TaskId) -> Self {
        Self {
            engine: Some(StdArc::clone(engine)),
            id,
            task: Some(TaskType {
                names: TaskNames::of::<D>(),
                decode_output: D::decode_output,
            }),
            conflict: None,
            waiting: None,
            since: since_boot(),
        }
    }

    /// Returns a handle of a task whose type is not known.
    pub(crate) fn untyped(engine: &StdArc<Engine>, id: TaskId) -> Self {
        Self {
            engine: Some(StdArc::clone(engine)),
            id,
            task: None,
            conflict: None,
            waiting: None,
            since: since_boot(),
        }
    }

    /// Returns a handle of the same task that uses another engine.
    pub(crate) fn with_engine(&self, engine: &StdArc<Engine>) -> Self {
        Self {
            engine: Some(StdArc::clone(engine)),
            since: since_boot(),
            ..self.clone()
        }
    }

    /// Returns a handle of the task that held the key of another one, and says how that conflict was resolved.
    pub(crate) fn after(mut self, conflict: Conflict) -> Self {
        self.conflict = Some(conflict);
        self
    }

    /// Returns `true` if the spawn that returned this handle stored nothing, because this task held the [key](super::Key). To
    /// [cancel](Self::cancel) the task cancels it for all spawns that await it.
    ///
    /// A clone returns the same. An attached or deserialised handle returns `false`, and so does the handle of a spawn whose
    /// [id](super::SpawnOptions::id) already existed.
    ///
    /// # Examples
    ///
    /// See [`Key`](super::Key).
    pub fn was_joined(&self) -> bool {
        self.conflict == Some(Conflict::Join)
    }

    /// Returns `true` if the spawn that returned this handle stored no task, but [replaced](super::Key::replace) the payload of this
    /// one. Clones and other handles are as with [`was_joined`](Self::was_joined).
    ///
    /// # Examples
    ///
    /// See [`Key::replace`](super::Key::replace).
    pub fn has_replaced(&self) -> bool {
        self.conflict == Some(Conflict::Replace)
    }

    /// Returns `true` if one of several spawned tasks was [rejected](super::Key::reject): this is the task that held its key. See
    /// [`spawn_all_with`](super::DurableClient::spawn_all_with).
    ///
    /// # Examples
    ///
    /// See [`DurableClient::spawn_all_with`](super::DurableClient::spawn_all_with).
    pub fn was_rejected(&self) -> bool {
        self.conflict == Some(Conflict::Reject)
    }

    /// Returns the task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the status of the task.
    ///
    /// # Errors
    ///
    /// The store does not answer, or the handle is [not attached](DurableError::is_detached).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    ///
    /// # Examples
    ///
    /// See [`DurableClient`](super::DurableClient).
    pub async fn status(&self) -> Result<Status, DurableError> {
        self.engine()?.status(self.id).await
    }

    /// Returns the errors of the attempts after which the task was tried again: see
    /// [`DurableClient::errors`](super::DurableClient::errors).
    ///
    /// # Errors
    ///
    /// The store does not answer, or the handle is [not attached](DurableError::is_detached).
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
    /// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?;
    /// # executor.run_due().await?;
    /// // The first attempt has failed, and the task waits for the second one.
    /// let errors = handle.errors().await?;
    /// assert_eq!(errors[0].error, "no connection");
    /// # Ok(()) }
    /// ```
    pub async fn errors(&self) -> Result<Vec<AttemptError>, DurableError> {
        let (engine, id) = (self.engine()?, self.id);
        engine.ask(Some(id), |store| store.errors(id)).await
    }

    /// Returns a stream of the [progress](super::TaskContext::progress) that the runs of the task report. The stream ends when the task
    /// has ended. If the handle is [not attached](DurableError::is_detached), the stream yields an error and ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Import;
    /// # impl DurableTask for Import { const NAME: &'static str = "import"; type Output = (); }
    /// # impl Run<()> for Import {
    /// #     async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
    /// #         cx.progress(&Imported { files: 40, of: 100 });
    /// #         cx.stopped().await;
    /// #         Ok(())
    /// #     }
    /// # }
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Imported {
    ///     files: u32,
    ///     of: u32,
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// # let _executor = builder.register::<Import>().start(()).await?;
    /// let handle = client.spawn(Import).await?;
    /// let mut progress = handle.progress::<Imported>();
    /// while let Some(imported) = progress.next().await {
    ///     assert_eq!(imported?, Imported { files: 40, of: 100 });
    /// #     handle.cancel().await?;
    /// }
    /// // The task has ended.
    /// # Ok(()) }
    /// ```
    pub fn progress<P>(&self) -> ProgressStream<P> {
        ProgressStream::new(self.engine.as_ref(), self.id)
    }

    /// Cancels the task: at once if it does not run, and otherwise when the run has [stopped](super::StopReason). Returns
    /// `true` if the task had not ended.
    ///
    /// # Errors
    ///
    /// The store does not answer, or the handle is [not attached](DurableError::is_detached). It is safe to call this
    /// again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task may be cancelled or not.
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
    /// let handle = client.spawn(SendMail { to: "a@b.c".into() }).await?;
    /// assert!(handle.cancel().await?);
    /// assert!(!handle.cancel().await?); // it has already ended
    /// assert!(handle.await.is_err_and(|error| error.is_cancelled()));
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self) -> Result<bool, DurableError> {
        let (engine, id) = (self.engine()?, self.id);
        engine.cancel(id).await
    }

    /// If the task came from an outbox and has joined another one, makes this the handle of that task, and returns `true`.
    fn join(&mut self, end: Option<&End>) -> bool {
        let joined = match end {
            Some(Ok(state)) => state.joined(),
            _ => None,
        };
        if let Some((holder, resolution)) = joined {
            (self.id, self.conflict) = (holder, Some(resolution));
        }
        joined.is_some()
    }

    fn engine(&self) -> Result<&StdArc<Engine>, DurableError> {
        let engine = self.engine.as_ref();
        engine.ok_or_else(|| DurableError::detached(self.id))
    }
}

impl<T: DeserializeOwned> DurableHandle<T> {
    /// Turns the end of the task into the handle's result. `None` means that the client was closed.
    pub(super) fn outcome(&self, end: Option<End>) -> Result<T, DurableError> {
        let engine = self.engine()?;
        let (store_name, id) = (&engine.store_name, self.id);
        let Some(end) = end else {
            return Err(DurableError::closed(store_name, Some(id)));
        };
        match end {
            Ok(TaskState::Done(sealed)) => self.decode(&sealed).map_err(|error| {
                let output = open_output(&sealed).map(|opened| opened.bytes);
                DurableError::decode(store_name, id, error, output)
            }),
            Ok(TaskState::Dead { reason, error }) => {
                Err(DurableError::dead(store_name, id, reason, error))
            }
            Ok(TaskState::Cancelled) => Err(DurableError::cancelled(store_name, id)),
            Ok(TaskState::Conflict { holder, .. }) => {
                Err(DurableError::conflict(store_name, holder))
            }
            Ok(TaskState::Absent) if engine.losses.is_any_since(self.since) => {
                Err(DurableError::rewound(store_name, id))
            }
            Ok(TaskState::Absent) => Err(DurableError::expired(store_name, id)),
            Ok(TaskState::Waiting | TaskState::Delayed | TaskState::Running) => {
                Err(DurableError::would_deadlock(store_name, id))
            }
            Err(failure) => Err(DurableError::store(store_name, Some(id), failure)),
        }
    }

    /// Decodes the output of the task, unless it is that of a task of another type.
    fn decode(&self, sealed: &[u8]) -> Result<T, Box<dyn Error + Send + Sync>> {
        let OpenOutput { name, bytes } = open_output(sealed)
            .ok_or("its envelope cannot be read; another version of throng may have written it")?;
        match self.task {
            Some(task) if !task.names.contains(name) => {
                Err(format!("the task is a `{name}`, not a `{}`", task.names.current).into())
            }
            Some(task) => (task.decode_output)(bytes),
            None => Ok(serde_json::from_slice(bytes)?),
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> DurableHandle<T> {
    /// Completes a slot with the result of the task, so that a [`CompletionStream`](crate::CompletionStream) yields it among
    /// other jobs.
    ///
    /// This needs no Tokio task that awaits the handle: a thread of the process decodes the output and completes the slot.
    /// Aborting the slot does not [cancel](Self::cancel) the task.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableTask, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Square(u32);
    /// # impl DurableTask for Square { const NAME: &'static str = "square"; type Output = u32; }
    /// # impl Run<()> for Square {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 * self.0) }
    /// # }
    /// use throng::CompletionStream;
    /// use throng::durable::DurableClient;
    ///
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use throng::durable::{DurableExecutor, MemoryStore};
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut executor =
    /// #     DurableExecutor::builder(client.clone()).register::<Square>().start_inline(()).await?;
    /// let (jobs, mut done) = CompletionStream::builder().build()?;
    /// for n in 1..=3 {
    ///     let slot = jobs.slot(n).await?;
    ///     client.spawn(Square(n)).await?.complete(slot);
    /// }
    /// drop(jobs);
    /// # assert_eq!(executor.run_due().await?, 3);
    ///
    /// while let Some(completed) = done.next().await {
    ///     assert_eq!(completed.outcome??, completed.tag * completed.tag);
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "test-util"))] fn main() { let _: Option<(DurableClient, CompletionStream<()>)> = None; }
    /// ```
    pub fn complete<K>(self, slot: Slot<Result<T, DurableError>, K>)
    where
        K: Send + 'static,
    {
        let Some(engine) = self.engine.clone() else {
            let (handle, end) = (self, None);
            return forward(Ended { handle, end }, slot);
        };
        self.complete_within(Wait::begin(), &engine, slot);
    }

    fn complete_within<K>(
        mut self,
        wait: Wait,
        engine: &StdArc<Engine>,
        slot: Slot<Result<T, DurableError>, K>,
    ) where
        K: Send + 'static,
    {
        let (id, next) = (self.id, StdArc::downgrade(engine));
        engine.waiters.call(id, wait.limit(), move |end| {
            let is_joined = self.join(end.as_ref());
            match next.upgrade().filter(|_| is_joined) {
                Some(engine) => self.complete_within(wait, &engine, slot),
                None => decode(move || {
                    forward(Ended { handle: self, end }, slot);
                    drop(wait);
                }),
            }
        });
    }
}

/// The end of a task as the outcome of a job. The error of a failed task is the output of the job.
struct Ended<T> {
    handle: DurableHandle<T>,
    end: Option<End>,
}

impl<T: DeserializeOwned> Future for Ended<T> {
    type Output = Outcome<Result<T, DurableError>>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let end = self.end.take();
        Poll::Ready(Ok(self.handle.outcome(end)))
    }
}

impl<T: DeserializeOwned> Future for DurableHandle<T> {
    type Output = Result<T, DurableError>;

    /// Polls the handle. After it was ready, it can be polled again: it then requests the end once more.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        let this = &mut *self;
        loop {
            let Some(engine) = &this.engine else {
                return Poll::Ready(Err(DurableError::detached(this.id)));
            };
            if scope::is_run_of(this.id) {
                return Poll::Ready(Err(DurableError::awaits_itself(
                    &engine.store_name,
                    this.id,
                )));
            }
            // The handle may have moved from the run that polled it to another place.
            this.waiting = this.waiting.take().filter(|waiting| waiting.wait.is_here());
            let waiting = this
                .waiting
                .get_or_insert_with(|| Waiting::begin(engine, this.id));
            let end = ready!(Pin::new(&mut waiting.end).poll(cx)).ok();
            this.waiting = None;
            if !this.join(end.as_ref()) {
                coop.made_progress();
                return Poll::Ready(this.outcome(end));
            }
        }
    }
}

/// The maximum number of outputs that are decoded at once.
const MAX_DECODE_THREADS: usize = 4;

/// Runs `work`, which decodes an output and is user code, on a thread of a pool. The pool creates threads when
/// they are needed, and they exit after a while.
fn decode(work: impl FnOnce() + Send + 'static) {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let mut builder = BlockingPool::builder();
        builder
            .name("throng-decode")
            .max_threads(MAX_DECODE_THREADS);
        builder.build_outside()
    });
    drop(pool.spawn_blocking(work));
}

/// A clone awaits the same task.
impl<T> Clone for DurableHandle<T> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            id: self.id,
            task: self.task,
            conflict: self.conflict,
            waiting: None,
            since: self.since,
        }
    }
}

/// A handle is serialised as its id.
impl<T> Serialize for DurableHandle<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

/// A deserialised handle belongs to no client: see [`DurableHandle::attach`].
impl<'de, T> Deserialize<'de> for DurableHandle<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            engine: None,
            id: TaskId::deserialize(deserializer)?,
            task: None,
            conflict: None,
            waiting: None,
            since: since_boot(),
        })
    }
}

impl<T> fmt::Debug for DurableHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store_name = self.engine.as_ref().map(|engine| &engine.store_name);
        f.debug_struct("DurableHandle")
            .field("id", &self.id)
            .field("store", &store_name)
            .finish()
    }
}
