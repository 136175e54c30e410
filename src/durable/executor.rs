//! [`DurableExecutor`]: runs the tasks of a store.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use self::app_guard::AppGuard;
use self::app_runner::TaskRunner;
use self::message::Message;
use self::metrics::{Metrics, Tally};
use self::open_sessions::OpenSessions;
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use self::type_tally::TypeMetrics;
use self::worker::{Settings, Worker};
use super::store::Backend;
use super::{DurableClient, DurableError};
#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
use crate::weak_part::{ReadPart, WeakPart};

mod app_guard;
pub(crate) mod app_runner;
pub(crate) mod attempt;
pub(crate) mod builder;
pub(crate) mod claims;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod inline;
pub(crate) mod message;
pub(crate) mod metrics;
#[cfg(feature = "tower")]
pub(crate) mod middleware;
mod open_sessions;
mod pending_verdicts;
pub(crate) mod permits;
pub(crate) mod progress_reports;
pub(crate) mod registry;
#[cfg(feature = "tower")]
pub(crate) mod run_error;
pub(crate) mod run_fn;
pub(crate) mod scope;
pub(crate) mod served_queue;
pub(crate) mod timeouts;
pub(crate) mod type_tally;
pub(crate) mod worker;

/// Runs the tasks of a store on a Tokio runtime. It is one worker of the store; there may be others in this process and in
/// other processes.
///
/// The executor claims tasks in the order in which they became ready, in batches that grow with the load. One request at a
/// time reports how tasks ended and claims the next ones. An idle executor waits, and uses no CPU time.
///
/// # If a worker dies
///
/// A task that was spawned runs until it succeeds, fails for good, or is cancelled, even if processes exit in any way. Its
/// worker holds a *lease*, which it renews from a thread that runs no tasks. If the worker dies, others take the task back
/// and run it again, and no retry is counted. So *a task may run more than once*. A task that crashes several workers
/// becomes a dead letter. [The module docs](crate::durable#if-a-process-exits-at-a-given-step) list what follows a
/// crash at each step.
///
/// # When to use something else
///
/// A task costs a write to a disk or to the network. For work that may be lost with the process, [`tokio::spawn`] and the
/// other parts of this crate are a thousand times cheaper.
///
/// # Dropping
///
/// Dropping the executor shuts it down without a grace period, in the background.
///
/// # Examples
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore};
/// use throng::durable::{Run, TaskContext, TaskError};
///
/// #[derive(Serialize, Deserialize)]
/// struct Add(u32, u32);
///
/// impl DurableTask for Add {
///     const NAME: &'static str = "add";
///     type Output = u32;
/// }
///
/// struct App;
///
/// impl Run<App> for Add {
///     async fn run(self, _: TaskContext<App>) -> Result<u32, TaskError> {
///         Ok(self.0.checked_add(self.1).ok_or("that is too much")?)
///     }
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(MemoryStore::new());
/// let executor = DurableExecutor::builder(client.clone())
///     .register::<Add>()
///     .max_running(16)
///     .start(App)
///     .await?;
///
/// assert_eq!(client.spawn(Add(1, 2)).await?.await?, 3);
/// executor.shutdown(std::time::Duration::from_secs(20)).await;
/// # Ok(()) }
/// ```
pub struct DurableExecutor {
    messages: mpsc::UnboundedSender<Message>,
    ended: watch::Receiver<bool>,
    tally: StdArc<Tally>,
    client: DurableClient,
}

impl DurableExecutor {
    pub(crate) async fn start(
        client: DurableClient,
        runner: impl TaskRunner + 'static,
        settings: Settings,
        runtime: Handle,
    ) -> Result<Self, DurableError> {
        let sessions = OpenSessions::open(&client, &runner, &settings.queues).await?;
        let (messages, received) = mpsc::unbounded_channel();
        let (ended_sender, ended) = watch::channel(false);
        let tally = StdArc::new(Tally::new(settings.max_running, runner.names()));
        let engine = client.engine();
        let worker = Worker::new(
            StdArc::clone(engine),
            AppGuard::new(StdArc::new(runner), runtime.clone()),
            settings,
            runtime,
            sessions.into_ids(),
            (messages.clone(), received),
            StdArc::clone(&tally),
        );
        engine.add_worker(messages.clone());
        let store = StdArc::clone(&engine.store);
        engine.run(async move {
            tokio::select! {
                () = worker.run() => {}
                () = maintain(store) => {}
            }
            ended_sender.send(true).ok();
        });
        Ok(Self {
            messages,
            ended,
            tally,
            client,
        })
    }

