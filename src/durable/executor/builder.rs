//! [`Builder`]: configures and starts an executor.

#[cfg(feature = "tower")]
use std::error::Error;
use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
#[cfg(feature = "tower")]
use tower_layer::Layer;
#[cfg(feature = "tower")]
use tower_service::Service;

use super::DurableExecutor;
use super::app_runner::AppRunner;
#[cfg(any(test, feature = "test-util"))]
use super::inline::InlineExecutor;
#[cfg(feature = "tower")]
use super::middleware::{RunOutput, RunRequest, RunService};
use super::registry::{Ambiguity, TypeRegistry};
use super::served_queue::{QueueShare, ServedQueue};
use super::worker::{FOREVER, Settings};
use crate::durable::store::kind::TypeSet;
use crate::durable::{DurableClient, DurableError, Run};
use crate::retry::Retry;

/// Configures and starts a [`DurableExecutor`]: see [`DurableExecutor::builder`].
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableTask, Run, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct SendMail;
/// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
/// # impl Run<App> for SendMail {
/// #     async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> { Ok(()) }
/// # }
/// # struct App;
/// use std::time::Duration;
///
/// use throng::Retry;
/// use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = DurableExecutor::builder(DurableClient::open(MemoryStore::new()));
/// builder
///     .register::<SendMail>()
///     .max_running(200)
///     .retry(Retry::exponential().attempts(8))
///     .lease(Duration::from_secs(30));
/// let executor = builder.start(App).await?;
/// # executor.shutdown(Duration::ZERO).await;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until it is started"]
pub struct Builder<App> {
    client: DurableClient,
    registry: TypeRegistry<App>,
    /// If this is empty, the executor serves the default queue.
    queues: Vec<ServedQueue>,
    max_running: usize,
    retry: Retry,
    lease: Duration,
    stall_limit: Duration,
    /// The layers around each run, if there are any.
    #[cfg(feature = "tower")]
    layers: Option<RunService<App>>,
}

/// The shortest lease that [`Builder::lease`] accepts: shorter ones would be lost in ordinary delays.
const MIN_LEASE: Duration = Duration::from_millis(100);

impl DurableExecutor {
    /// Returns a builder for an executor that runs tasks of the store of `client`.
    ///
    /// The executor runs tasks of the default queue, or of the queues that it [serves](Builder::serve). The permits
    /// ([`max_running`](Builder::max_running)) are shared by the queues. No permit is unused while a queue has tasks that may
    /// start. While several queues have tasks, [weights](ServedQueue::weight) decide which queue is next. The limits of a
    /// [queue](crate::durable::Queue) are kept in the store, and hold for all executors together.
    ///
    /// # Examples
    ///
    /// See [`DurableExecutor`].
    pub fn builder<App: Send + Sync + 'static>(client: DurableClient) -> Builder<App> {
        Builder {
            client,
            registry: TypeRegistry::new(),
            queues: Vec::new(),
            max_running: 64,
            retry: Retry::exponential(),
            lease: Duration::from_secs(10),
            stall_limit: Duration::from_secs(60),
            #[cfg(feature = "tower")]
            layers: None,
        }
    }
}

