//! [`DurableExecutor`]: runs what is stored.

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use self::app_guard::AppGuard;
use self::builder::Builder;
use self::metrics::{Metrics, Tally};
use self::registry::Runs;
use self::worker::{Message, Settings, Worker};
use super::store::Backend;
use super::{DurableClient, DurableError};

mod app_guard;
pub(crate) mod builder;
pub(crate) mod claims;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod inline;
pub(crate) mod metrics;
mod pending_verdicts;
pub(crate) mod registry;
pub(crate) mod scope;
pub(crate) mod worker;

/// Runs the tasks of a store, on a Tokio runtime, in this process: one worker of those that there
/// may be.
///
/// Tasks are claimed in the order in which they became ready, in batches that grow with the load;
/// the store is asked by one request at a time, which brings what has ended and takes what is next.
/// An idle worker waits, and costs nothing.
///
/// # When something dies
///
/// A task that was spawned is run until it succeeds, fails for good, or is cancelled, whatever
/// process ends meanwhile and however it ends. Its worker holds a *lease*, which is renewed from a
/// thread on which no task runs; if the worker dies, others take the task back, and no retry is
/// counted. A task that runs at that time runs again: *it may run more than once*. A task that
/// kills its workers becomes a dead letter.
///
/// # When to use something else
///
/// A task costs a write to a disk or to the network. For work that may die with the process,
/// [`tokio::spawn`] and the other parts of this crate are a thousand times cheaper.
///
/// # Dropping
///
/// Dropping the executor is a [`shutdown`](Self::shutdown) without grace that nobody waits for.
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
///     .concurrency(16)
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
    /// How an executor for the tasks of `client`'s store works.
    pub fn builder<App: Send + Sync + 'static>(client: DurableClient) -> Builder<App> {
        Builder::new(client)
    }

    pub(crate) async fn start(
        client: DurableClient,
        runs: impl Runs + 'static,
        settings: Settings,
        runtime: Handle,
    ) -> Result<Self, DurableError> {
        let set = runs.set();
        let session = client
            .ask(None, |store| store.open_session(Some(set.clone())))
            .await?;
        let (messages, received) = mpsc::unbounded_channel();
        let (ended_sender, ended) = watch::channel(false);
        let tally = StdArc::new(Tally::default());
        let engine = client.engine();
        let worker = Worker::new(
            StdArc::clone(engine),
            AppGuard::new(StdArc::new(runs), runtime.clone()),
            settings,
            runtime,
            session,
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

    /// Claims no more tasks, tells those that run to [stop](super::StopReason::Shutdown), waits for
    /// them, for `grace` at most, and gives what is left back to the store, for other workers: at
    /// once, and with nothing counted. What is left is dropped where it waits; code that computes
    /// without waiting goes on, but what it returns is ignored.
    ///
    /// A shutdown takes at most `grace` and two seconds, also if the store does not answer: it spends these two
    /// seconds at most on storing how the last tasks ended, on closing the worker's session, and on the drop of
    /// the `App`.
    ///
    /// The client stays open, so the program can still spawn and await tasks. Before the program exits, await
    /// [`DurableClient::close`], for instance with `executor.client().close().await`. After the last client of a
    /// `SqliteStore` is closed, the file holds all tasks and nothing is left beside it. If the clients are
    /// dropped instead, the same happens in the background, and a program that exits before then may leave files beside
    /// that file. They hold what is stored, and must not be removed; the next program that opens it tidies up.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the shutdown goes on. It can be called again, with less grace, too.
    pub async fn shutdown(&self, grace: Duration) {
        self.messages.send(Message::Shutdown(grace)).ok();
        self.terminated().await;
    }

    /// Waits until the executor has ended: it was shut down, or its runtime was.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and called again.
    pub async fn terminated(&self) {
        let mut ended = self.ended.clone();
        // An error: the engine is gone, and the worker with it.
        ended.wait_for(|&ended| ended).await.ok();
    }

    /// What the executor has done.
    pub fn metrics(&self) -> Metrics {
        self.tally.read()
    }

    /// The client that it was built with.
    pub fn client(&self) -> &DurableClient {
        &self.client
    }
}

/// How often a store is rid of what it keeps no longer, give or take a half.
const MAINTENANCE: Duration = Duration::from_secs(30);
/// How much is removed at once; how many times as long others then have the store, and how long at
/// least.
const MAINTENANCE_BATCH: usize = 1_000;
const MAINTENANCE_SHARE: u32 = 9;
const MAINTENANCE_PAUSE: Duration = Duration::from_millis(5);

/// Removes what the store need not keep any longer. The first pass is made at once: only passes advance store time, and an
/// executor may be short-lived.
async fn maintain(store: StdArc<dyn Backend>) {
    loop {
        let mut begun = Instant::now();
        while store.maintain(MAINTENANCE_BATCH).await.unwrap_or(false) {
            sleep(MAINTENANCE_PAUSE.max(begun.elapsed() * MAINTENANCE_SHARE)).await;
            begun = Instant::now();
        }
        // The workers of a store do not all make a pass at the same time.
        sleep(MAINTENANCE.mul_f64(0.5 + fastrand::f64())).await;
    }
}

impl Drop for DurableExecutor {
    fn drop(&mut self) {
        self.messages.send(Message::Shutdown(Duration::ZERO)).ok();
    }
}

impl fmt::Debug for DurableExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableExecutor")
            .field("queue", self.client.queue())
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