    /// Stops claiming tasks. Runs that have started are completed and are not asked to stop. This method does not wait for them:
    /// await [`closed`](Self::closed). The executor gives back a task that it has claimed but not started, so another executor can run
    /// the task at once.
    ///
    /// Other executors continue to run the tasks of the store, and the client stays open. If a remaining run awaits a task that is not
    /// claimed yet, another executor must claim that task. Otherwise this executor never ends. To limit the time of the remaining
    /// runs, call [`shutdown`](Self::shutdown) later.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Add(u32, u32);
    /// # impl DurableTask for Add {
    /// #     const NAME: &'static str = "add";
    /// #     type Output = u32;
    /// # }
    /// # impl Run<()> for Add {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> { Ok(self.0 + self.1) }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(MemoryStore::new());
    /// let executor = DurableExecutor::builder(client.clone()).register::<Add>().start(()).await?;
    /// executor.close();
    /// executor.closed().await;
    ///
    /// // The store keeps the task for another executor.
    /// let waiting = client.spawn(Add(1, 2)).await?;
    /// assert_eq!(client.counts().await?.waiting, 1);
    /// # drop(waiting);
    /// # Ok(()) }
    /// ```
    pub fn close(&self) {
        self.messages.send(Message::Close).ok();
    }

    /// Shuts the executor down: claims no more tasks, asks the running ones to [stop](super::StopReason::Shutdown), and
    /// waits for them, for `grace` at most.
    ///
    /// At the end of the grace period, the remaining runs are dropped at an await point, and their tasks are given back to
    /// the store at once, for other workers, with nothing counted. Code that computes without awaiting continues, but its
    /// result is ignored.
    ///
    /// A shutdown takes at most `grace` and two seconds, even if the store does not answer. Within these two seconds, the
    /// executor stores the last verdicts, closes its session, and drops the `App`.
    ///
    /// The client stays open, so the program can still spawn and await tasks. Before the program exits, await
    /// [`DurableClient::close`], for instance with `executor.client().close().await`. After the last client of a
    /// `SqliteStore` is closed, the file holds all tasks and nothing is left beside it. If the clients are
    /// dropped instead, the same happens in the background, and a program that exits before then may leave files beside
    /// that file. They hold stored tasks and must not be removed; the next program that opens the store tidies up.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the shutdown continues. Another call may shorten the grace period.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #![allow(dead_code)]
    /// # use throng::durable::DurableExecutor;
    /// # async fn stop(executor: DurableExecutor) -> Result<(), Box<dyn std::error::Error>> {
    /// tokio::signal::ctrl_c().await?;
    /// executor.shutdown(std::time::Duration::from_secs(20)).await;
    /// executor.client().close().await?;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self, grace: Duration) {
        self.messages.send(Message::Shutdown(grace)).ok();
        self.closed().await;
    }

    /// [Shuts the executor down](Self::shutdown) without a grace period, and does not wait: see [`closed`](Self::closed).
    ///
    /// Each run is dropped at its next await point, and its task is given back to the store.
    ///
    /// # Examples
    ///
    /// ```
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Endless;
    /// # impl DurableTask for Endless {
    /// #     const NAME: &'static str = "endless";
    /// #     type Output = ();
    /// # }
    /// # impl Run<()> for Endless {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { std::future::pending().await }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = DurableClient::open(MemoryStore::new());
    /// let executor = DurableExecutor::builder(client.clone()).register::<Endless>().start(()).await?;
    /// let endless = client.spawn(Endless).await?;
    /// executor.shutdown_now();
    /// executor.closed().await;
    /// // The store has it for another executor.
    /// assert_eq!(client.counts().await?.waiting, 1);
    /// # drop(endless);
    /// # Ok(()) }
    /// ```
    pub fn shutdown_now(&self) {
        self.messages.send(Message::Shutdown(Duration::ZERO)).ok();
    }

    /// Waits until the executor has ended. It ends when it or its runtime is shut down, or, after [`close`](Self::close), when its runs
    /// have ended and the store has their outcomes.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped, and the method called again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Sweep;
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # impl Run<()> for Sweep {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Ok(()) }
    /// # }
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut builder = DurableExecutor::builder(client);
    /// let executor = Arc::new(builder.register::<Sweep>().start(()).await?);
    /// let watched = Arc::clone(&executor);
    /// let ended = tokio::spawn(async move { watched.closed().await });
    ///
    /// executor.shutdown(std::time::Duration::ZERO).await;
    /// ended.await?;
    /// # Ok(()) }
    /// ```
    pub async fn closed(&self) {
        let mut ended = self.ended.clone();
        // An error means that the engine was dropped, and the worker with it.
        ended.wait_for(|&ended| ended).await.ok();
    }

    /// Returns the numbers of this executor.
    ///
    /// # Examples
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError};
    /// # #[derive(Serialize, Deserialize)] struct Sweep;
    /// # impl DurableTask for Sweep { const NAME: &'static str = "sweep"; type Output = (); }
    /// # impl Run<()> for Sweep {
    /// #     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> { Ok(()) }
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = DurableClient::open(MemoryStore::new());
    /// # let mut builder = DurableExecutor::builder(client.clone());
    /// let executor = builder.register::<Sweep>().max_running(16).start(()).await?;
    /// client.spawn(Sweep).await?.await?;
    /// executor.shutdown(std::time::Duration::ZERO).await;
    ///
    /// let metrics = executor.metrics();
    /// assert_eq!((metrics.max_running, metrics.completed, metrics.retried), (16, 1, 0));
    /// # Ok(()) }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.tally.read()
    }

    /// Returns the client that the executor was built with.
    ///
    /// # Examples
    ///
    /// See [`shutdown`](Self::shutdown).
    pub fn client(&self) -> &DurableClient {
        &self.client
    }
}