impl<App: Send + Sync + 'static> Builder<App> {
    /// Lets the executor run tasks of this type, of its [version](crate::durable::DurableTask::VERSION) and of all older versions, under
    /// its name and its [former names](crate::durable::DurableTask::FORMER_NAMES). The executor never claims any other task. Such a task
    /// waits, without a time limit, for a worker that knows its name and its version.
    ///
    /// # Examples
    ///
    /// See [`Builder`].
    pub fn register<T: Run<App>>(&mut self) -> &mut Self {
        self.registry.register::<T>();
        self
    }

    /// Lets the executor run tasks of this queue. If this is never called, the executor runs the tasks of the default queue.
    /// Otherwise, it runs only tasks of the queues that were passed; [`ServedQueue::default_queue`] is the default queue. A
    /// second call with the same queue replaces the first.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
    /// use throng::durable::ServedQueue;
    ///
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let mut builder = DurableExecutor::builder::<()>(client);
    /// builder
    ///     .serve(ServedQueue::default_queue().weight(8)) // starts 8 of 9 tasks while both have tasks
    ///     .serve(ServedQueue::new("reports").max_running(4));
    /// ```
    pub fn serve(&mut self, queue: ServedQueue) -> &mut Self {
        match self.queues.iter_mut().find(|other| other.is_same(&queue)) {
            Some(other) => *other = queue,
            None => self.queues.push(queue),
        }
        self
    }

    /// Sets the maximum number of tasks that run at once, at least 1. The default is 64. A task does not count while it
    /// [awaits other tasks](crate::durable::DurableHandle#in-a-run-of-another-task).
    ///
    /// # Examples
    ///
    /// See [`Builder`].
    pub fn max_running(&mut self, max_running: usize) -> &mut Self {
        self.max_running = max_running;
        self
    }

    /// Sets how often, and after which delays, a task that fails is tried again, if neither its
    /// [type](crate::durable::DurableTask::RETRY) nor its [spawn](crate::durable::SpawnOptions::retry) determines that. The default is
    /// [`Retry::exponential`].
    ///
    /// # Examples
    ///
    /// See [`Builder`].
    pub fn retry(&mut self, retry: Retry) -> &mut Self {
        self.retry = retry;
        self
    }

    /// Sets the time after which other workers take the tasks of a worker that hangs, cannot reach the store or, with
    /// Redis, has died: at least 100 ms. The default is 10 s. Leases are renewed for as long as the worker lives, so a
    /// lease need not be longer than a task runs. A run that exceeds its [timeout](crate::durable::DurableTask::TIMEOUT) has the time of
    /// a further lease to stop.
    ///
    /// # Examples
    ///
    /// See [`Builder`].
    pub fn lease(&mut self, lease: Duration) -> &mut Self {
        self.lease = lease;
        self
    }

    /// Sets how long the runtime of the tasks may be stuck, so that none of its threads runs a newly spawned task, before
    /// the worker stops renewing the leases of its tasks. The default is one minute.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
    /// use std::time::Duration;
    ///
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let mut builder = DurableExecutor::builder::<()>(client);
    /// // If the runtime is stuck for 20 s, the worker stops renewing its leases.
    /// builder.stall_limit(Duration::from_secs(20));
    /// ```
    pub fn stall_limit(&mut self, stall_limit: Duration) -> &mut Self {
        self.stall_limit = stall_limit;
        self
    }

    /// Adds middleware: wraps each run in a layer, such as one of the crate [`tower`](https://docs.rs/tower). This needs the feature
    /// `tower`.
    ///
    /// The layer wraps the layers that were added before. So the layer that is added last is the outermost, as in axum: it sees the
    /// [request](RunRequest) first and the [output](RunOutput) or the error last. In a `tower::ServiceBuilder`, the first layer is the
    /// outermost; its method `into_inner` returns a layer that can be passed here. The layers wrap the runs of all registered types.
    ///
    /// For each run, the executor clones the service that the layers have made, waits until the clone is ready (`poll_ready`), and calls
    /// it. The innermost service decodes the task and runs it.
    ///
    /// # Errors of layers
    ///
    /// - A [`RunError`](crate::durable::RunError) keeps its meaning, even in a box, and even if it is a [source](Error::source) of
    ///   another error. So a layer can pass on the errors of runs, and can return an error in place of a run:
    ///   `Err(TaskError::snooze(wait).into())`.
    /// - Any other error, such as that of a timeout, is a failed attempt, and the task is tried again.
    /// - A panic of a layer counts as a panic of the run.
    /// - A task that cannot be decoded passes through the layers as an [error](crate::durable::RunError::is_unreadable). It becomes a dead
    ///   letter unless a layer replaces the error. Tasks that the store has damaged do not reach the layers.
    ///
    /// # Rules for layers
    ///
    /// - A run has its [permit](Self::max_running) before the layers are called. A layer that waits, or is not ready, keeps this permit.
    ///   To make tasks wait without permits, use a [snooze](crate::durable::TaskError::snooze) or the limits of a
    ///   [queue](crate::durable::Queue), which also hold for all processes.
    /// - A layer that waits should stop when the [context](RunRequest::context) says so. When the grace period of a
    ///   [shutdown](DurableExecutor::shutdown) is over, the executor drops the future of the outermost layer.
    /// - A layer must poll the future of the inner service itself, as those of `tower` do. In a task that a layer spawns, a run keeps its
    ///   permit while it awaits other durable tasks, and does not end when the executor drops it.
    /// - A timeout that drops the future of a run has no effect on code that blocks its thread.
    ///   [`DurableTask::TIMEOUT`](crate::durable::DurableTask::TIMEOUT) is the better choice: the attempt fails after a further
    ///   [lease](Self::lease) even if the run blocks its thread. The time of a run includes that of its layers.
    /// - Clones of a request share the names of the [steps](crate::durable::TaskContext::step) of the task. A layer may run one clone after
    ///   another. If it runs several at the same time, as a layer for hedging does, a step may run in each of them at once, or fail with a
    ///   fatal error because another clone has used its name. So such a layer does not suit tasks with steps.
    /// - If the builder starts several executors, their services are clones, which may share state such as a limit.
    ///
    /// # Panics
    ///
    /// Panics if the layer panics when it is applied. The builder is unchanged then.
    ///
    /// # Examples
    ///
    /// A layer of `tower` that limits the duration of runs, and a layer made of a function that logs runs that fail:
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableTask, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct SendMail;
    /// # impl DurableTask for SendMail { const NAME: &'static str = "mail.send"; type Output = (); }
    /// # impl Run<App> for SendMail {
    /// #     async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> { Ok(()) }
    /// # }
    /// # struct App;
    /// use std::time::Duration;
    ///
    /// use throng::durable::{DurableClient, DurableExecutor, MemoryStore};
    /// use throng::durable::{RunError, RunOutput, RunRequest, RunService};
    /// use tower::{ServiceExt, layer::layer_fn, service_fn, timeout::TimeoutLayer};
    ///
    /// async fn log(inner: RunService<App>, request: RunRequest<App>) -> Result<RunOutput, RunError> {
    ///     let (name, id) = (request.name(), request.context().id());
    ///     let result = inner.oneshot(request).await;
    ///     if let Err(error) = &result {
    ///         eprintln!("{name} {id}: {error}");
    ///     }
    ///     result
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let executor = DurableExecutor::builder(DurableClient::open(MemoryStore::new()))
    ///     .register::<SendMail>()
    ///     .layer(TimeoutLayer::new(Duration::from_secs(60)))
    ///     .layer(layer_fn(|inner: RunService<App>| {
    ///         service_fn(move |request| log(inner.clone(), request))
    ///     }))
    ///     .start(App)
    ///     .await?;
    /// # executor.client().spawn(SendMail).await?.await?;
    /// # executor.shutdown(Duration::ZERO).await;
    /// # Ok(()) }
    /// ```
    ///
    /// The example `middleware` also has layers for metrics and for a circuit breaker.
    #[cfg(feature = "tower")]
    pub fn layer<L>(&mut self, layer: L) -> &mut Self
    where
        L: Layer<RunService<App>>,
        L::Service: Service<RunRequest<App>, Response = RunOutput> + Clone + Send + Sync + 'static,
        <L::Service as Service<RunRequest<App>>>::Error: Into<Box<dyn Error + Send + Sync>>,
        <L::Service as Service<RunRequest<App>>>::Future: Send + 'static,
    {
        let inner = self.layers.clone();
        let inner = inner.unwrap_or_else(RunService::without_layers);
        self.layers = Some(RunService::layered(layer.layer(inner)));
        self
    }

    /// Starts an executor that runs tasks on the current Tokio runtime. The [context](crate::durable::TaskContext::app) of
    /// each run holds `app`. The builder can be used again.
    ///
    /// # Errors
    ///
    /// - The store does not answer.
    /// - An option is [invalid](DurableError::is_invalid): no type is [registered](Self::register), two registered types share a
    ///   name or a former name,
    ///   [`max_running`](Self::max_running) or [`stall_limit`](Self::stall_limit) is zero, [`lease`](Self::lease) is
    ///   shorter than 100 ms, or a [served queue](Self::serve) has an invalid name, a weight of zero, or a maximum of zero
    ///   running tasks. The message names the value and the remedy.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no executor is started.
    ///
    /// # Examples
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore};
    /// use throng::durable::{Run, TaskContext, TaskError};
    ///
    /// struct App {
    ///     greeting: String,
    /// }
    ///
    /// # #[derive(Serialize, Deserialize)] struct Greet { name: String }
    /// # impl DurableTask for Greet { const NAME: &'static str = "greet"; type Output = String; }
    /// impl Run<App> for Greet {
    ///     async fn run(self, cx: TaskContext<App>) -> Result<String, TaskError> {
    ///         Ok(format!("{}, {}!", cx.app().greeting, self.name))
    ///     }
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// let executor = DurableExecutor::builder(client.clone())
    ///     .register::<Greet>()
    ///     .start(App { greeting: "Hello".into() })
    ///     .await?;
    /// let greeting = client.spawn(Greet { name: "Ada".into() }).await?.await?;
    /// assert_eq!(greeting, "Hello, Ada!");
    /// # drop(executor);
    /// # Ok(()) }
    /// ```
    pub async fn start(
        &self,
        app: impl Into<StdArc<App>>,
    ) -> Result<DurableExecutor, DurableError> {
        let settings = self.settings()?;
        let runner = self.runner(app.into())?;
        let client = self.client.clone();
        DurableExecutor::start(client, runner, settings, Handle::current()).await
    }

    /// Returns an executor for tests, which runs tasks on the caller when the caller [tells it
    /// to](super::inline::InlineExecutor::run_due).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no executor is started.
    ///
    /// # Examples
    ///
    /// See [`InlineExecutor`].
    #[cfg(any(test, feature = "test-util"))]
    pub async fn start_inline(
        &self,
        app: impl Into<StdArc<App>>,
    ) -> Result<InlineExecutor, DurableError> {
        let settings = self.settings()?;
        let runner = self.runner(app.into())?;
        InlineExecutor::start(self.client.clone(), runner, &settings).await
    }

    fn settings(&self) -> Result<Settings, DurableError> {
        let invalid = |reason| Err(DurableError::invalid(self.client.store_name(), reason));
        if self.max_running == 0 {
            return invalid(
                "`max_running` is 0, so no task could run: set it to at least 1".into(),
            );
        }
        if self.lease < MIN_LEASE {
            let lease = self.lease;
            return invalid(format!(
                "`lease` is {lease:?}: set it to at least {MIN_LEASE:?}"
            ));
        }
        if self.stall_limit.is_zero() {
            return invalid(
                "`stall_limit` is 0, so no lease would be renewed: set it to some seconds".into(),
            );
        }
        Ok(Settings {
            queues: self.queues()?,
            max_running: self.max_running,
            lease: self.lease.min(FOREVER),
            stall_limit: self.stall_limit,
        })
    }

    fn queues(&self) -> Result<Vec<QueueShare>, DurableError> {
        let default = [ServedQueue::default_queue()];
        let queues = match &self.queues[..] {
            [] => &default,
            queues => queues,
        };
        let shares = queues.iter().map(|queue| queue.share(self.max_running));
        let shares = shares.collect::<Result<_, _>>();
        shares.map_err(|reason| DurableError::invalid(self.client.store_name(), reason))
    }

    fn runner(&self, app: StdArc<App>) -> Result<AppRunner<App>, DurableError> {
        Ok(AppRunner {
            registry: self.registry.clone(),
            set: self.set()?,
            app,
            client: self.client.clone(),
            retry: self.retry,
            #[cfg(feature = "tower")]
            layers: self.layers.clone().map(StdArc::new),
        })
    }

    /// Returns the registered types, as stores identify them.
    fn set(&self) -> Result<TypeSet, DurableError> {
        let invalid = |reason| DurableError::invalid(self.client.store_name(), reason);
        if let Some(Ambiguity { name, types }) = self.registry.ambiguity() {
            let [one, other] = types;
            return Err(invalid(format!(
                "`{one}` and `{other}` share the name {name:?}: give each type a name that no other type has or had"
            )));
        }
        let set = TypeSet::of_versions(self.registry.versions());
        let set = set.map_err(|(one, other)| {
            let reason =
                format!("the names {one:?} and {other:?} have the same hash: rename one of them");
            invalid(reason)
        })?;
        match set.types() {
            [] => Err(invalid(
                "no type of task is registered: call `register` before `start`".to_owned(),
            )),
            _ => Ok(set),
        }
    }
}

impl<App> fmt::Debug for Builder<App> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.registry.names().collect();
        f.debug_struct("Builder")
            .field("client", &self.client)
            .field("registered", &names)
            .field("queues", &self.queues)
            .field("max_running", &self.max_running)
            .field("retry", &self.retry)
            .field("lease", &self.lease)
            .field("stall_limit", &self.stall_limit)
            .finish()
    }
}