#[cfg(not(all(test, any(throng_loom, throng_shuttle))))]
impl DurableExecutor {
    /// Reads the metrics, and those of the runs of each type.
    pub(crate) fn weak_part(
        &self,
    ) -> impl ReadPart<(Metrics, Vec<(&'static str, TypeMetrics)>)> + use<> {
        WeakPart::new(&self.tally, |tally| (tally.read(), tally.types.read()))
    }
}

/// The mean pause between two passes of maintenance. It varies by half.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(30);
/// The minimum time between two passes, across all workers of a store.
const MIN_MAINTENANCE_INTERVAL: Duration = Duration::from_secs(15);
/// The maximum number of things that one request of a pass removes.
const MAINTENANCE_BATCH: usize = 1_000;
/// The pause after such a request, as a multiple of the time that it took, and at least. Others can use the store then.
const MAINTENANCE_PAUSE_FACTOR: u32 = 9;
const MIN_MAINTENANCE_PAUSE: Duration = Duration::from_millis(5);

/// Removes what the store need not keep any longer. The first pass is requested at once: only passes advance store time, and an executor
/// may be short-lived.
async fn maintain(store: StdArc<dyn Backend>) {
    loop {
        let mut begun = Instant::now();
        while store
            .maintain_every(MIN_MAINTENANCE_INTERVAL, MAINTENANCE_BATCH)
            .await
            .unwrap_or(false)
        {
            sleep(MIN_MAINTENANCE_PAUSE.max(begun.elapsed() * MAINTENANCE_PAUSE_FACTOR)).await;
            begun = Instant::now();
        }
        // The pause varies, so that the workers of a store do not all make a pass at the same time.
        sleep(MAINTENANCE_INTERVAL.mul_f64(0.5 + fastrand::f64())).await;
    }
}

impl Drop for DurableExecutor {
    fn drop(&mut self) {
        self.shutdown_now();
    }
}

impl fmt::Debug for DurableExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableExecutor")
            .field("store", self.client.store_name())
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
